"""Sums and statistics that do not depend on the order or the grouping: against fractions, to the bit."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from identiscope.runs.format.statistics import BINS, Column, from_arrays, no_statistics, statistics_of
from identiscope.stats.exact_sums import FRACTION_BITS, exact_sum, fractions, merged, rounded

numbers = st.floats(-1e15, 1e15, allow_nan=False)
columns = (Column("a", "", -2, 3), Column("b", "", 0, 100, whole=True))


@given(st.lists(numbers, min_size=1, max_size=40), st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_sums_are_exact_in_any_order(values: list[float], chance: object) -> None:
    whole = exact_sum(np.array(values))
    found = fractions(whole).item()
    # Each number is rounded down once, to a multiple of the unit.
    unit = 1 << FRACTION_BITS
    assert found == sum(Fraction(Fraction(value) * unit // 1, unit) for value in values)
    chance.shuffle(values)  # type: ignore[attr-defined]
    cut = len(values) // 3
    parts = [np.array(part) for part in (values[:cut], values[cut:]) if part]
    sums = [exact_sum(part) for part in parts]
    together = merged(sums[0], sums[1]) if len(sums) == 2 else sums[0]
    assert np.array_equal(together, whole)


def test_what_ordinary_sums_lose() -> None:
    values = np.array([1e16, 1.0, -1e16, 2.0**-40])
    assert float(rounded(exact_sum(values))) == 1 + 2.0**-40
    assert values.sum() != 1 + 2.0**-40
    for bad in (np.array([np.nan]), np.array([np.inf]), np.array([2.0**64])):
        with pytest.raises(ValueError, match="finite"):
            exact_sum(bad)


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 7), min_size=1, max_size=6))
@settings(max_examples=40, deadline=None)
def test_statistics_of_shards_from_anywhere_are_those_of_the_whole(seed: int, sizes: list[int]) -> None:
    chance = np.random.default_rng(seed)
    shape = (sum(sizes), 2, 3)
    values = {"a": chance.standard_normal(shape), "b": chance.integers(0, 100, shape).astype(float)}
    values["a"][chance.random(shape) < 0.2] = np.nan
    whole = statistics_of(columns, values)
    bounds = np.cumsum([0, *sizes])
    parts = [
        statistics_of(columns, {name: array[begin:end] for name, array in values.items()})
        for begin, end in pairwise(bounds)
    ]
    total = no_statistics(columns, (2, 3))
    for number in chance.permutation(len(parts)):
        total = total.merge(from_arrays(("a", "b"), parts[number].arrays()))
    for name, array in whole.arrays().items():
        assert np.array_equal(total.arrays()[name], array), name
    known = ~np.isnan(values["a"])
    assert np.array_equal(whole.count[0], known.sum(0)) and whole.histogram[0].sum() == known.sum()
    some, several = known.any(0), known.sum(0) > 1
    mean = np.where(known, values["a"], 0).sum(0) / np.maximum(known.sum(0), 1)
    np.testing.assert_allclose(whole.mean[0][some], mean[some], rtol=1e-12, atol=1e-14)
    assert np.isnan(whole.mean[0][~some]).all()
    spread = np.where(known, (values["a"] - mean) ** 2, 0).sum(0)
    variance = spread[several] / (known.sum(0)[several] - 1)
    np.testing.assert_allclose(whole.variance[0][several], variance, rtol=1e-10)
    with pytest.raises(ValueError, match="do not merge"):
        total.merge(no_statistics(columns[:1], (2, 3)))


def test_a_variance_that_cancels_in_ordinary_sums() -> None:
    """Values are stored in float32, whose squares are exact in float64."""
    steps = np.arange(5.0)[:, None] * 2.0**-3
    values = (2.0**20 + steps).astype(np.float32)
    found = statistics_of((Column("a", "", 0, 1),), {"a": values})
    assert found.variance[0, 0] == np.var(steps[:, 0], ddof=1)


def test_histograms_keep_what_is_outside_at_their_ends() -> None:
    found = statistics_of(columns[:1], {"a": np.array([[-9.0], [-2.0], [0.5], [3.0], [9.0], [np.nan]])})
    histogram = found.histogram[0, 0]
    assert histogram[0] == 2 and histogram[-1] == 2 and histogram[BINS // 2] == 1 and histogram.sum() == 5
    assert (found.least[0, 0], found.most[0, 0]) == (-9, 9)
