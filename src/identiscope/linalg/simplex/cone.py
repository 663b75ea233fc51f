"""Rows whose output moves by no more than a given length: the best of them for a cost, with a gap that is certain."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import linprog

from identiscope.errors import MathError
from identiscope.linalg.simplex.row_programs import RowPrograms
from identiscope.linalg.tolerance import CONE_GAP


@dataclass(frozen=True, eq=False)
class ConeRows:
    """Feasible rows [row, key], and for each by how much the best possible one may be worth more, at most."""

    rows: np.ndarray
    gap: np.ndarray


def lean_points(points: np.ndarray) -> np.ndarray:
    """Points with the same lengths of (a' − a)·points for rows of one sum, in as few channels as they have directions.

    What is beyond their rank is rounding, and would be taken for a constraint where little room is given.
    """
    left, sizes, _ = np.linalg.svd(points - points.mean(0), full_matrices=False)
    rank = int((sizes > max(points.shape) * np.finfo(np.float64).eps * sizes.max(initial=0.0)).sum())
    return np.ascontiguousarray(left[:, : max(rank, 1)] * sizes[: max(rank, 1)])


def cone_rows(
    points: np.ndarray, rows: np.ndarray, radii: np.ndarray, costs: np.ndarray, *, lean: bool = False
) -> ConeRows:
    """Of all a' ≥ 0 with the sum of a and ‖(a' − a)·points‖ ≤ radius one of least cost·a', for each row [row, key].

    points [key, channel], shared by the rows; radii [row] above zero, costs [row, key]. lean: points come from
    `lean_points`.

    >>> found = cone_rows(np.array([[0.0], [1.0]]), np.array([[0.5, 0.5]]), np.array([0.25]), np.array([[1.0, 0.0]]))
    >>> found.rows.round(6).tolist(), bool(found.gap[0] < 1e-6)
    ([[0.25, 0.75]], True)
    """
    from identiscope.linalg.simplex.cone_compiled import cone_extremes

    total, size = rows.sum(1), np.abs(costs).max(1)
    best, gaps = rows.astype(np.float64), np.zeros(len(rows))
    # Where nothing is asked, or no weight is there, nothing can change.
    known = (total > 0) & (rows >= 0).all(1) & (size > 0)
    if rows.shape[1] > 1 and known.any():
        shares = np.ascontiguousarray(rows[known] / total[known, None])
        made, gap = np.empty_like(shares), np.empty(len(shares))
        wanted = np.ascontiguousarray(-costs[known] / size[known, None])
        cone_extremes(points if lean else lean_points(points), shares, radii[known] / total[known], wanted, made, gap)
        best[known], gaps[known] = made * total[known, None], gap * size[known] * total[known]
    return ConeRows(best, gaps)


class ConePrograms:
    """The rows a' ≥ 0 with ‖(a' − row)·points‖ ≤ radius, asked again and again for one of least cost.

    basis [key, constraint] spans col([T,1]): rows with the very same output are feasible too, and serve where rounding
    leaves a wide gap.
    """

    def __init__(self, points: np.ndarray, row: np.ndarray, radius: float, basis: np.ndarray) -> None:
        self._points, self._row, self._radius, self._basis = lean_points(points), row, radius, basis

    def best(self, cost: np.ndarray) -> np.ndarray:
        """A feasible row of least cost·a', but for the gap. Never worse than the row itself."""
        return self.best_with_gap(cost)[0]

    def best_with_gap(self, cost: np.ndarray) -> tuple[np.ndarray, float]:
        """The same, and by how much less a feasible row may cost at most."""
        cost = np.asarray(cost, dtype=np.float64)
        found = cone_rows(self._points, self._row[None], np.array([self._radius]), cost[None], lean=True)
        row, gap = found.rows[0], float(found.gap[0])
        if gap > CONE_GAP * float(np.abs(cost).max()):
            exact = self._exact.best(cost)
            gain = float(cost @ row) - float(cost @ exact)
            if gain > 0:
                return exact, max(gap - gain, 0.0)
        return row, gap

    @cached_property
    def _exact(self) -> RowPrograms:
        return RowPrograms(self._basis, self._row)


def box_extremes(points: np.ndarray, row: np.ndarray, half: float, cost: np.ndarray) -> tuple[float, float]:
    """The least and the most of cost·a' over rows whose output moves by at most `half` along each singular direction.

    With half = radius every row within the radius is among them (an outer bound); with radius/√rank they are all within
    the radius (an inner bound): two linear programs, by HiGHS.
    """
    left, sizes, _ = np.linalg.svd(points - points.mean(0), full_matrices=False)
    rank = max(int((sizes > sizes[0] * len(row) * np.finfo(float).eps).sum()) if len(sizes) else 0, 1)
    directions = (left[:, :rank] * sizes[:rank]).T
    # In units of the box, and as changes of the row: nothing then depends on how small the box is.
    scale = half if half > 0 else 1.0
    both = np.concatenate([directions, -directions]) / scale
    ends = []
    for sign in (1.0, -1.0):
        found = linprog(
            sign * cost, A_ub=both, b_ub=np.full(len(both), half / scale), A_eq=np.ones((1, len(row))), b_eq=[0.0],
            bounds=[(-weight, None) for weight in row], method="highs",
        )  # fmt: skip
        if found.status != 0:
            raise MathError(f"the linear program over {len(row)} keys and a box of {rank} directions: {found.message}")
        ends.append(float(cost @ row) + sign * float(found.fun))
    return min(ends[0], float(cost @ row)), max(ends[1], float(cost @ row))


def box_bounds(
    points: np.ndarray, row: np.ndarray, radius: float, cost: np.ndarray
) -> tuple[tuple[float, float], tuple[float, float]]:
    """The outer and the inner bounds that boxes give for the least and the most of cost·a' within a radius."""
    rank = max(1, min(np.linalg.matrix_rank(points - points.mean(0)), len(row)))
    return box_extremes(points, row, radius, cost), box_extremes(points, row, radius / np.sqrt(rank), cost)
