"""Rows of least cost that keep a few linear numbers and their sum, each with numbers of its own: compiled."""

import numpy as np
from numpy.typing import NDArray

from identiscope.linalg.compiling import Numbers, compiled
from identiscope.linalg.simplex.corner_walk_compiled import first_basis, free_keys, tableau_of, to_corner, walk

#: A number whose part that the others do not have is shorter than this, beside itself, is one of theirs.
_SAME = 1e-8


@compiled
def kept_corners(
    rows: Numbers, allowed: NDArray[np.bool_], kept: Numbers, costs: Numbers, period: int, corners: Numbers
) -> int:
    """Write for each row [row, key] the corner of least cost [row, key] with its sum and its kept·row, for each of the
    numbers kept [number, row, key], over the keys that it is allowed; how many ways were lost, their rows being left as
    they are."""
    lost = 0
    for place in range(len(rows)):
        keys = np.flatnonzero(allowed[place])
        total = 0.0
        for key in keys:
            total += rows[place, key]
        if len(keys) < 2 or total <= 0.0:
            continue
        points = _orthonormal(kept[:, place, :], keys)
        if points.shape[1] >= len(keys):
            continue
        row, cost = np.empty(len(keys)), np.empty(len(keys))
        for index in range(len(keys)):
            row[index], cost[index] = rows[place, keys[index]] / total, costs[place, keys[index]]
        basic = first_basis(points)
        free = free_keys(basic, len(keys))
        tableau, weights = tableau_of(points, basic, free), np.empty(points.shape[1])
        since = to_corner(row, basic, free, tableau, weights)
        since = walk(points, row, cost, basic, free, tableau, weights, since, period, 50 * len(keys))
        if since < 0:
            lost += 1
            continue
        for key in keys:
            corners[place, key] = 0.0
        for index in range(len(basic)):
            corners[place, keys[basic[index]]] = total * weights[index]
    return lost


@compiled
def _orthonormal(kept: Numbers, keys: NDArray[np.int64]) -> Numbers:
    """Orthonormal columns [key, constraint] that span the ones and the numbers over some keys, those of others' span
    left out."""
    count = len(keys)
    columns = np.empty((count, len(kept) + 1))
    columns[:, 0] = 1.0 / np.sqrt(count)
    used = 1
    for number in range(len(kept)):
        if used >= count:
            break
        for index in range(count):
            columns[index, used] = kept[number, keys[index]]
        # What all keys have in common is kept by the sum already, and says nothing of how large the others are.
        mean = columns[:, used].mean()
        columns[:, used] -= mean
        before = np.sqrt((columns[:, used] ** 2).sum())
        if before <= 1e-14 * abs(mean) or before == 0.0:
            continue
        columns[:, used] /= before
        for _ in range(2):  # once more: what the first pass leaves is rounding
            for other in range(used):
                along = 0.0
                for index in range(count):
                    along += columns[index, other] * columns[index, used]
                for index in range(count):
                    columns[index, used] -= along * columns[index, other]
        after = np.sqrt((columns[:, used] ** 2).sum())
        if after > _SAME:
            columns[:, used] /= after
            used += 1
    return columns[:, :used].copy()
