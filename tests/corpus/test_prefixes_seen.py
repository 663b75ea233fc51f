"""Which texts of a batch are taken in sums over their prefixes: those whose tokens see just what came before."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from identiscope.capture.watch.kernel import Bias
from identiscope.runs.compute.attention_from_prefixes import sees_prefixes

TOKENS = 6
TRIANGLE = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()


def call(bias: Bias) -> Any:
    tensor = torch.zeros(1, 2, TOKENS, 4)
    return SimpleNamespace(query=tensor, key=tensor, bias=bias)


def literal(bias: Bias, places: list[int]) -> bool:
    """Each cell of the mask looked at."""
    seen = torch.ones(TOKENS, TOKENS, dtype=torch.bool) if bias.allowed is None else bias.allowed[0, 0]
    seen = seen & TRIANGLE if bias.causal else seen
    return all(seen[place].nonzero()[:, 0].tolist() == places[: at + 1] for at, place in enumerate(places))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", ["none", "triangle", "padding left", "padding right", "window"])
@pytest.mark.parametrize(("first", "stop"), [(0, 6), (0, 4), (2, 6), (1, 4)])
def test_a_mask_in_a_word_is_judged_as_its_cells_are(causal: bool, mask: str, first: int, stop: int) -> None:
    places = torch.arange(TOKENS)
    allowed = {
        "none": None,
        "triangle": TRIANGLE,
        "padding left": TRIANGLE & (places >= 2),
        "padding right": TRIANGLE & (places < 4),
        "window": TRIANGLE & TRIANGLE.T.roll(-3, 0),
    }[mask]
    bias = Bias(None if allowed is None else allowed[None, None], causal)
    chosen = places[first:stop]
    assert sees_prefixes(call(bias), 0, chosen) == literal(bias, chosen.tolist())
