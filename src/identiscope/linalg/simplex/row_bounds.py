"""The least and the most that keys may weigh, alone or together, over all rows with the same output."""

from dataclasses import dataclass

import numpy as np

from identiscope.linalg.simplex.cone import cone_rows, lean_points
from identiscope.linalg.simplex.highs_program import HighsPrograms
from identiscope.linalg.simplex.row_programs import PERIOD


@dataclass(frozen=True, eq=False)
class RowBounds:
    """Of rows [row, group]: what the keys of a group weigh together, and the least and most they can."""

    weight: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


def row_bounds(basis: np.ndarray, rows: np.ndarray, groups: np.ndarray | None = None) -> RowBounds:
    """All rows [row, key] that share one orthonormal basis [key, constraint] of col([T,1]).

    groups [key]: the number of the group that each key is in, from 0; without them each key is its own.

    >>> found = row_bounds(np.full((3, 1), 3**-0.5), np.array([[0.5, 0.25, 0.25]]), np.array([0, 1, 1]))
    >>> found.weight.tolist(), found.lower.tolist(), found.upper.tolist()
    ([[0.5, 0.5]], [[0.0, 0.0]], [[1.0, 1.0]])
    """
    keys, constraints = basis.shape
    groups = np.arange(keys) if groups is None else np.asarray(groups, dtype=np.int64)
    together = np.zeros((keys, int(groups.max()) + 1))
    together[np.arange(keys), groups] = 1
    weight = rows @ together
    if constraints >= keys:
        return RowBounds(weight, weight.copy(), weight.copy())
    from identiscope.linalg.simplex.corner_walk_compiled import bounds, chain

    total = rows.sum(1)
    known = (total > 0) & (rows >= 0).all(1)
    shares = np.ascontiguousarray(rows[known] / total[known, None])
    lower, upper = (np.full((len(shares), together.shape[1]), np.nan) for _ in range(2))
    # Groups in the order of their first keys along the chain.
    _, first = np.unique(groups[chain(basis)], return_index=True)
    bounds(basis, shares, groups, np.argsort(first), PERIOD, lower, upper)
    for place in np.flatnonzero(np.isnan(upper).any(1)):
        programs = HighsPrograms(basis, shares[place])
        for group, cost in enumerate(together.T):
            lower[place, group] = cost @ programs.best(cost)
            upper[place, group] = cost @ programs.best(-cost)
    of_rows = RowBounds(weight, weight.copy(), weight.copy())
    # A bound is never on the wrong side of the weight itself, which rounding could take it to.
    of_rows.lower[known] = np.minimum(lower * total[known, None], weight[known])
    of_rows.upper[known] = np.maximum(upper * total[known, None], weight[known])
    return of_rows


def cone_bounds(points: np.ndarray, rows: np.ndarray, radii: np.ndarray, groups: np.ndarray | None = None) -> RowBounds:
    """The same for rows whose output may move: ‖(a' − a)·points‖ ≤ radius [row], points [key, channel] shared by all.

    >>> found = cone_bounds(np.array([[0.0], [1.0]]), np.array([[0.5, 0.5]]), np.array([0.25]))
    >>> found.lower.round(6).tolist(), found.upper.round(6).tolist()
    ([[0.25, 0.25]], [[0.75, 0.75]])
    """
    keys = rows.shape[1]
    groups = np.arange(keys) if groups is None else np.asarray(groups, dtype=np.int64)
    together = np.eye(int(groups.max()) + 1)[groups]
    weight = rows @ together
    lower, upper = weight.copy(), weight.copy()
    lean = lean_points(points)
    for group, cost in enumerate(together.T):
        wanted = np.broadcast_to(cost, rows.shape)
        lower[:, group] = np.minimum(cone_rows(lean, rows, radii, wanted, lean=True).rows @ cost, lower[:, group])
        upper[:, group] = np.maximum(cone_rows(lean, rows, radii, -wanted, lean=True).rows @ cost, upper[:, group])
    return RowBounds(weight, lower, upper)


def row_extremes(basis: np.ndarray, rows: np.ndarray, costs: np.ndarray) -> RowBounds:
    """The least and the most of costs·a, [row] each, for rows and costs [row, key] that share one basis.

    >>> found = row_extremes(np.full((2, 1), 2**-0.5), np.array([[0.5, 0.5]]), np.array([[1.0, -1.0]]))
    >>> found.weight.tolist(), found.lower.tolist(), found.upper.tolist()
    ([0.0], [-1.0], [1.0])
    """
    weight = (rows * costs).sum(1)
    if basis.shape[1] >= basis.shape[0]:
        return RowBounds(weight, weight.copy(), weight.copy())
    from identiscope.linalg.simplex.corner_walk_compiled import extremes

    total, size = rows.sum(1), np.abs(costs).max(1)
    # Where nothing is asked, or no weight is there, nothing can change.
    known = (total > 0) & (rows >= 0).all(1) & (size > 0)
    shares = np.ascontiguousarray(rows[known] / total[known, None])
    units = np.ascontiguousarray(costs[known] / size[known, None])
    least, most = (np.full(len(shares), np.nan) for _ in range(2))
    extremes(basis, shares, units, PERIOD, least, most)
    for place in np.flatnonzero(np.isnan(most)):
        programs = HighsPrograms(basis, shares[place])
        least[place], most[place] = (units[place] @ programs.best(sign * units[place]) for sign in (1, -1))
    of_rows, scale = RowBounds(weight, weight.copy(), weight.copy()), total[known] * size[known]
    of_rows.lower[known] = np.minimum(least * scale, weight[known])
    of_rows.upper[known] = np.maximum(most * scale, weight[known])
    return of_rows
