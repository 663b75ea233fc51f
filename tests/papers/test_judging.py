"""Three answers: yes and no only where the interval leaves no doubt."""

import numpy as np
import pytest

from identiscope.papers.judging import FEWEST_TEXTS, Estimate, above, all_of, below, between, bootstrap, estimated


def interval(low: float, high: float) -> Estimate:
    return Estimate(np.asarray((low + high) / 2), np.asarray(low), np.asarray(high))


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0.1, 0.2, True), (-0.2, -0.1, False), (-0.1, 0.1, None), (0.0, 0.0, False), (0.0, 0.1, None)],
)
def test_above_zero(low: float, high: float, expected: bool | None) -> None:
    assert above(interval(low, high)) is expected
    assert below(interval(-high, -low)) is expected


def test_nothing_follows_from_no_number() -> None:
    nothing = estimated(np.nan, [np.nan] * 10)
    assert above(nothing) is below(nothing) is between(nothing, -1, 1) is None


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(0.1, 0.2, True), (0.6, 0.7, False), (0.4, 0.6, None), (0.0, 0.5, True)]
)
def test_between(low: float, high: float, expected: bool | None) -> None:
    assert between(interval(low, high), 0.0, 0.5) is expected


def test_all_of() -> None:
    assert all_of([True, True]) is True
    assert all_of([True, None, False]) is False
    assert all_of([True, None]) is None
    assert all_of([]) is None


def test_the_interval_is_that_of_the_mean() -> None:
    values = np.random.default_rng(1).normal(0, 1, 400)
    found = bootstrap(400, lambda places: values[places].mean())
    reach = 1.96 * values.std(ddof=1) / 20
    assert float(found.value) == pytest.approx(values.mean())
    assert float(found.high - found.low) == pytest.approx(2 * reach, rel=0.15)


def test_few_texts_decide_nothing() -> None:
    few = bootstrap(FEWEST_TEXTS - 1, lambda places: 1.0)
    assert above(few) is None and "too few texts" in few.said()
    assert above(bootstrap(FEWEST_TEXTS, lambda places: 1.0)) is True


def test_a_difference_of_several_is_judged_one_by_one() -> None:
    values = np.random.default_rng(2).normal([1.0, 0.0], 0.5, (50, 2))
    found = bootstrap(50, lambda places: values[places].mean(0))
    assert above(found) is not True
    assert above(Estimate(found.value[:1], found.low[:1], found.high[:1])) is True
