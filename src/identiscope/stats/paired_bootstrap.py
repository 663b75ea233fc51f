"""Means over texts with their intervals, and methods compared in pairs on the same texts."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from identiscope.errors import InputError

Numbers = NDArray[np.float64]
#: Counts of draws that are held at a time.
_MOST = 2 * 10**7


@dataclass(frozen=True, eq=False)
class Means:
    """Of each method: the mean over the texts that it has a number for, bounds at a confidence, and how many."""

    mean: Numbers
    low: Numbers
    high: Numbers
    texts: NDArray[np.int64]


@dataclass(frozen=True)
class Pair:
    """Two methods on the texts that both have a number for: the mean difference, its interval, p, and p after Holm.

    decided: whether Holm's p is at most the level; else it is undecided which is better.
    """

    first: int
    second: int
    difference: float
    low: float
    high: float
    p: float
    adjusted: float
    decided: bool


def bootstrap_means(values: Numbers, *, resamples: int = 10_000, confidence: float = 0.95, seed: int = 0) -> Means:
    """Percentile bootstrap over texts of the mean of values [text, method]; NaN is not counted.

    >>> bootstrap_means(np.array([[1.0], [1.0]])).low
    array([1.])
    """
    given = _checked(values, confidence)
    known = np.isfinite(given)
    counts = known.sum(0)
    low, high, mean = (np.full(given.shape[1], np.nan) for _ in range(3))
    for place in np.flatnonzero(counts):
        column = given[known[:, place], place]
        mean[place] = column.mean()
        drawn = _resampled(column[:, None], resamples, seed)[:, 0]
        low[place], high[place] = _bounds(drawn, confidence)
    return Means(mean, low, high, counts)


def compared_pairs(
    values: Numbers, *, resamples: int = 10_000, confidence: float = 0.95, level: float = 0.05, seed: int = 0
) -> list[Pair]:
    """Every pair of methods [text, method], on the same texts: a paired bootstrap, p adjusted by Holm (1979).

    p is twice the share of resampled mean differences on the other side of zero, and never smaller than what turning
    the signs of the texts' differences could give, 2¹⁻ⁿ: from a few texts a bootstrap alone promises too much.

    >>> compared_pairs(np.array([[0.0, 1.0]] * 12))[0].decided
    True
    """
    given = _checked(values, confidence)
    methods = given.shape[1]
    pairs: list[Pair] = []
    for first in range(methods):
        for second in range(first + 1, methods):
            both = np.isfinite(given[:, first]) & np.isfinite(given[:, second])
            difference = given[both, first] - given[both, second]
            pairs.append(_pair(first, second, difference, resamples, confidence, seed))
    known = [pair for pair in pairs if pair.p == pair.p]
    adjusted = holm([pair.p for pair in known])
    by_place = {(pair.first, pair.second): value for pair, value in zip(known, adjusted, strict=True)}
    return [
        Pair(pair.first, pair.second, pair.difference, pair.low, pair.high, pair.p, corrected, corrected <= level)
        for pair in pairs
        for corrected in [by_place.get((pair.first, pair.second), float("nan"))]
    ]


def _pair(first: int, second: int, difference: Numbers, resamples: int, confidence: float, seed: int) -> Pair:
    nan = float("nan")
    if len(difference) < 2:
        mean = float(difference.mean()) if len(difference) else nan
        return Pair(first, second, mean, nan, nan, nan, nan, False)
    drawn = _resampled(difference[:, None], resamples, seed)[:, 0]
    low, high = _bounds(drawn, confidence)
    side = min((drawn <= 0).sum(), (drawn >= 0).sum())
    fewest = 2.0 ** (1 - np.count_nonzero(difference)) if difference.any() else 1.0
    p = min(1.0, max(2 * (side + 1) / (len(drawn) + 1), fewest))
    return Pair(first, second, float(difference.mean()), low, high, float(p), nan, False)


def holm(p: list[float]) -> list[float]:
    """p values adjusted for their number by Holm's steps down.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p, kind="stable")
    adjusted, before = [0.0] * len(p), 0.0
    for place, index in enumerate(order):
        before = max(before, min(1.0, (len(p) - place) * p[index]))
        adjusted[index] = before
    return adjusted


def _resampled(values: Numbers, resamples: int, seed: int) -> Numbers:
    """Means [resample, column] of values [text, column] whose texts are drawn anew."""
    means: Numbers = _draws(len(values), resamples, seed) @ values / len(values)
    return means


@lru_cache(maxsize=4)
def _draws(count: int, resamples: int, seed: int) -> Numbers:
    """How often each of so many texts is drawn, [resample, text]: the same for all that is compared on them."""
    # Of a great many texts fewer resamples say as much, and memory stays small.
    some = max(1000, min(resamples, _MOST // count))
    generator = np.random.default_rng(seed)
    return generator.multinomial(count, np.full(count, 1 / count), size=some).astype(np.float64)


def _bounds(drawn: Numbers, confidence: float) -> tuple[float, float]:
    tail = (1 - confidence) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return float(low), float(high)


def _checked(values: Numbers, confidence: float) -> Numbers:
    given = np.asarray(values, np.float64)
    if given.ndim != 2 or not 0 < confidence < 1:
        raise InputError(
            f"values of shape {given.shape} at confidence {confidence} were given; expected [text, method] and a"
            " confidence between 0 and 1."
        )
    return given
