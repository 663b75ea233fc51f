"""The structure-aware draft, and Bhardwaj et al. (2021) as it cites them: their figures and claims, run again.

What is run: `reproduce_structure`. What was published is in the claims; so is what came out.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from identiscope.capture import load
from identiscope.errors import InputError
from identiscope.papers.bhardwaj2021.comparison import compare_attention
from identiscope.papers.bhardwaj2021.training import TrainingRecipe
from identiscope.papers.structure_draft.claims import (
    classifier_claims,
    map_claims,
    perturbation_claims,
    threshold_claims,
)
from identiscope.papers.structure_draft.corpus_structure import corpus_structure
from identiscope.papers.structure_draft.perturbation import perturbation_effects
from identiscope.papers.structure_draft.reversal import reversal_damage, reversal_perturbations, reversal_structure
from identiscope.papers.structure_draft.reversal_model import (
    ReversalConfig,
    ReversalModel,
    reversal_accuracy,
    train_reversal,
    untrained_reversal,
)
from identiscope.papers.untrained import beside_null, beside_untrained
from identiscope.progress import Progress, tell
from identiscope.views.plots.figures import Figure, Missing, Panel


@dataclass(frozen=True)
class StructureBudget:
    """Steps of training the model that reverses, sequences and sets of perturbations, trainings of each classifier."""

    steps: int = 1000
    texts: int = 20
    sets: int = 20
    perturbed: int = 12
    seeds: int = 5
    epochs: int = 8
    labelled: int | None = None
    config: ReversalConfig | None = None


#: From so many texts other than those that are perturbed W is taken, if there are as many.
STRUCTURE_TEXTS = 60

QUICK_STRUCTURE = StructureBudget(texts=6, sets=8, perturbed=4, seeds=3, epochs=6, labelled=3000)


def reproduce_structure(
    model: Any,
    texts: Sequence[Any] | None,
    labelled: Sequence[tuple[str, str]] | None = None,
    *,
    head: tuple[int, int] = (1, 5),
    budget: StructureBudget | None = None,
    progress: Progress | None = None,
) -> Iterator[Figure | Missing]:
    """The figures one after the other.

    model, texts: of a transformer whose `head` (layer, head) is perturbed, as the draft's second model. labelled:
    (text, label) pairs to train classifiers on.
    """
    budget = budget or StructureBudget()
    parts: list[tuple[str, Callable[[], Iterator[Figure | Missing]]]] = [
        ("the model that reverses", lambda: _reversal(budget)),
        ("perturbations of a transformer", lambda: _transformer(model, texts, head, budget)),
        ("identifiable attention", lambda: _classifiers(labelled, budget)),
    ]
    for number, (words, make) in enumerate(parts):
        tell(progress, words, number, len(parts))
        yield from make()
    tell(progress, "done", len(parts), len(parts))


def _reversal(budget: StructureBudget) -> Iterator[Figure | Missing]:
    model = train_reversal(budget.config, steps=budget.steps)
    return beside_null(
        reversal_figures(model, budget),
        lambda: untrained_reversal(model.config, seed=1),
        lambda null: reversal_figures(null, budget),
    )


def reversal_figures(model: ReversalModel, budget: StructureBudget) -> Iterator[Figure | Missing]:
    """What section V of the draft shows, of a model that was trained to reverse or of any other of its class."""
    accuracy = reversal_accuracy(model, seed=10_000)
    structure = reversal_structure(model, seed=20_000)
    data = f"random sequences of length {model.config.length}"
    yield Figure(
        "1", "Attention of the model that reverses", data, (Panel("map", structure),),
        tuple(map_claims(accuracy.tokens, structure["mean"].values)),
    )  # fmt: skip
    thresholds = [float(value) for value in structure["threshold"].values]
    yield Figure(
        "2", "W over thresholds, from 100 samples", data,
        tuple(Panel(f"threshold-{value:g}", structure, None, {"threshold": value}) for value in thresholds),
        tuple(threshold_claims(structure)),
    )  # fmt: skip
    try:
        damage = reversal_damage(model, texts=budget.texts, seed=20_000)
        effects = reversal_perturbations(model, texts=budget.texts, sets=budget.sets, seed=20_000)
    except InputError:  # of a map without a structure, none can be kept or broken
        yield Missing("perturbations, LSTM", "attention with a structure")
        return
    yield Figure(
        "perturbations, LSTM", "Noise that keeps and noise that breaks the structure", data,
        (Panel("damage", damage), Panel("prediction", effects)), tuple(perturbation_claims(effects)),
    )  # fmt: skip


def _transformer(
    model: Any, texts: Sequence[Any] | None, head: tuple[int, int], budget: StructureBudget
) -> Iterator[Figure | Missing]:
    if not texts or len(texts) < 2:
        yield Missing("perturbations, transformer", "--corpus" if not texts else "a corpus of two texts or more")
        return
    # W from other texts than those that are perturbed: their own would favour their own structure.
    count = min(budget.perturbed, len(texts) // 2)
    given, others = list(texts)[:count], list(texts)[count : count + STRUCTURE_TEXTS]

    def make(of: Any) -> Iterator[Figure]:
        structure = corpus_structure(
            of, others, layers=[head[0]], layout="aligned", representatives=len(others) >= STRUCTURE_TEXTS // 2,
            truncate=True,
        )  # fmt: skip
        found = perturbation_effects(of, given, *head, structure=structure, sets=budget.sets, truncate=True)
        yield Figure(
            "perturbations, transformer", f"Which distance predicts the effect, layer {head[0]}, head {head[1]}",
            f"{len(given)} texts, W from {len(others)} others", (Panel("prediction", found),),
            tuple(perturbation_claims(found)),
        )  # fmt: skip

    loaded = load(model)
    yield from beside_untrained(make(loaded), loaded, make)


def _classifiers(labelled: Sequence[tuple[str, str]] | None, budget: StructureBudget) -> Iterator[Figure | Missing]:
    if not labelled:
        yield Missing("identifiable attention", "--labelled")
        return
    given = list(labelled)[: budget.labelled]
    comparison = compare_attention(given, seeds=range(budget.seeds), recipe=TrainingRecipe(epochs=budget.epochs))
    panels = tuple(
        Panel(name.replace("_", "-"), comparison, None, {"values": name})
        for name in ("accuracy", "difference", "simplex_null_dimension", "realisable_dimension")
    )
    yield Figure("identifiable attention", "Text classifiers with regular and identifiable attention",
                 f"{len(given)} labelled texts, {budget.seeds} seeds", panels,
                 tuple(classifier_claims(comparison)))  # fmt: skip
