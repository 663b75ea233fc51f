"""Where to cut: what each threshold keeps of a mean map, and the one that splits its weights best."""

from dataclasses import dataclass

import numpy as np

from identiscope.errors import InputError

#: A threshold is as good as the best if it explains this share of what the best explains.
AS_GOOD = 0.95

#: Share of rows that may be left without a cell: the first token has no previous one, and [CLS] ways of its own.
MOST_EMPTY = 0.1


@dataclass(frozen=True, eq=False)
class ThresholdSweep:
    """What thresholds [threshold] keep, and the one recommended.

    `cells` is the share of cells kept, `weight` the share of all attention on them, `empty_rows` the share of rows
    that keep no cell, `separation` the share of the variance of the weights that the two groups explain (Otsu's
    criterion, 0 to 1). From `stable_from` to `stable_to` a threshold separates as well, within 5 %. `limited` says
    that a higher threshold would separate clearly better but leave too many rows empty.
    """

    thresholds: np.ndarray
    cells: np.ndarray
    weight: np.ndarray
    empty_rows: np.ndarray
    separation: np.ndarray
    recommended: float
    best_separation: float
    stable_from: float
    stable_to: float
    limited: bool
    reason: str


def structure_threshold(
    weights: np.ndarray,
    counts: np.ndarray | None = None,
    row_maxima: np.ndarray | None = None,
    *,
    thresholds: np.ndarray | None = None,
    empty: float = MOST_EMPTY,
) -> ThresholdSweep:
    """Sweep l of Cut_l over mean weights, and recommend one.

    `weights`: a mean map [query, key], or the means of classes of cells [class] with the number of cells `counts` in
    each and the largest weight `row_maxima` of every row. The recommended l splits the weights into two groups,
    structure and background, with the largest variance between them (Otsu 1979), among those that leave at most a
    share `empty` of the rows without a cell: a row of attention always looks somewhere, and W should say where. It
    lies in the middle between the two weights that it parts.

    >>> mean = np.array([[0.9, 0.1], [0.2, 0.8]])
    >>> round(structure_threshold(mean).recommended, 6)
    0.5
    """
    values = np.asarray(weights, dtype=np.float64)
    if values.ndim == 2 and counts is None:
        row_maxima = values.max(1) if row_maxima is None else row_maxima
    elif values.ndim != 1 or counts is None or row_maxima is None or np.shape(counts) != values.shape:
        raise InputError(
            f"weights of shape {values.shape} were given; expected a map [query, key], or the means of classes [class]"
            " with their counts and the largest weight of every row"
        )
    values, numbers = values.ravel(), np.ones(values.size) if counts is None else np.asarray(counts, dtype=np.float64)
    if not values.size or not np.isfinite(values).all() or values.min() < 0:
        raise InputError("weights that are not negative and finite were expected: the mean of attention maps")
    maxima = np.asarray(row_maxima, dtype=np.float64)
    splits = _Splits(values, numbers)
    if not 0 <= empty < 1:
        raise InputError(f"a share of empty rows of {empty} was given, expected one from 0 to below 1")
    limit = float(np.sort(maxima)[int(empty * maxima.size)]) if maxima.size else np.inf
    possible = splits.high <= limit
    grid = _grid(values) if thresholds is None else np.asarray(thresholds, dtype=np.float64)
    best = int(np.argmax(np.where(possible, splits.separation, -1))) if possible.any() else -1
    if best < 0:
        chosen, explained, low, high = float(values.min()), 0.0, 0.0, float(values.min())
        reason = "any cut would leave rows without a cell: the weights show no structure, and all are kept"
    else:
        chosen, explained = float(splits.low[best] + splits.high[best]) / 2, float(splits.separation[best])
        low, high = splits.stable(best, possible)
        reason = (
            f"splits the weights into two groups that explain {explained:.0%} of their variance (Otsu);"
            f" any l from {low:.3g} to {high:.3g} does within 5 % as well"
        )
    limited = bool((AS_GOOD * splits.separation[~possible] > explained).any())
    if limited and best >= 0:
        reason += "; a higher l would part them better, but leave more rows without a cell"
    kept = [values >= one for one in grid]
    total = float((numbers * values).sum())
    return ThresholdSweep(
        thresholds=grid,
        cells=np.array([numbers[one].sum() for one in kept]) / numbers.sum(),
        weight=np.array([(numbers * values)[one].sum() for one in kept]) / (total if total > 0 else 1.0),
        empty_rows=np.array([(maxima < one).mean() if maxima.size else 0.0 for one in grid]),
        separation=np.array([splits.at(one) for one in grid]),
        recommended=chosen,
        best_separation=explained,
        stable_from=low,
        stable_to=high,
        limited=limited,
        reason=reason,
    )


def _grid(values: np.ndarray, count: int = 41) -> np.ndarray:
    """From nothing to all cut away, evenly."""
    grid: np.ndarray = np.linspace(0, float(values.max()), count)
    return grid


class _Splits:
    """Every way to split weights in two by size: `low` and `high` are the weights on both sides of the cut."""

    def __init__(self, values: np.ndarray, numbers: np.ndarray) -> None:
        distinct, place = np.unique(values, return_inverse=True)
        counts = np.bincount(place, weights=numbers)
        below, total = np.cumsum(counts)[:-1], counts.sum()
        sums = np.cumsum(counts * distinct)
        mean = sums[-1] / total
        variance = float((counts * (distinct - mean) ** 2).sum() / total)
        self.low, self.high = distinct[:-1], distinct[1:]
        above = total - below
        gap = (sums[-1] - sums[:-1]) / above - sums[:-1] / below
        between = below * above / total**2 * gap**2
        self.separation: np.ndarray = between / variance if variance > 0 else np.zeros_like(between)

    def at(self, threshold: float) -> float:
        """The separation of one threshold; 0 where all weights are on one side."""
        place = int(np.searchsorted(self.high, threshold))
        inside = place < len(self.high) and threshold > self.low[place]
        return float(self.separation[place]) if inside else 0.0

    def stable(self, best: int, possible: np.ndarray) -> tuple[float, float]:
        """The range of thresholds around the best that separate within 5 % as well."""
        good = possible & (self.separation >= AS_GOOD * self.separation[best])
        first = last = best
        while first > 0 and good[first - 1]:
            first -= 1
        while last + 1 < len(good) and good[last + 1]:
            last += 1
        return float(self.low[first]), float(self.high[last])
