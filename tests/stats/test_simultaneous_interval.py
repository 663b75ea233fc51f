"""Intervals of many means: as wide as Student's, and together as sure as stated."""

import math

import numpy as np
import pytest
from scipy.integrate import quad

from identiscope.stats.simultaneous_interval import simultaneous_interval


def density(x: float, degrees: int) -> float:
    scale = math.gamma((degrees + 1) / 2) / (math.sqrt(degrees * math.pi) * math.gamma(degrees / 2))
    return scale * (1 + x * x / degrees) ** (-(degrees + 1) / 2)


@pytest.mark.parametrize(("count", "comparisons"), [(3, 1), (8, 10), (40, 300)])
def test_the_tails_have_their_share(count: int, comparisons: int) -> None:
    low, high = simultaneous_interval(2.0, 0.5, count, comparisons)
    tail, _ = quad(density, (float(high) - 2) / 0.5, np.inf, args=(count - 1,))
    assert 2 * tail * comparisons == pytest.approx(0.05, rel=1e-5)
    assert float(high) - 2 == pytest.approx(2 - float(low))


def test_all_hold_together_as_often_as_stated() -> None:
    generator, misses = np.random.default_rng(0), 0
    for _ in range(400):
        numbers = generator.normal(size=(5, 20))
        low, high = simultaneous_interval(numbers.mean(0), numbers.std(0, ddof=1) / 5**0.5, np.full(20, 5), 20)
        misses += bool(((low > 0) | (high < 0)).any())
    assert misses / 400 < 0.08


def test_of_one_number_nothing_is_known() -> None:
    low, high = simultaneous_interval(np.array([1.0, np.nan]), np.array([np.nan, np.nan]), np.array([1, 0]), 2)
    assert low[0] == -np.inf and high[0] == np.inf
