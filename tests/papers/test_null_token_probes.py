"""Claims on token probes, judged of models in which there is nothing to find: real probes fitted to their states."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from identiscope.corpus.hidden_state_cache import HiddenStates
from identiscope.methods.tokens.probes import Recipe
from identiscope.papers.brunner2020.layer_claims import (
    across_claims,
    checkpoint_claims,
    neighbour_claims,
    previous_claims,
)
from identiscope.papers.brunner2020.tokens import studies as studies
from identiscope.papers.brunner2020.tokens.claims import fraction_claims, gap_claims, rate_claims
from identiscope.papers.brunner2020.tokens.setup import LINEAR, NAIVE, Setup
from identiscope.views.plots.figures import Claim

pytestmark = pytest.mark.long

LAYERS, SENTENCES, WIDTH, WORDS = 4, 48, 16, 30
RECIPE = Recipe(learning_rates=(1e-2,), patience=2, maximum_epochs=6, hidden_width=16)
SETUP = Setup(folds=2, mlp_folds=1, resamples=100, keep_resamples=True, recipe=RECIPE)
PROBES = (*NAIVE, *LINEAR, ("mlp", "l2"))


@dataclass(frozen=True, eq=False)
class Made(HiddenStates):
    """Hidden states that no model wrote."""

    ids: list[list[int]]
    written: list[Tensor]

    def layer(self, number: int) -> Tensor:
        return self.written[number + 1]

    @property
    def embeddings(self) -> Tensor:
        return self.written[0]

    @property
    def lengths(self) -> Tensor:
        return torch.tensor([len(one) for one in self.ids])

    @property
    def tokens_by_text(self) -> Any:
        return [tuple(one) for one in self.ids]


Model = Callable[[list[Tensor], torch.Generator], list[list[Tensor]]]


def made(model: Model, seed: int, texts: int | None = None) -> Made:
    """The states [token, channel] that a model makes of random sentences; texts: the seed of these, if not the same."""
    generator = torch.Generator().manual_seed(seed if texts is None else texts)
    table, places = torch.randn(WORDS, WIDTH, generator=generator), torch.randn(16, WIDTH, generator=generator) / 2
    ids = [torch.randint(WORDS, (8 + one % 8,), generator=generator) for one in range(SENTENCES)]
    embedded = [table[one] + places[: len(one)] for one in ids]
    layers = model(embedded, torch.Generator().manual_seed(seed))
    keys = ("model_name", "model", "tokenizer", "text", "texts", "tokens")
    manifest = dict.fromkeys(keys, "null") | {"layers": LAYERS, "embedding_norm": False}
    return Made(Path(), manifest, [one.tolist() for one in ids], [torch.cat(part) for part in (embedded, *layers)])


def identity(embedded: list[Tensor], _: torch.Generator) -> list[list[Tensor]]:
    """Nothing happens to a token."""
    return [embedded] * LAYERS


def uniform_mixing(embedded: list[Tensor], _: torch.Generator) -> list[list[Tensor]]:
    """Every token becomes the mean of its sentence."""
    return [[one.mean(0, keepdim=True).expand_as(one) for one in embedded]] * LAYERS


def random_maps(embedded: list[Tensor], generator: torch.Generator) -> list[list[Tensor]]:
    """Every layer mixes the tokens of a sentence by weights that are drawn anew."""
    return [
        [torch.rand(len(one), len(one), generator=generator).square().softmax(-1) @ one for one in embedded]
        for _ in range(LAYERS)
    ]


def shuffled_labels(embedded: list[Tensor], generator: torch.Generator) -> list[list[Tensor]]:
    """States are those of other tokens, drawn anew in every layer."""
    rows, sizes = torch.cat(embedded), [len(one) for one in embedded]
    return [list(rows[torch.randperm(len(rows), generator=generator)].split(sizes)) for _ in range(LAYERS)]


def one_local_kernel(embedded: list[Tensor], _: torch.Generator) -> list[list[Tensor]]:
    """A token and its neighbours on both sides, in the same way in every layer: nothing changes with depth."""

    def mixed(one: Tensor) -> Tensor:
        apart = (torch.arange(len(one)) - torch.arange(len(one))[:, None]).abs().float()
        return (-apart).softmax(-1) @ one

    return [[mixed(one) for one in embedded]] * LAYERS


def all_claims(model: Model, seed: int) -> Iterator[Claim]:
    """Every claim of the paper on tokens, of one model; before and after fine-tuning it is the same one."""
    cache = made(model, seed)
    rates, fitted = studies.same_layer(cache, setup=SETUP, probes=PROBES)
    yield from rate_claims(rates, "MRPC", True)
    yield from gap_claims(rates)
    across = studies.across_layers(cache, fitted, setup=SETUP)
    for probe in across["probe"].values:
        yield from across_claims(across, str(probe), True)
    yield from previous_claims(studies.previous_layer(cache, setup=SETUP))
    yield from neighbour_claims(studies.neighbours(cache, setup=SETUP, offsets=(-2, -1, 1, 2)), rates)
    yield from fraction_claims(studies.data_fractions(cache, LAYERS - 2, setup=SETUP), True)
    tuned = made(model, seed + 100, seed)
    checkpoints = studies.compare_checkpoints({"before": cache, "fine-tuned": tuned}, setup=SETUP)
    yield from checkpoint_claims(checkpoints, "12")


#: What holds of a null all the same, because it is so there: where nothing happens to tokens, or the same everywhere,
#: they can be identified, and the more texts the better a probe has learnt to.
KEPT = {
    "identity": ("tokens remain mostly identifiable", "even naive probes find", "would not profit much"),
    "one_local_kernel": ("tokens remain mostly identifiable", "even naive probes find", "would not profit much"),
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("model", [identity, uniform_mixing, random_maps, shuffled_labels, one_local_kernel])
def test_no_claim_holds_where_there_is_nothing_to_find(model: Model, seed: int) -> None:
    found = list(all_claims(model, seed))
    held = [claim.statement for claim in found if claim.holds]
    kept = KEPT.get(model.__name__, ())
    assert len(found) == 25 and not [one for one in held if not any(words in one for words in kept)], held
