"""From numbers to "holds", "does not hold" or "undecided": estimates with an interval, and what follows from them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Answer = bool | None

#: From fewer texts a bootstrap says next to nothing of how they vary: the interval is left open.
FEWEST_TEXTS = 6
RESAMPLES = 500
CONFIDENCE = 0.95


@dataclass(frozen=True, eq=False)
class Estimate:
    """A statistic of some texts, of any shape, with the bounds within which other texts would put it (95 %).

    Bounds are infinite where there are too few texts to tell.
    """

    value: Array
    low: Array
    high: Array

    def said(self, write: Callable[[float], str] = "{:.3g}".format) -> str:
        """A single statistic in words: "0.31 (0.28 to 0.33)"."""
        value, low, high = (write(float(part)) for part in (self.value, self.low, self.high))
        if not np.isfinite([self.low, self.high]).all():
            return f"{value} (too few texts for an interval)"
        return value if low == value == high else f"{value} ({low} to {high})"


def estimated(value: Any, resampled: Any) -> Estimate:
    """A statistic and its values [resample, …] on resampled texts; bounds are their percentiles."""
    value, resampled = np.asarray(value, np.float64), np.asarray(resampled, np.float64)
    low, high = np.full(value.shape, -np.inf), np.full(value.shape, np.inf)
    # A statistic that is undefined for some resamples is not sure of anything.
    known = np.isfinite(resampled).all(0) if len(resampled) else np.zeros(value.shape, bool)
    tail = (1 - CONFIDENCE) / 2
    if known.any():
        bounds = np.quantile(resampled[:, known] if value.ndim else resampled, [tail, 1 - tail], axis=0)
        low[known], high[known] = bounds
    return Estimate(value, low, high)


def bootstrap(texts: int, statistic: Callable[[NDArray[np.int64]], Any], *, seed: int = 0) -> Estimate:
    """A statistic of texts, given by their places (which may repeat), with its bounds from drawing texts anew.

    >>> bootstrap(9, lambda places: np.arange(9.0)[places].mean()).value
    array(4.)
    """
    return estimate_of(drawn(texts, statistic, seed=seed))


def drawn(texts: int, statistic: Callable[[NDArray[np.int64]], Any], *, seed: int = 0) -> Array:
    """A statistic of all texts, and then of texts drawn anew, [1 + resample, …]; of all alone if they are few."""
    values = [statistic(np.arange(texts))]
    if texts >= FEWEST_TEXTS:
        generator = np.random.default_rng(seed)
        values += [statistic(generator.integers(texts, size=texts)) for _ in range(RESAMPLES)]
    return np.array(values, np.float64)


def estimate_of(values: Array) -> Estimate:
    """From what `drawn` gave, or what was computed from each of it, such as differences."""
    return estimated(values[0], values[1:])


def above(estimate: Estimate, threshold: float = 0.0) -> Answer:
    """Whether all of it is above a threshold: yes if every lower bound is, no if any upper bound is not."""
    return all_of(
        True if low > threshold else False if high <= threshold else None
        for low, high in zip(estimate.low.ravel(), estimate.high.ravel(), strict=True)
    )


def below(estimate: Estimate, threshold: float = 0.0) -> Answer:
    """Whether all of it is below a threshold."""
    return above(Estimate(-estimate.value, -estimate.high, -estimate.low), -threshold)


def between(estimate: Estimate, low: float, high: float) -> Answer:
    """Whether all of it lies between two bounds: yes if every interval does, no if any lies outside of them."""
    return all_of(
        True if low <= least and most <= high else False if most < low or least > high else None
        for least, most in zip(estimate.low.ravel(), estimate.high.ravel(), strict=True)
    )


def all_of(answers: Iterable[Answer]) -> Answer:
    """No if any is no, else undecided if any is; undecided if there are none.

    >>> all_of([True, None]), all_of([None, False]), all_of([True])
    (None, False, True)
    """
    given = list(answers)
    if any(answer is False for answer in given):
        return False
    return True if given and all(answer is True for answer in given) else None
