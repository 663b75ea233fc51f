"""Means over texts and comparisons in pairs, against plain loops, and on data where nothing is to be found."""

import numpy as np
import pytest

from identiscope.errors import InputError
from identiscope.stats.paired_bootstrap import bootstrap_means, compared_pairs


def holm(p: list[float]) -> list[float]:
    """Holm 1979: the i-th smallest of m times m − i + 1, never below the one before."""
    order = sorted(range(len(p)), key=lambda place: p[place])
    adjusted = [0.0] * len(p)
    for rank, place in enumerate(order):
        adjusted[place] = max(min(1.0, (len(p) - other) * p[order[other]]) for other in range(rank + 1))
    return adjusted


def test_means_and_bounds_are_those_of_texts_drawn_anew() -> None:
    values = np.random.default_rng(0).normal(size=(30, 2))
    values[3, 1] = np.nan
    means = bootstrap_means(values, resamples=4000)
    assert means.texts.tolist() == [30, 29]
    known = values[~np.isnan(values[:, 1]), 1]
    assert means.mean[1] == pytest.approx(known.mean())
    generator = np.random.default_rng(5)
    drawn = [np.mean(generator.choice(known, len(known))) for _ in range(4000)]
    assert means.low[1] == pytest.approx(np.quantile(drawn, 0.025), abs=0.03)
    assert means.high[1] == pytest.approx(np.quantile(drawn, 0.975), abs=0.03)


def test_what_is_never_known_has_no_mean() -> None:
    means = bootstrap_means(np.full((4, 1), np.nan), resamples=10)
    assert means.texts.tolist() == [0] and np.isnan(means.mean[0]) and np.isnan(means.low[0])


def test_pairs_are_adjusted_as_holm_says_and_a_clear_one_is_decided() -> None:
    generator = np.random.default_rng(1)
    values = generator.normal(size=(40, 3)) + np.array([0.0, 0.1, 2.0])
    pairs = compared_pairs(values, resamples=2000)
    assert [pair.adjusted for pair in pairs] == pytest.approx(holm([pair.p for pair in pairs]))
    decided = {(pair.first, pair.second): pair.decided for pair in pairs}
    assert decided == {(0, 1): False, (0, 2): True, (1, 2): True}
    assert all(pair.low <= pair.difference <= pair.high for pair in pairs)


def test_a_few_texts_decide_nothing_however_clear() -> None:
    """Four texts that agree could do so by chance in one case of eight."""
    pair = compared_pairs(np.array([[0.0, 1.0]] * 4), resamples=500)[0]
    assert pair.p == 0.125 and not pair.decided
    assert compared_pairs(np.array([[0.0, 1.0]] * 12), resamples=500)[0].decided


def test_equal_methods_are_rarely_told_apart() -> None:
    """Under the null model at most a twentieth of families of three pairs has a decision."""
    generator = np.random.default_rng(2)
    wrong = sum(
        any(pair.decided for pair in compared_pairs(generator.normal(size=(30, 3)), resamples=400, seed=seed))
        for seed in range(120)
    )
    assert wrong <= 14


def test_bad_values_are_refused() -> None:
    with pytest.raises(InputError, match=r"\[text, method\]"):
        bootstrap_means(np.zeros(3))
    pair = compared_pairs(np.array([[1.0, np.nan]]))[0]
    assert np.isnan(pair.p) and not pair.decided
