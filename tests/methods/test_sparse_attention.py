"""Attention made sparse: against plain loops, against the model run by substitution, and beside few keys."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import contract
import identiscope
from identiscope.methods.attention_runs import LayerMaps
from identiscope.methods.predictions.sparse_attention import WAYS, _needed, sparse_rows

CAUSAL = contract.CASES["causal, grouped queries"]


def left_of(row: np.ndarray, query: int, way: str, level: float, anywhere: np.ndarray, seen: int) -> np.ndarray:
    """One row, key by key."""
    order = sorted(range(seen), key=lambda key: (-row[key], key))
    new = np.zeros_like(row)
    for key in range(seen):
        near = abs(key - query) <= level
        kept = {
            "top": order.index(key) < level,
            "threshold": row[key] >= level or row[key] == max(row[:seen]),
            "window": near,
            "global": near or bool(anywhere[key]),
        }[way]
        if kept:
            new[key] = row[key]
    return new / new.sum()


@settings(max_examples=25)
@given(st.integers(0, 2**20), st.integers(1, 9), st.booleans())
def test_rows_keep_what_a_way_leaves(seed: int, count: int, causal: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    allowed = torch.ones(count, count, dtype=torch.bool).tril(0 if causal else count)
    logits = 2 * torch.randn(2, count, count, generator=generator, dtype=torch.float64)
    raw = logits.masked_fill(~allowed, -torch.inf).softmax(-1)
    layer = LayerMaps(0, (0, 1), raw, allowed, torch.arange(count))
    anywhere = torch.rand(count, generator=generator) < 0.3
    for way, levels in WAYS.items():
        for level in levels:
            found = sparse_rows(layer, way, level, anywhere).numpy()
            for head in range(2):
                for query in range(count):
                    seen = query + 1 if causal else count
                    expected = left_of(raw[head, query].numpy(), query, way, level, anywhere.numpy(), seen)
                    np.testing.assert_allclose(found[head, query], expected, atol=1e-12)


def test_the_runs_are_those_of_substitution() -> None:
    traced = contract.trace(CAUSAL)
    found = identiscope.sparse_attention(traced, rows=2)
    count = len(traced.main)
    model, text = contract.model("Llama"), list(CAUSAL.text)

    def largest(attention: torch.Tensor) -> torch.Tensor:
        new = torch.zeros_like(attention)
        for query in range(count):
            new[query, int(attention[query].argmax())] = 1.0
        return new

    maps = {(site.layer, head): largest(site.attention(head)) for site in traced.sites for head in range(4)}
    for layers, moved in (([1], found["top_moved"].sel(top=1, layer=1)), ([0, 1], found["top_together"].sel(top=1))):
        run = identiscope.substitute(model, text, {place: one for place, one in maps.items() if place[0] in layers})
        assert run.logits is not None and traced.logits is not None
        one, other = (logits[-1].double().softmax(-1) for logits in (run.logits, traced.logits))
        np.testing.assert_allclose(moved, 0.5 * float((one - other).abs().sum()), atol=1e-10)
    np.testing.assert_allclose(found["top_moved"].sel(top=32), 0, atol=1e-6)  # no row has so many
    assert bool((found["top_share"].sel(top=32) == 1).all())


def test_the_keys_that_do_exactly_are_those_of_few_keys() -> None:
    traced = contract.trace(CAUSAL)
    found = identiscope.sparse_attention(traced, rows=len(traced.main), layers=[0])
    few = [identiscope.few_keys(traced, layer=0, head=head) for head in range(4)]
    assert float(found["exact_keys"][0]) == pytest.approx(np.mean([one["count"].values for one in few]))
    assert float(found["exact_most"][0]) == pytest.approx(np.mean([one["most"].values for one in few]))


def test_what_is_needed_is_the_sparsest_from_which_on_all_do() -> None:
    assert _needed(np.array([0.01, 0.2, 0.04, 0.0]), (1, 2, 4, 8), 0.05) == 4
    assert np.isnan(_needed(np.array([0.0, 0.2]), (1, 2), 0.05))
    assert _needed(np.array([0.0, 0.0]), (1, 2), 0.05) == 1


def test_bad_input_is_refused() -> None:
    for options, words in (({"rows": 0}, "at least 1"), ({"layers": [7]}, "there are 0 to 1")):
        with pytest.raises(identiscope.InputError, match=words):
            identiscope.sparse_attention(contract.trace(CAUSAL), **options)
