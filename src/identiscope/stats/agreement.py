"""How far two ways to measure the same agree: arrays in, numbers out."""

from dataclasses import dataclass

import numpy as np

from identiscope.errors import InputError
from identiscope.stats.rank_correlation import pearson, spearman


@dataclass(frozen=True, eq=False)
class CellAgreement:
    """For each slice: correlations over its cells, and the mean over its rows of half the sum of differences.

    `total_variation` is not a number unless both are distributions there: rows that are never negative and sum to one.
    """

    pearson: np.ndarray
    spearman: np.ndarray
    total_variation: np.ndarray


def cell_agreement(
    first: np.ndarray,
    second: np.ndarray,
    cells: np.ndarray | None = None,
    *,
    rounding: float,
    smallest: float = 0.0,
    floor: float = 0.0,
) -> CellAgreement:
    """Compare tables [slice, row, column], slice by slice.

    cells: [slice or 1, row, column] which of them can be other than zero at all, as a mask says; those that cannot
    would raise every correlation. rounding: by how much a row of a distribution may miss one, or a cell zero.
    smallest: a slice with no cell above this is rounding, and correlates with nothing. floor: as for `pearson`.

    >>> cell_agreement(np.eye(2)[None], np.eye(2)[None, ::-1], rounding=0.0).total_variation
    array([1.])
    """
    if first.shape != second.shape or first.ndim != 3:
        raise InputError(f"tables of {first.shape} and {second.shape} were given; expected two [slice, row, column].")
    able = np.broadcast_to(np.ones((1, 1, 1), bool) if cells is None else cells, first.shape)
    slices = [
        tuple(values[can] if (np.abs(values) > smallest).any() else np.zeros(can.sum()) for values in (one, other))
        for one, other, can in zip(first, second, able, strict=True)
    ]
    both = distributions(first, rounding) & distributions(second, rounding)
    apart = 0.5 * np.abs(first - second).sum(-1).mean(-1)
    return CellAgreement(
        np.array([pearson(one, other, floor=floor) for one, other in slices]),
        np.array([spearman(one, other, floor=floor) for one, other in slices]),
        np.where(both, apart, np.nan),
    )


def distributions(table: np.ndarray, rounding: float) -> np.ndarray:
    """For each slice of [slice, row, column], whether every row is a distribution."""
    sums_to_one: np.ndarray = (table >= -rounding).all((1, 2)) & (np.abs(table.sum(-1) - 1) <= rounding).all(1)
    return sums_to_one


def statistic_agreement(statistics: np.ndarray, *, floor: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Pearson's and Spearman's correlation [statistic, statistic] of statistics [statistic, sample]."""
    correlations = np.full((2, len(statistics), len(statistics)), np.nan)
    for one in range(len(statistics)):
        for other in range(one, len(statistics)):
            pair = statistics[one], statistics[other]
            # What one of them does not know of a sample says nothing of how they agree.
            known = np.isfinite(pair[0]) & np.isfinite(pair[1])
            values = [correlation(pair[0][known], pair[1][known], floor=floor) for correlation in (pearson, spearman)]
            correlations[:, one, other] = correlations[:, other, one] = values
    return correlations[0], correlations[1]


def agreement(scores: np.ndarray, special: np.ndarray, *, floor: float = 0.0) -> np.ndarray:
    """Spearman's correlation of the sizes of scores [method, input], over the inputs that are not special and that both
    methods speak of; ties share their ranks; not a number where one does not vary.

    floor: a variance that is at most this share of the mean square is rounding.
    """
    count = len(scores)
    table = np.full((count, count), np.nan)
    for one in range(count):
        for other in range(count):
            both = ~special & ~np.isnan(scores[one]) & ~np.isnan(scores[other])
            if both.sum() > 1:
                sizes = np.abs(scores[one][both]), np.abs(scores[other][both])
                table[one, other] = spearman(*sizes, floor=floor)
    return table
