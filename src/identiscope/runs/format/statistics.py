"""Counts, means, variances, extremes and histograms of the columns of a table, which merge exactly."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from identiscope.stats.exact_sums import LARGEST, exact_sum, fractions, merged
from identiscope.stats.exact_sums import LIMBS as LIMBS

BINS = 64

#: The least magnitude that is not counted: its square is the first that `exact_sum` does not take.
MOST = LARGEST**0.5


@dataclass(frozen=True)
class Column:
    """One statistic: its name, what it says, whether it is a whole number, and between what its histogram runs.

    Values outside fall into the first or last bin.
    """

    name: str
    meaning: str
    low: float = 0.0
    high: float = 1.0
    whole: bool = False

    @property
    def edges(self) -> NDArray[np.float64]:
        """The edges of the histogram's bins."""
        return np.linspace(self.low, self.high, BINS + 1)


@dataclass(frozen=True, eq=False)
class Statistics:
    """Of each column, over texts: count, total and squares (exact sums), least, most [column, …] and histogram.

    The axes after the first are the table's, such as layer and head. Values that are not a number do not count, nor do
    those of MOST and beyond, whose squares would not fit into an exact sum.
    """

    columns: tuple[str, ...]
    count: NDArray[np.int64]
    total: NDArray[np.int64]
    squares: NDArray[np.int64]
    least: NDArray[np.float64]
    most: NDArray[np.float64]
    histogram: NDArray[np.int64]

    def merge(self, other: "Statistics") -> "Statistics":
        """Both together; the same to the bit in whatever order statistics are merged."""
        if self.columns != other.columns or self.count.shape != other.count.shape:
            raise ValueError(f"statistics of {self.columns} do not merge with those of {other.columns}")
        return Statistics(
            self.columns,
            self.count + other.count,
            merged(self.total, other.total),
            merged(self.squares, other.squares),
            np.minimum(self.least, other.least),
            np.maximum(self.most, other.most),
            self.histogram + other.histogram,
        )

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean [column, …]; not a number where nothing was counted."""
        return _divided(fractions(self.total), self.count)

    @property
    def variance(self) -> NDArray[np.float64]:
        """Variance [column, …] with n − 1, rounded once for values of float32, whose squares float64 holds."""
        total, count = fractions(self.total), self.count.astype(object)
        some = np.where(self.count > 0, count, 1)
        spread = fractions(self.squares) - total * total / some
        return np.maximum(_divided(spread, np.where(self.count > 1, self.count - 1, 0)), 0.0)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """As arrays that can be written."""
        return {name: getattr(self, name) for name in FIELDS}


#: The arrays of statistics, by name.
FIELDS = ("count", "total", "squares", "least", "most", "histogram")


def from_arrays(columns: Sequence[str], arrays: Mapping[str, NDArray[Any]]) -> Statistics:
    """What `Statistics.arrays` gave."""
    return Statistics(tuple(columns), *(arrays[name] for name in FIELDS))


def no_statistics(columns: Sequence[Column], shape: tuple[int, ...]) -> Statistics:
    """Of nothing yet, for tables of these axes."""
    whole = (len(columns), *shape)
    return Statistics(
        tuple(column.name for column in columns),
        np.zeros(whole, np.int64),
        np.zeros((*whole, LIMBS), np.int64),
        np.zeros((*whole, LIMBS), np.int64),
        np.full(whole, np.inf),
        np.full(whole, -np.inf),
        np.zeros((*whole, BINS), np.int64),
    )


def statistics_of(columns: Sequence[Column], values: Mapping[str, NDArray[Any]]) -> Statistics:
    """Of values [text, …] by column."""
    parts = [_of_column(column, np.asarray(values[column.name], np.float64)) for column in columns]
    stacked = [np.stack([part[index] for part in parts]) for index in range(len(FIELDS))]
    return Statistics(tuple(column.name for column in columns), *stacked)


def _of_column(column: Column, values: NDArray[np.float64]) -> tuple[NDArray[Any], ...]:
    # Written so that what is not a number is not known.
    known = np.abs(values) < MOST
    numbers = np.where(known, values, 0.0)
    share = (numbers - column.low) / (column.high - column.low)
    bins = np.clip(np.where(known, share, 0.0) * BINS, 0, BINS - 1).astype(np.int64)
    cells = np.arange(values[0].size).reshape(values.shape[1:])
    places = (cells * BINS + bins)[known]
    histogram = np.bincount(places, minlength=cells.size * BINS).reshape(*values.shape[1:], BINS)
    return (
        known.sum(0, dtype=np.int64),
        exact_sum(numbers),
        exact_sum(numbers * numbers),
        np.where(known, values, np.inf).min(0),
        np.where(known, values, -np.inf).max(0),
        histogram.astype(np.int32),
    )


def _divided(numerator: NDArray[np.object_], count: NDArray[np.int64]) -> NDArray[np.float64]:
    pairs: list[tuple[Any, int]] = list(zip(numerator.ravel().tolist(), count.ravel().tolist(), strict=True))
    flat = [float(top / below) if below else np.nan for top, below in pairs]
    return np.array(flat, np.float64).reshape(count.shape)
