"""The reproduction of the structure-aware draft end to end, on a small model that reverses and a few texts."""

import pytest

import identiscope
from identiscope.papers.structure_draft.reproduce import StructureBudget, reproduce_structure
from identiscope.papers.structure_draft.reversal_model import ReversalConfig
from identiscope.views.plots.figures import Figure, Missing

BUDGET = StructureBudget(
    steps=250, texts=2, sets=4, perturbed=2, seeds=2, epochs=1, config=ReversalConfig(length=6, vocabulary=6, width=32)
)
TEXTS = ["The cat sat on the mat.", "My old neighbour lost the keys to the house."]


@pytest.fixture(scope="module")
def made(minilm: identiscope.Model) -> list[Figure | Missing]:
    labelled = [(f"the {word} {place}", word) for place in range(12) for word in ("dog", "cat")]
    return list(reproduce_structure(minilm, TEXTS, labelled, budget=BUDGET))


def test_every_figure_is_made_with_its_claims(made: list[Figure | Missing]) -> None:
    assert [one.number for one in made] == [
        "1", "2", "perturbations, LSTM", "perturbations, transformer", "identifiable attention",
    ]  # fmt: skip
    assert all(isinstance(one, Figure) and one.panels and one.claims for one in made)


def test_claims_follow_from_the_numbers(made: list[Figure | Missing]) -> None:
    first = made[0]
    assert isinstance(first, Figure)
    claim = first.claims[1]
    assert claim.holds == (first.panels[0].result.attrs["pattern"] == "antidiagonal")
    accuracy = float(first.claims[0].here.split()[0])
    assert first.claims[0].holds == (accuracy >= 0.99)
    assert accuracy > 0.5


def test_w_comes_from_other_texts_than_those_perturbed(made: list[Figure | Missing]) -> None:
    figure = made[3]
    assert isinstance(figure, Figure) and figure.data == "1 texts, W from 1 others"
    found = figure.panels[0].result.attrs
    assert (found["texts"], found["structure_texts"]) == (1, 1)
    assert {claim.published for claim in figure.claims} == {"expected, not measured"}


def test_what_lacks_data_says_so(minilm: identiscope.Model) -> None:
    made = list(reproduce_structure(minilm, None, budget=BUDGET))
    assert [(one.number, one.needs) for one in made if isinstance(one, Missing)] == [
        ("perturbations, transformer", "--corpus"), ("identifiable attention", "--labelled"),
    ]  # fmt: skip
