"""How far two answers to one question are apart."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from identiscope.linalg.tolerance import SAME_ANSWER, VARIANCE_FLOOR
from identiscope.stats.rank_correlation import spearman

Numbers = NDArray[np.float64]

#: The rule of every verdict on two descriptions of the same computation.
RULE = (
    f"an answer survives if no description moves it by more than {SAME_ANSWER:g} (total variation of shares, of the"
    " score and of every row) and its strongest token stays the strongest, or gives way to one that was as strong but"
    f" for {SAME_ANSWER:.0%}"
)
#: Draws from which is told what chance has.
_DRAWN = 2000
#: What an answer has that does not move at all.
CEILING = {"change": 0.0, "top_survives": 1.0}


@dataclass(frozen=True)
class Change:
    """How far a second answer is from a first one.

    total_variation: of the scores as shares of their sizes, between 0 and 1. rank_correlation: Spearman's, of the sizes
    of the scores; not a number where one of them does not vary. top_survives: the strongest input is still the
    strongest. row_…: of the answer on its own axes, row by row: the largest and the mean total variation, and the share
    of rows whose strongest token stays. merged_…: with what is said of equal tokens added up. relative: ‖change‖ over
    the length of the answer on its own axes.
    """

    total_variation: float
    rank_correlation: float
    top_survives: float
    merged_total_variation: float
    merged_top_survives: float
    row_total_variation: float
    row_mean_total_variation: float
    row_top_survives: float
    merged_row_total_variation: float
    merged_row_top_survives: float
    relative: float

    @property
    def survives(self) -> bool:
        """By `RULE`."""
        stays = self.top_survives == 1 and self.row_top_survives == 1
        return stays and max(self.total_variation, self.row_total_variation) <= SAME_ANSWER

    @property
    def merged_survives(self) -> bool:
        """By `RULE`, with equal tokens added up: what goes from one copy to another means nothing to a reader."""
        stays = self.merged_top_survives == 1 and self.merged_row_top_survives == 1
        return stays and max(self.merged_total_variation, self.merged_row_total_variation) <= SAME_ANSWER


def change(before: Numbers, after: Numbers, rows: tuple[Numbers, Numbers], groups: NDArray[np.int64]) -> Change:
    """Compare two scores [input], and two answers on axes of their own, tokens last; groups [input]: equal tokens.

    >>> once, twice = np.array([0.75, 0.25]), np.array([0.25, 0.75])
    >>> change(once, twice, (once, twice), np.array([0, 0])).total_variation
    0.5
    """
    both = np.isfinite(before) & np.isfinite(after)
    one, other = before[both], after[both]
    first, second = (_added(values, groups[both]) for values in (one, other))
    apart, stays = row_variation(*rows), tops_survive(*rows)
    # Rows are of one stream, the last of those that scores are of.
    merged = [_added(some, groups[len(groups) - some.shape[-1] :]) for some in rows]
    size = float(np.linalg.norm(rows[0]))
    moved = float(np.linalg.norm(rows[1] - rows[0]))
    return Change(
        total_variation=float(row_variation(one, other)),
        rank_correlation=spearman(np.abs(one), np.abs(other), floor=VARIANCE_FLOOR),
        top_survives=float(tops_survive(one, other)),
        merged_total_variation=float(row_variation(first, second)),
        merged_top_survives=float(tops_survive(first, second)),
        row_total_variation=float(apart.max()),
        row_mean_total_variation=float(apart.mean()),
        row_top_survives=float(stays.mean()),
        merged_row_total_variation=float(row_variation(*merged).max()),
        merged_row_top_survives=float(tops_survive(*merged).mean()),
        relative=moved / size if size > 0 else float("nan") if moved else 0.0,
    )


def scores_compared(before: Numbers, after: Numbers, groups: NDArray[np.int64]) -> Change:
    """Compare two scores [input] alone."""
    known = np.isfinite(before) & np.isfinite(after)
    return change(before[known], after[known], (before[known], after[known]), groups[known])


def chance(inputs: int, asked: int, seed: int, groups: NDArray[np.int64] | None = None) -> dict[str, float]:
    """What a scorer has on average that draws its scores anew whenever it is asked again: the largest change of so many
    times, and whether its strongest input stays every time. groups [input]: equal tokens, whose scores are added up."""
    drawn = np.random.default_rng((seed, inputs)).random((_DRAWN, 1 + asked, inputs))
    drawn = drawn if groups is None else _added(drawn, groups)
    first, others = np.broadcast_to(drawn[:, :1], drawn[:, 1:].shape), drawn[:, 1:]
    stays = tops_survive(first, others).all(1)
    return {"change": float(row_variation(first, others).max(1).mean()), "top_survives": float(stays.mean())}


def row_variation(before: Numbers, after: Numbers) -> Numbers:
    """½·Σ|share − share'| of rows [..., token], a share being a number over the sum of sizes; in [0, 1].

    A row of nothing is as far as can be from one of something.
    """
    one, other = _shares(before), _shares(after)
    nothing = (before == 0).all(-1) != (after == 0).all(-1)
    apart: Numbers = np.where(nothing, 1.0, 0.5 * np.abs(one - other).sum(-1))
    return apart


def tops_survive(before: Numbers, after: Numbers) -> NDArray[np.bool_]:
    """Whether the strongest token of each row [..., token] stays the strongest, by size.

    One that was as strong, but for a share of that which counts as the same answer, may take its place.
    """
    sizes, strongest = np.abs(before), np.abs(after).argmax(-1)
    taken = np.take_along_axis(sizes, strongest[..., None], -1)[..., 0]
    stays: NDArray[np.bool_] = taken >= (1 - SAME_ANSWER) * sizes.max(-1)
    return stays


def _shares(rows: Numbers) -> Numbers:
    sizes = np.abs(rows).sum(-1, keepdims=True)
    shares: Numbers = np.divide(rows, sizes, out=np.zeros_like(rows), where=sizes > 0)
    return shares


def _added(scores: Numbers, groups: NDArray[np.int64]) -> Numbers:
    """Scores [..., token] of equal tokens added up, [..., group]."""
    together: Numbers = scores @ np.eye(int(groups.max(initial=0)) + 1)[groups]
    return together
