"""Thin rounded matrices whose product is a map of attention, or its logits, and what a page makes of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from identiscope.views.page.layer import Layer
from identiscope.views.page.packing import LARGEST, Array, balanced

# Rounding errors of many products are nearly Gaussian; this many standard deviations are rarely exceeded.
_SPREAD = 4.5 / np.sqrt(12)

# The share of rows whose size a step is chosen for; the others may have to be stored cell by cell.
_COVERED = 0.95

# How much finer the right factor of projected attention is rounded: it also stands for T, which the page moves rows on.
_FINER = 4.0

#: The error aimed at in a raw weight. The softmax makes it a relative one: small weights are far more exact.
RAW_ERROR = 1e-3


@dataclass(frozen=True)
class Factors:
    """Rounded factors: left [head, query, column], right [group, key, column], and the step of each."""

    left: list[Array]
    right: list[Array]
    left_step: list[float]
    right_step: list[float]
    _inverses: dict[int, Array] = field(default_factory=dict, init=False, repr=False)

    @staticmethod
    def of_logits(layer: Layer) -> "Factors | None":
        """Queries and keys, if the map follows from them."""
        if layer.query is None or layer.key is None:
            return None
        centre = layer.softcap is None and layer.sinks is None
        group = len(layer.query) // len(layer.key)
        factors = Factors([], [], [], [])
        pairs = []
        for place, key in enumerate(layer.key):
            query = layer.query[place * group : (place + 1) * group]
            pairs.append(balanced(query.reshape(-1, query.shape[2]), key, centre))
        sizes = [_sizes(np.stack(parts)) for parts in zip(*pairs, strict=True)]
        for (left, right), *size in zip(pairs, *sizes, strict=True):
            # A weight changes by at most a quarter of the largest difference of changes in its logits, and mostly by
            # less; at six times as much, hardly any row has to be stored.
            left_step, right_step = _steps(size, 6 * RAW_ERROR)
            for part in np.split(left, group):
                factors._add(factors.left, factors.left_step, part, left_step)
            factors._add(factors.right, factors.right_step, right, max(right_step, _coarsest(right)))
        return factors

    @staticmethod
    def of_projected(layer: Layer, error: float, finer: float = _FINER) -> "Factors | None":
        """The factors of projected attention, if there are any; finer: how much finer the right one is rounded."""
        if layer.left is None or layer.right is None:
            return None
        factors = Factors([], [], [], [])
        group = len(layer.left) // len(layer.right)
        left_sizes, right_sizes = _sizes(layer.left), _sizes(layer.right)
        for place, right in enumerate(layer.right):
            own = slice(place * group, (place + 1) * group)
            steps = [_steps((size, right_sizes[place]), error, finer) for size in left_sizes[own]]
            for left, (step, _) in zip(layer.left[own], steps, strict=True):
                factors._add(factors.left, factors.left_step, left, step)
            factors._add(
                factors.right, factors.right_step, right, max(min(step for _, step in steps), _coarsest(right))
            )
        return factors

    @staticmethod
    def _add(into: list[Array], steps: list[float], values: Array, step: float) -> None:
        codes = np.rint(values / step)
        # A row too large for its step (a causal row of few keys) is left out: its cells will be stored.
        codes[np.abs(codes).max(1) > LARGEST] = 0
        into.append(codes.astype(np.int32))
        steps.append(step)

    def product(self, place: int) -> Array:
        """left·rightᵀ of one head as the page computes it."""
        group = place // (len(self.left) // len(self.right))
        left = self.left[place].astype(np.float32) * np.float32(self.left_step[place] * self.right_step[group])
        product: Array = left @ self.right[group].astype(np.float32).T
        return product

    def projection(self, place: int, raw: Array, stop: Array | None) -> Array:
        """raw [query, key] of one head projected on the columns of the right factor.

        stop [query]: each row on those of its own keys, which are the first so many; None: on those of all keys, where
        the columns are orthonormal.
        """
        group = place // (len(self.left) // len(self.right))
        if stop is None:
            # In the page's own precision: its rounding is a thousandth of the error aimed at.
            thin = self.right[group].astype(np.float32) * np.float32(self.right_step[group])
            product: Array = raw.astype(np.float32, copy=False) @ thin @ thin.T
            return product
        right = self.right[group].astype(np.float64)
        if group not in self._inverses:
            self._inverses.clear()
            self._inverses[group] = _prefix_inverses(right, stop)
        left = np.matmul((raw @ right)[:, None], self._inverses[group])[:, 0]
        projected: Array = left @ right.T
        return projected


def _coarsest(values: Array) -> float:
    """The least step at which all values fit in 16 bits."""
    return float(np.abs(values).max()) / LARGEST


def _sizes(parts: Array) -> list[float]:
    """The length of a row of each matrix [part, row, column] that all but a few rows keep to; 1 where that is zero."""
    lengths = np.quantile(np.linalg.norm(parts, axis=2), _COVERED, axis=1)
    return [float(length) or 1.0 for length in lengths]


def _steps(sizes: Sequence[float], error: float, finer: float = 1.0) -> tuple[float, float]:
    """Steps for left and right, of such `sizes`, that keep their product within an error; right gets 1/finer of it.

    The error of one is multiplied with the rows of the other, of which a few may be so large that storing their cells
    takes less room than a finer step for all.
    """
    each = error / (_SPREAD * float(np.hypot(1, 1 / finer)))
    return each / sizes[1], each / sizes[0] / finer


def _prefix_inverses(right: Array, stop: Array) -> Array:
    """(1 + RᵀR)⁻¹ [query, column, column] of the first stop[query] rows R of whole numbers [key, column].

    One is the square of a step: it says nothing to directions that are more than rounding, and keeps the matrix from
    being singular where there are few rows, or equal ones. A row more is an update of rank one.
    """
    columns = right.shape[1]
    inverse = np.eye(columns)
    inverses, seen = np.empty((len(stop), columns, columns)), 0
    for query, last in enumerate(stop):
        for row in right[seen:last]:
            along = inverse @ row
            inverse = inverse - np.outer(along, along / (1 + along @ row))
        seen = int(last)
        inverses[query] = inverse
    return inverses
