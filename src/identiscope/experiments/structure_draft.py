"""The structure-aware draft, and Bhardwaj et al. (2021) as it cites them: their figures and claims, run again.

What is run: `reproduce_structure`. What was published is in the claims; so is what came out.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from identiscope.experiments.identifiable_comparison import compare_attention
from identiscope.experiments.identifiable_training import TrainingRecipe
from identiscope.experiments.reversal import reversal_damage, reversal_perturbations, reversal_structure
from identiscope.experiments.reversal_model import ReversalConfig, reversal_accuracy, train_reversal
from identiscope.experiments.structure_perturbation import perturbation_effects
from identiscope.views.figures import Claim, Figure, Missing, Panel, percent

Progress = Callable[[float, str], None]


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
        if progress is not None:
            progress(number / len(parts), words)
        yield from make()
    if progress is not None:
        progress(1.0, "done")


def _reversal(budget: StructureBudget) -> Iterator[Figure]:
    model = train_reversal(budget.config, steps=budget.steps)
    accuracy = reversal_accuracy(model, seed=10_000)
    structure = reversal_structure(model, seed=20_000)
    data = f"random sequences of length {model.config.length}"
    share = float(np.trace(structure["mean"].values[:, ::-1])) / model.config.length
    yield Figure(
        "1", "Attention of the model that reverses", data, (Panel("map", structure),),
        (
            Claim("it reverses new sequences", "0.99 of tokens", f"{accuracy.tokens:.4f} of tokens",
                  accuracy.tokens >= 0.99),
            Claim("its map is antidiagonal", "yes", f"{structure.attrs['pattern']}; {percent([share])} of it there",
                  structure.attrs["pattern"] == "antidiagonal"),
        ),
    )  # fmt: skip
    thresholds = [float(value) for value in structure["threshold"].values]
    near = min(thresholds, key=lambda value: abs(value - 0.4))
    kept = percent([float(structure["antidiagonal_weight"].sel(threshold=near))])
    low, high = structure.attrs["stable_from"], structure.attrs["stable_to"]
    yield Figure(
        "2", "W over thresholds, from 100 samples", data,
        tuple(Panel(f"threshold-{value:g}", structure, None, {"threshold": value}) for value in thresholds),
        (
            Claim("l = 0.4 is near the best threshold", "0.4",
                  f"recommended {structure.attrs['recommended']:.2f}; W is the same from {low:.2f} to {high:.2f};"
                  f" {kept} of W on the antidiagonal at {near:g}",
                  low <= 0.4 <= high),
        ),
    )  # fmt: skip
    damage = reversal_damage(model, texts=budget.texts, seed=20_000)
    found = reversal_perturbations(model, texts=budget.texts, sets=budget.sets, seed=20_000)
    yield Figure(
        "perturbations, LSTM", "Noise that keeps and noise that breaks the structure", data,
        (Panel("damage", damage), Panel("prediction", found)), tuple(_perturbation_claims(found)),
    )  # fmt: skip


def _transformer(
    model: Any, texts: Sequence[Any] | None, head: tuple[int, int], budget: StructureBudget
) -> Iterator[Figure | Missing]:
    if not texts:
        yield Missing("perturbations, transformer", "--corpus")
        return
    given = list(texts)[: budget.perturbed]
    found = perturbation_effects(model, given, *head, sets=budget.sets, truncate=True)
    yield Figure(
        "perturbations, transformer", f"Which distance predicts the effect, layer {head[0]}, head {head[1]}",
        f"{len(given)} texts", (Panel("prediction", found),), tuple(_perturbation_claims(found)),
    )  # fmt: skip


def _perturbation_claims(found: xr.Dataset) -> Iterator[Claim]:
    outcome = str(found["outcome"].values[-1])
    one = found.sel(outcome=outcome)
    ratio, low = float(one["break_over_keep"]), float(one["break_over_keep_low"])
    yield Claim(
        f"breaking the structure hurts far more than keeping it, at equal size ({outcome.replace('_', ' ')})", "yes",
        f"{ratio:.1f} times (95 % from {low:.1f})", low > 1,
    )  # fmt: skip
    correlation = {str(name): float(one["correlation"].sel(distance=name)) for name in found["distance"].values}
    others = {name: value for name, value in correlation.items() if name != "structure"}
    best = max(others, key=lambda name: others[name])
    # The bound on the difference to ‖·‖_S: negative throughout means that the other predicts worse.
    behind = float(one["difference_high"].sel(distance=best)) < 0
    ahead = float(one["difference_low"].sel(distance=best)) > 0
    yield Claim(
        "‖·‖_S predicts the effect better than every other distance", "yes",
        f"Spearman {correlation['structure']:.2f}; the best other, {best}, {others[best]:.2f}",
        True if behind else False if ahead else None,
    )  # fmt: skip


def _classifiers(labelled: Sequence[tuple[str, str]] | None, budget: StructureBudget) -> Iterator[Figure | Missing]:
    if not labelled:
        yield Missing("identifiable attention", "--labelled")
        return
    given = list(labelled)[: budget.labelled]
    found = compare_attention(given, seeds=range(budget.seeds), recipe=TrainingRecipe(epochs=budget.epochs))
    holds = {"holds": True, "does not hold": False}
    claims = tuple(
        Claim(
            f"{name}: more identifiable, equally accurate", "yes",
            f"accuracy {percent([float(found['accuracy_mean'].sel(variant=name))])} against"
            f" {percent([float(found['accuracy_mean'].isel(variant=0))])}: {found['answer'].sel(variant=name).item()};"
            f" smaller: {found['more_identifiable'].sel(variant=name).item()}",
            holds.get(str(found["claim"].sel(variant=name).item())),
        )
        for name in found["variant"].values[1:]
    )  # fmt: skip
    panels = tuple(
        Panel(name.replace("_", "-"), found, None, {"values": name})
        for name in ("accuracy", "difference", "simplex_null_dimension", "realisable_dimension")
    )
    yield Figure("identifiable attention", "Text classifiers with regular and identifiable attention",
                 f"{len(given)} labelled texts, {budget.seeds} seeds", panels, claims)  # fmt: skip
