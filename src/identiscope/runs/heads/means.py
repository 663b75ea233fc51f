"""Means over texts with their errors, kept as sums: memory does not grow with the texts."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Means:
    """Means of arrays of one shape, cell by cell over the texts in which a cell is a number.

    >>> means = Means()
    >>> for number in (1.0, 3.0): means.add(np.array([number]))
    >>> float(means.mean[0]), float(means.error[0])
    (2.0, 1.0)
    """

    def __init__(self) -> None:
        self.count: Array = np.zeros(())
        self._mean: Array = np.zeros(())
        self._squares: Array = np.zeros(())

    def add(self, values: Array) -> None:
        """One text (Welford's sums, so that no digits are lost)."""
        values = np.asarray(values, np.float64)
        if not self.count.shape and values.shape:
            self.count, self._mean, self._squares = (np.zeros(values.shape) for _ in range(3))
        known = np.isfinite(values)
        self.count = self.count + known
        step = np.where(known, values - self._mean, 0.0)
        self._mean = self._mean + step / np.maximum(self.count, 1)
        self._squares = self._squares + step * np.where(known, values - self._mean, 0.0)

    @property
    def mean(self) -> Array:
        """NaN where no text has a number."""
        return np.where(self.count > 0, self._mean, np.nan)

    @property
    def error(self) -> Array:
        """The standard error of the mean; NaN of fewer than two texts."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(self.count > 1, np.sqrt(self._squares / (self.count - 1) / self.count), np.nan)
