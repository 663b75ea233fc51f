"""Linear programs over all rows with the same output: a walk of corners, or HiGHS where the walk is lost."""

from functools import cached_property

import numpy as np

from identiscope.linalg.simplex.corner import vertex
from identiscope.linalg.simplex.highs_program import HighsPrograms
from identiscope.linalg.tolerance import VERTEX_ROUNDING

#: Steps after which a walk is solved anew: rounding grows by some 1e-16 a step, and solving takes as long as 40 steps.
PERIOD = 500


class RowPrograms:
    """The rows a' ≥ 0 with a'·basis = row·basis, asked again and again for one of least cost.

    basis [key, constraint] has orthonormal columns.

    >>> programs = RowPrograms(np.full((2, 1), 0.5**0.5), np.array([0.5, 0.5]))
    >>> programs.best(np.array([1.0, 0.0])), programs.best(np.array([0.0, 1.0]))
    (array([0., 1.]), array([1., 0.]))
    """

    def __init__(self, basis: np.ndarray, row: np.ndarray) -> None:
        self._basis, self._row, self._total = basis, row, float(row.sum())
        self._start = row / self._total if self._total > 0 else row
        self._walking, self._since = bool((row >= 0).all()), 0
        self.lost = 0

    def best(self, cost: np.ndarray) -> np.ndarray:
        """A row of least cost·a', as a corner solved again in float64. Never worse than the row itself."""
        keys, constraints = self._basis.shape
        if self._total <= 0 or constraints >= keys:
            return self._row.copy()
        corner = self._walked(np.asarray(cost, dtype=np.float64)) if self._walking else None
        if corner is None:
            self.lost += 1
            return self._highs.best(cost)
        made: np.ndarray = self._total * corner
        return made if float(cost @ made) <= float(cost @ self._row) else self._row.copy()

    def _walked(self, cost: np.ndarray) -> np.ndarray | None:
        """The best corner, or None where it was not reached or is not one to the last digits."""
        from identiscope.linalg.simplex.corner_walk_compiled import walk

        size = float(np.abs(cost).max())
        basic, free, tableau, weights = self._state
        since = walk(
            self._basis, self._start, cost / size if size > 0 else cost, basic, free, tableau, weights, self._since,
            PERIOD, 50 * len(cost),
        )  # fmt: skip
        self._since = since
        if since < 0:
            self._walking = False
            return None
        flags = np.zeros(len(cost), dtype=bool)
        flags[basic] = True
        corner = vertex(self._basis, self._start, flags)
        exact = corner.min() >= 0 and float(np.abs((corner - self._start) @ self._basis).max()) <= VERTEX_ROUNDING
        return corner if exact else None

    @cached_property
    def _state(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Where the walk is: basic and free keys, tableau, and the weights of the basic keys."""
        from identiscope.linalg.simplex.corner_walk_compiled import first_basis, free_keys, tableau_of, to_corner

        basic = first_basis(self._basis)
        free = free_keys(basic, len(self._basis))
        tableau, weights = tableau_of(self._basis, basic, free), np.empty(len(basic))
        self._since = to_corner(self._start, basic, free, tableau, weights)
        return basic, free, tableau, weights

    @cached_property
    def _highs(self) -> HighsPrograms:
        return HighsPrograms(self._basis, self._row)
