"""Rows whose output moves by at most a given length, in two plain ways: by cutting planes, and support by support.

By cutting planes it is one linear program after another. A ball is the intersection of half-spaces. The best row over
the half-spaces that are known is a linear program; if its output moves too far, the half-space at that point is added.
In the end it moves by no more than the length, but for one part in a million. That takes long where outputs have many
directions.

Of few keys every set of them can be tried. Some best row has its weights above zero on a set whose outputs are
independent, and there no weight holds it: it is the point of an ellipsoid that is farthest against the cost, which has
a closed form, or the only row of a single key.
"""

from itertools import combinations

import numpy as np
from scipy.optimize import linprog


def best_row(points: np.ndarray, row: np.ndarray, radius: float, cost: np.ndarray) -> np.ndarray:
    """The row of least cost·x with x ≥ 0, Σx = Σrow and ‖(x − row)·points‖ ≤ radius."""
    # In units of the length: the tolerances of the program are absolute.
    keys, scaled = len(row), points / radius
    cuts = [sign * column for column in scaled.T for sign in (1.0, -1.0)]
    for _ in range(500):
        found = linprog(
            cost, A_ub=np.array(cuts), b_ub=1.0 + np.array(cuts) @ row, A_eq=np.ones((1, keys)), b_eq=[row.sum()],
            bounds=(0, None), method="highs",
        )  # fmt: skip
        assert found.status == 0
        moved = (found.x - row) @ scaled
        length = float(np.linalg.norm(moved))
        if length <= 1 + 1e-6:
            best: np.ndarray = found.x
            return best
        cuts.append(scaled @ (moved / length))
    raise AssertionError("cutting planes did not end")


def best_of_supports(points: np.ndarray, row: np.ndarray, radius: float, cost: np.ndarray) -> np.ndarray:
    """The same by trying every set of keys, for few of them."""
    best = row
    for size in range(1, len(row) + 1):
        for keys in map(list, combinations(range(len(row)), size)):
            x = _best_on(points, row, radius, cost, keys)
            if x is not None and x.min() >= 0 and cost @ x < cost @ best:
                best = x
    return best


def _best_on(
    points: np.ndarray, row: np.ndarray, radius: float, cost: np.ndarray, keys: list[int]
) -> np.ndarray | None:
    """The best of all x with weights, of whatever sign, on some keys alone; None where there is none, or no single
    one."""
    even = np.zeros(len(row))
    even[keys] = row.sum() / len(keys)
    # Directions that keep the sum: from the first key to each other one.
    ways = np.zeros((len(row), len(keys) - 1))
    ways[keys[0]] = -1.0
    ways[keys[1:], range(len(keys) - 1)] = 1.0
    moves, away = (ways.T @ points).T, (even - row) @ points
    if np.linalg.matrix_rank(moves) < len(keys) - 1:
        return None
    nearest = -np.linalg.lstsq(moves, away, rcond=None)[0]
    room = radius**2 - float(np.sum((away + moves @ nearest) ** 2))
    if room < 0:
        return None
    slope = ways.T @ cost
    towards = np.linalg.solve(moves.T @ moves, slope)
    length = np.sqrt(max(slope @ towards, 0.0))
    step = np.sqrt(room) / length * towards if length > 0 else 0.0 * towards
    best: np.ndarray = even + ways @ (nearest - step)
    return best
