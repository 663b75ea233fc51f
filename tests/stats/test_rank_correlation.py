"""Rank correlations with their bounds."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

import reference_structure as reference
from identiscope.errors import InputError
from identiscope.stats.rank_correlation import _statistics, rank_correlation

PROPERTY = settings(max_examples=25, deadline=None, derandomize=True)


def drawn(seed: int, groups: int, sets: int, noise: tuple[float, ...]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Effects, and measures of them that are noisier and noisier."""
    generator = np.random.default_rng(seed)
    effects = [generator.standard_normal((sets, 3)) for _ in range(groups)]
    measures = [
        np.stack([effect + size * generator.standard_normal(effect.shape) for size in noise], -1) for effect in effects
    ]
    return measures, effects


@PROPERTY
@given(st.integers(0, 2**31), st.integers(1, 4), st.integers(2, 9))
def test_correlation_is_spearman_s_mean_over_groups(seed: int, groups: int, sets: int) -> None:
    measures, effects = drawn(seed, groups, sets, (0.3, 2.0))
    measures = [np.round(one, 1) for one in measures]  # with ties
    found = rank_correlation(measures, effects, resamples=5)
    for place in range(2):
        each = [
            reference.rank_correlation(m[..., place].ravel(), e.ravel()) for m, e in zip(measures, effects, strict=True)
        ]
        assert found.correlation[place] == pytest.approx(np.mean(each), abs=1e-12)
        known = [
            scipy.stats.spearmanr(m[..., place].ravel(), e.ravel()).statistic
            for m, e in zip(measures, effects, strict=True)
        ]
        assert found.correlation[place] == pytest.approx(np.mean(known), abs=1e-9)
        pairs = []
        for measured, effect in zip(measures, effects, strict=True):
            inside = []
            for one, other in zip(measured[..., place], effect, strict=True):
                for i, j in ((0, 1), (0, 2), (1, 2)):
                    inside.append(0.5 if one[i] == one[j] else float((one[i] > one[j]) == (other[i] > other[j])))
            pairs.append(np.mean(inside))
        assert found.agreement[place] == pytest.approx(np.mean(pairs), abs=1e-12)


def test_bounds_tell_a_good_measure_from_a_bad_one() -> None:
    measures, effects = drawn(0, 6, 30, (0.2, 5.0, 0.2))
    found = rank_correlation(measures, effects, against=1, resamples=300)
    assert bool((found.low <= found.correlation).all() and (found.correlation <= found.high).all())
    assert found.difference_low[0] > 0.2 and found.difference[1] == 0
    same = rank_correlation(measures, effects, against=0, resamples=300)
    assert same.difference_low[2] < 0 < same.difference_high[2]
    again = rank_correlation(measures, effects, against=0, resamples=300)
    assert np.array_equal(same.low, again.low)


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    """Of 60 draws of a measure whose correlation is known, a 90 % interval should hold it in most."""
    truth = 6 / np.pi * np.arcsin(1 / np.sqrt(2) / 2)  # Spearman's, of normal variables with Pearson's 1/√2
    held = 0
    for seed in range(60):
        measures, effects = drawn(seed, 10, 12, (1.0,))
        found = rank_correlation(measures, effects, resamples=120, confidence=0.9, seed=seed)
        held += bool(found.low[0] <= truth <= found.high[0])
    assert 46 <= held <= 59


def test_one_group_is_drawn_set_by_set() -> None:
    measures, effects = drawn(4, 1, 40, (0.5, 5.0))
    found = rank_correlation(measures, effects, resamples=200)
    assert found.low[0] < found.correlation[0] < found.high[0] and found.difference_high[1] < 0
    generator = np.random.default_rng(9)
    for _ in range(3):
        # The same numbers as ranking each resample anew.
        counts = generator.multinomial(40, np.full(40, 1 / 40))
        again = np.repeat(np.arange(40), counts)
        ranked = reference.rank_correlation(measures[0][again, :, 0].ravel(), effects[0][again].ravel())
        weighted, _ = _statistics(measures[0], effects[0], counts[None].astype(float))
        assert weighted[0, 0] == pytest.approx(ranked, abs=1e-12)


def test_a_constant_measure_is_undefined_and_agrees_half() -> None:
    measures, effects = drawn(1, 2, 5, (0.5,))
    constant = [np.concatenate([one, np.ones_like(one)], -1) for one in measures]
    found = rank_correlation(constant, effects, resamples=20)
    assert np.isnan(found.correlation[1]) and np.isnan(found.low[1]) and found.agreement[1] == 0.5
    assert not np.isnan(found.correlation[0])


def test_refuses_what_does_not_fit() -> None:
    measures, effects = drawn(1, 2, 5, (0.5,))
    with pytest.raises(InputError, match="expected as many"):
        rank_correlation(measures, effects[:1])
    with pytest.raises(InputError, match="sample, measure"):
        rank_correlation([measures[0][..., 0]], effects[:1])
    with pytest.raises(InputError, match="resamples"):
        rank_correlation(measures, effects, resamples=0)
