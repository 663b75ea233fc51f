"""What the structure-aware draft says, or expects, and Bhardwaj et al. (2021), judged by the numbers alone."""

from collections.abc import Iterator

import numpy as np
import xarray as xr

from identiscope.papers.judging import Answer, Array, Estimate, above, all_of, below
from identiscope.views.plots.figures import EXPECTED, Claim, percent

#: The draft's threshold.
THRESHOLD = 0.4
#: A map is antidiagonal if more than this share of it lies there; a W, if nearly all of it does.
ANTIDIAGONAL, NEARLY_ALL = 0.5, 0.9
#: "Far more": so many times as much.
FAR_MORE = 2.0
#: The norms that the draft finds wanting.
PLAIN_NORMS = ("one", "infinity")


def map_claims(accuracy: float, mean: Array) -> Iterator[Claim]:
    """Fig. 1. accuracy: the share of tokens written right; mean [query, key]: the mean map of many sequences."""
    yield Claim(
        statement="an LSTM with attention learns to reverse sequences",
        source="§V",
        published="0.99 accuracy on the test set, after 150 epochs",
        rule="at least 0.985 of the tokens of new sequences, which rounds to that",
        here=f"{accuracy:.4f} of tokens",
        holds=accuracy >= 0.985,
    )
    share = float(np.trace(mean[:, ::-1])) / len(mean)
    yield Claim(
        statement="its attention is antidiagonal, as the task asks",
        source="§V, Fig. 1",
        published="“the structure is reflecting the task of reversing the sentence” (a picture)",
        rule=f"more than {100 * ANTIDIAGONAL:g} % of the mean map lies on the antidiagonal",
        here=f"{percent([share])}; a uniform map would have {percent([1 / len(mean)])}",
        holds=share > ANTIDIAGONAL,
    )


def threshold_claims(structure: xr.Dataset) -> Iterator[Claim]:
    """Fig. 2. structure: what `reversal_structure` gave."""
    thresholds = structure["threshold"].values
    near = float(thresholds[np.abs(thresholds - THRESHOLD).argmin()])
    one = structure.sel(threshold=near)
    kept, empty = float(one["antidiagonal_weight"]), float(one["empty_rows"])
    low, high = structure.attrs["stable_from"], structure.attrs["stable_to"]
    yield Claim(
        statement=f"a threshold of {THRESHOLD} finds the structure",
        source="§V, Fig. 2",
        published=f"l = {THRESHOLD} is a good approximation of the optimal value (a picture)",
        rule=f"{THRESHOLD} lies in the range within which W stays the same, W has no empty row there, and more than"
        f" {100 * NEARLY_ALL:g} % of it lies on the antidiagonal",
        here=f"the same from {low:.2f} to {high:.2f} (recommended {structure.attrs['recommended']:.2f}); at {near:g},"
        f" {percent([kept])} of W on the antidiagonal and {percent([empty])} of its rows empty",
        holds=bool(low <= THRESHOLD <= high and kept > NEARLY_ALL and empty == 0),
    )


def perturbation_claims(result: xr.Dataset) -> Iterator[Claim]:
    """What the draft argues for and does not measure. result: what `perturbation_effects` gave."""
    outcome = str(result["outcome"].values[-1])
    one = result.sel(outcome=outcome)
    ratio = Estimate(*(np.asarray(one[f"break_over_keep{end}"].values) for end in ("", "_low", "_high")))
    yield Claim(
        statement=f"breaking the structure changes the {outcome.replace('_', ' ')} far more than keeping it, at equal"
        " size",
        source="§III: “it is necessary to consider whether a perturbation disrupts the inherent structure”",
        published=EXPECTED,
        rule=f"more than {FAR_MORE:g} times as much, by the interval over texts and perturbations",
        here=f"{ratio.said('{:.2f}'.format)} times as much",
        holds=above(ratio, FAR_MORE),
    )
    correlation = {str(name): float(one["correlation"].sel(distance=name)) for name in result["distance"].values}
    others = {name: value for name, value in correlation.items() if name not in ("structure", "structure_cut")}
    best = max(others, key=lambda name: others[name])
    answers: list[Answer] = []
    for name in PLAIN_NORMS:
        difference = one.sel(distance=name)
        bounds = (np.asarray(difference[f"difference{end}"].values) for end in ("", "_low", "_high"))
        # Of the other norm's correlation minus that of ‖·‖_S; where no perturbation had an effect there is neither.
        known = np.isfinite([correlation[name], correlation["structure"]]).all()
        answers.append(below(Estimate(*bounds)) if known else None)
    yield Claim(
        statement="‖·‖_S tells better than ‖·‖_1 and ‖·‖_∞ how much a perturbation changes",
        source="§III-A: maps of the same norm may “encode entirely different information”",
        published=EXPECTED,
        rule="its rank correlation with the effect is above that of either, by the interval of the difference;"
        " undecided where there is no effect to correlate with in some text",
        here=f"‖·‖_S {correlation['structure']:.2f}; "
        + ", ".join(f"{name} {correlation[name]:.2f}" for name in PLAIN_NORMS)
        + f"; the best of all others, {best.replace('_', ' ')}, {others[best]:.2f}",
        holds=all_of(answers),
    )


def classifier_claims(result: xr.Dataset) -> Iterator[Claim]:
    """Bhardwaj et al. (2021), as the draft cites them. result: what `compare_attention` gave."""
    judged: dict[str, Answer] = {"holds": True, "does not hold": False}
    regular, sure, majority = (
        float(result["accuracy_mean"].isel(variant=0)), float(result["accuracy_low"].isel(variant=0)),
        float(result.attrs["majority"]),
    )  # fmt: skip
    for name in map(str, result["variant"].values[1:]):
        one = result.sel(variant=name)
        yield Claim(
            statement=f"{name}: more identifiable, equally accurate",
            source="Bhardwaj et al. (2021), title; §II-A of the draft",
            published="“more identifiable yet equally performant”",
            rule="the null space, or the room for maps that a softmax can make, is smaller at every length where the"
            " regular one is not empty; and the interval of the difference in accuracy, over seeds and texts, lies"
            f" within {100 * float(result.attrs['margin']):g} points or above 0. Undecided where regular attention does"
            " no better than the most frequent label",
            here=f"accuracy {percent([float(one['accuracy_mean'])])} against {percent([regular])}:"
            f" {one['answer'].item()}; the most frequent label {percent([majority])}; smaller:"
            f" {one['more_identifiable'].item()}",
            # Models that learnt nothing are equally accurate whatever their attention is.
            holds=judged.get(str(one["claim"].item())) if sure > majority else None,
        )
