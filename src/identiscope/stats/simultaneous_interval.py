"""Intervals of many means at once: all of them hold together with the confidence that is stated."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

Array = NDArray[np.float64]


def simultaneous_interval(
    mean: Any, error: Any, count: Any, comparisons: int, confidence: float = 0.95
) -> tuple[Array, Array]:
    """mean ± t·error, t being Student's for this many numbers at 1 − (1 − confidence) ÷ comparisons (Bonferroni).

    mean, error, count: of any one shape. Of fewer than two numbers the interval is everything.

    >>> low, high = simultaneous_interval(1.0, 0.1, 30, 1)
    >>> round(float(low), 3), round(float(high), 3)
    (0.795, 1.205)
    """
    mean, error, count = (np.asarray(one, np.float64) for one in (mean, error, count))
    known = (count > 1) & np.isfinite(error)
    times = student.ppf(1 - (1 - confidence) / (2 * max(comparisons, 1)), np.where(known, count - 1, 1))
    width = np.where(known, times * np.where(known, error, 0.0), np.inf)
    return mean - width, mean + width
