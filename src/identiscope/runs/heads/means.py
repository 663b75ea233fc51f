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


class ClusteredMeans:
    """Means over texts, of which those of one cluster are not independent: clusters are what would be drawn anew.

    The error is that of a ratio of sums over clusters (total ÷ number of texts), linearised; with one text in each
    cluster it is the standard error of `Means`.

    >>> means = ClusteredMeans()
    >>> for number, cluster in ((1.0, "a"), (1.0, "a"), (3.0, "b"), (3.0, "b")): means.add(np.array([number]), cluster)
    >>> float(means.mean[0]), float(means.error[0]), float(means.clusters[0])
    (2.0, 1.0, 2.0)
    """

    def __init__(self) -> None:
        self._means: dict[str, Means] = {}

    def add(self, values: Array, cluster: str) -> None:
        """One text."""
        self._means.setdefault(cluster, Means()).add(values)

    def _stacked(self) -> tuple[Array, Array]:
        """Of each cluster [cluster, …]: the mean, zero without any text, and how many texts."""
        each = list(self._means.values())
        return np.stack([np.nan_to_num(one.mean) for one in each]), np.stack([one.count for one in each])

    @property
    def count(self) -> Array:
        """How many texts have a number."""
        return np.asarray(self._stacked()[1].sum(0))

    @property
    def clusters(self) -> Array:
        """How many clusters have a text with a number."""
        return np.asarray((self._stacked()[1] > 0).sum(0), np.float64)

    @property
    def mean(self) -> Array:
        """Over texts, not over clusters; NaN where no text has a number."""
        means, counts = self._stacked()
        total = counts.sum(0)
        return np.where(total > 0, (means * counts).sum(0) / np.maximum(total, 1), np.nan)

    @property
    def error(self) -> Array:
        """The standard error of the mean; NaN of fewer than two clusters."""
        means, counts = self._stacked()
        clusters = self.clusters
        # What each cluster moves the mean by.
        moved = counts * (means - np.nan_to_num(self.mean)) / np.maximum(counts.sum(0), 1)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(clusters > 1, np.sqrt(clusters / (clusters - 1) * (moved**2).sum(0)), np.nan)
