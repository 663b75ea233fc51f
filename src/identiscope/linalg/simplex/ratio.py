"""The least and the most of a quotient of two linear functions over all rows with the same output."""

import numpy as np

from identiscope.linalg.simplex.row_programs import RowPrograms
from identiscope.linalg.tolerance import LEAST_DENOMINATOR, NEWTON_FINISHED

#: Each step at least squares the error, so that few are ever taken.
_STEPS = 50


def ratio_bounds(programs: RowPrograms, over: np.ndarray, under: np.ndarray) -> tuple[float, float] | None:
    """[min, max] of (over·a)/(under·a), under ≥ 0; None where the denominator can be zero, for all one can tell.

    By Dinkelbach's method: the quotient q is best where the best of over·a − q·under·a is zero, and the quotient of the
    row that is best for a q is a better one.

    >>> programs = RowPrograms(np.full((3, 1), 3**-0.5), np.array([0.5, 0.25, 0.25]))
    >>> ratio_bounds(programs, np.array([1.0, 0, 0]), np.ones(3))
    (0.0, 1.0)
    >>> ratio_bounds(programs, np.array([1.0, 0, 0]), np.array([1.0, 1, 0])) is None
    True
    """
    least = programs.best(under)
    # Written so that what is not a number is none, too.
    if not float(under @ least) > LEAST_DENOMINATOR * float(np.abs(under).max(initial=0.0)) * float(least.sum()):
        return None
    ends = []
    for sign in (1.0, -1.0):
        row = programs.best(sign * over)
        quotient = float(over @ row) / float(under @ row)
        for _ in range(_STEPS):
            row = programs.best(sign * (over - quotient * under))
            if sign * float((over - quotient * under) @ row) >= -NEWTON_FINISHED * float(np.abs(row).sum()):
                break
            quotient = float(over @ row) / float(under @ row)
        ends.append(quotient)
    return ends[0], ends[1]
