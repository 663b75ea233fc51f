"""A corner of all rows with the same output, exact to float64."""

import numpy as np

from identiscope.linalg.tolerance import VERTEX_ROUNDING


def vertex(basis: np.ndarray, row: np.ndarray, basic: np.ndarray) -> np.ndarray:
    """The row with the output of `row` whose weights are zero but for the `basic` ones, solved in float64.

    A free weight that is zero up to rounding is zero. One below that is left as it is: then this is no vertex.
    """
    equations = basis[basic].T
    wanted = basis[~basic].T @ row[~basic]
    change, *_ = np.linalg.lstsq(equations, wanted, rcond=None)
    # Once more: what is left of the equations is solved for too.
    change = change + np.linalg.lstsq(equations, wanted - equations @ change, rcond=None)[0]
    corner = np.zeros_like(row)
    corner[basic] = row[basic] + change
    corner[np.abs(corner) <= VERTEX_ROUNDING / 8] = 0.0
    return corner
