"""Agreement of tables and of statistics, against SciPy and by hand."""

import numpy as np
import pytest
import scipy.stats

from identiscope.errors import InputError
from identiscope.stats.agreement import cell_agreement, distributions, statistic_agreement
from identiscope.stats.rank_correlation import pearson, spearman


@pytest.fixture
def generator() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize("levels", [3, 1000])
def test_correlations_are_those_of_scipy_with_ties(generator: np.random.Generator, levels: int) -> None:
    one, other = generator.integers(levels, size=(2, 200)).astype(float)
    assert pearson(one, other) == pytest.approx(scipy.stats.pearsonr(one, other).statistic)
    assert spearman(one, other) == pytest.approx(scipy.stats.spearmanr(one, other).statistic)


def test_what_does_not_vary_has_no_correlation() -> None:
    values = np.arange(5.0)
    assert np.isnan(pearson(values, np.ones(5))) and np.isnan(spearman(np.ones(5), values))
    assert np.isnan(pearson(values[:1], values[:1])) and np.isnan(spearman(values[:0], values[:0]))
    rounded = 0.2 + np.array([0, 1, -1, 1, 0]) * 1e-17
    assert np.isnan(spearman(values, rounded, floor=1e-20))
    assert np.isnan(spearman(values, np.where(values > 3, np.nan, values)))
    with pytest.raises(InputError, match="samples of 5 and 4 numbers"):
        spearman(values, values[1:])


def test_cells_that_cannot_be_are_left_out(generator: np.random.Generator) -> None:
    one, other = generator.random((2, 3, 6, 6))
    can = np.tril(np.ones((6, 6), bool))[None]
    found = cell_agreement(one, other, can, rounding=0.0)
    # What stands where nothing can be is not looked at.
    same = cell_agreement(np.where(can, one, 7.0), np.where(can, other, -5.0), can, rounding=0.0)
    assert np.array_equal(found.pearson, same.pearson) and np.array_equal(found.spearman, same.spearman)
    for place in range(3):
        given = one[place][can[0]], other[place][can[0]]
        assert found.spearman[place] == pytest.approx(scipy.stats.spearmanr(*given).statistic)
        assert found.pearson[place] == pytest.approx(scipy.stats.pearsonr(*given).statistic)


def test_total_variation_is_of_distributions_alone(generator: np.random.Generator) -> None:
    one, other = generator.dirichlet(np.ones(4), size=(2, 2, 3))
    other[1, 2] -= [0.5, -0.5, 0.0, 0.0]  # still sums to one, and is negative somewhere
    assert distributions(other, 1e-12).tolist() == [True, False]
    found = cell_agreement(one, other, rounding=1e-12).total_variation
    assert found[0] == pytest.approx(np.mean([0.5 * np.abs(one[0, row] - other[0, row]).sum() for row in range(3)]))
    assert np.isnan(found[1])
    assert np.isnan(cell_agreement(2 * one, one, rounding=1e-12).total_variation).all()
    with pytest.raises(InputError, match="expected two"):
        cell_agreement(one, other[:1], rounding=0.0)


def test_rounding_correlates_with_nothing(generator: np.random.Generator) -> None:
    one, noise = generator.random((2, 2, 5, 5))
    noise[1] *= 1e-17
    found = cell_agreement(one, noise, rounding=0.0, smallest=1e-6)
    assert np.isnan(found.pearson).tolist() == np.isnan(found.spearman).tolist() == [False, True]


def test_statistics_are_compared_over_samples_that_both_know(generator: np.random.Generator) -> None:
    values = generator.random((3, 40))
    values[1, 5:9] = np.nan
    values[2] = -(values[0] ** 3)
    linear, ranked = statistic_agreement(values)
    assert np.array_equal(linear, linear.T) and np.allclose(np.diag(ranked), 1)
    assert ranked[0, 2] == pytest.approx(-1)
    known = ~np.isnan(values[1])
    assert linear[0, 1] == pytest.approx(scipy.stats.pearsonr(values[0][known], values[1][known]).statistic)
