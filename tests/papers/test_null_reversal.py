"""Section V of the draft through the whole pipeline: what it says of the model that learnt to reverse, it does not say
of models that did not."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from identiscope.papers.structure_draft.reproduce import StructureBudget, reversal_figures
from identiscope.papers.structure_draft.reversal_model import (
    ReversalConfig,
    ReversalModel,
    train_reversal,
    untrained_reversal,
)
from identiscope.papers.untrained import beside_null
from identiscope.views.plots.figures import Claim, Figure

SMALL = ReversalConfig(length=6, vocabulary=12, width=32)
BUDGET = StructureBudget(texts=6, sets=4, config=SMALL)
LEARNT = "an LSTM with attention learns to reverse sequences"


@pytest.fixture(scope="module")
def trained() -> ReversalModel:
    return train_reversal(SMALL, steps=600, batch_size=32, learning_rate=1e-2)


class Diagonal(ReversalModel):
    """Its encoder's outputs stand in reverse, so that who reverses attends along the diagonal."""

    def encode(self, input_ids: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        encoded, state = super().encode(input_ids)
        return encoded.flip(1), state


def like(trained: ReversalModel, kind: type[ReversalModel] = ReversalModel) -> ReversalModel:
    copy = kind(SMALL).eval()
    copy.load_state_dict(trained.state_dict())
    return copy


def uniform_attention(trained: ReversalModel) -> ReversalModel:
    null = like(trained)
    nn.init.zeros_(null.cross_attention.query.weight)
    return null


def random_attention(trained: ReversalModel) -> ReversalModel:
    null = like(trained)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        nn.init.normal_(null.cross_attention.query.weight)
    return null


def shuffled_labels(trained: ReversalModel) -> ReversalModel:
    """What it writes is not what was asked for: the names of tokens are permuted, and it reads them again."""
    null = like(trained)
    order = torch.randperm(SMALL.vocabulary, generator=torch.Generator().manual_seed(1))
    state = null.state_dict()
    null.load_state_dict({name: one[order] if "output_of" in name else one for name, one in state.items()})
    return null


def claims(model: ReversalModel) -> list[Claim]:
    return [one for figure in reversal_figures(model, BUDGET) if isinstance(figure, Figure) for one in figure.claims]


def test_of_the_trained_model_they_hold_and_not_of_an_untrained_one(trained: ReversalModel) -> None:
    made = beside_null(
        reversal_figures(trained, BUDGET),
        lambda: untrained_reversal(SMALL, seed=1),
        lambda null: reversal_figures(null, BUDGET),
    )
    found = [claim for figure in made if isinstance(figure, Figure) for claim in figure.claims]
    held = [claim for claim in found if claim.holds]
    assert [claim.statement for claim in held] == [
        LEARNT, "its attention is antidiagonal, as the task asks", "a threshold of 0.4 finds the structure"
    ]  # fmt: skip
    assert all(claim.verdict == "holds" and "; untrained: " in claim.here for claim in held)


@pytest.mark.parametrize(
    ("null", "kept"),
    [
        (lambda _: untrained_reversal(SMALL, seed=1), set()),
        (uniform_attention, set()),
        (random_attention, set()),
        # It does reverse, by attention that is not where the task has it.
        (lambda trained: like(trained, Diagonal), {LEARNT}),
        (shuffled_labels, set()),
    ],
    ids=["untrained", "uniform", "random", "diagonal", "shuffled labels"],
)
def test_nothing_holds_of_a_null_model(
    trained: ReversalModel, null: Callable[[ReversalModel], ReversalModel], kept: set[str]
) -> None:
    found = claims(null(trained))
    assert len(found) >= 3 and {claim.statement for claim in found if claim.holds} == kept
