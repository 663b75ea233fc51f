"""A corner of all rows with the same output, exact to float64."""

import contextlib

import numpy as np

from identiscope.linalg.tolerance import VERTEX_ROUNDING


def vertex(basis: np.ndarray, row: np.ndarray, basic: np.ndarray) -> np.ndarray:
    """The row with the output of `row` whose weights are zero but for the `basic` ones, solved in float64.

    A free weight that is zero up to rounding is zero. One below that is left as it is: then this is no vertex.
    """
    equations = basis[basic].T
    wanted = basis[~basic].T @ row[~basic]
    change = _solved(equations, wanted)
    corner = np.zeros_like(row)
    corner[basic] = row[basic] + change
    corner[np.abs(corner) <= VERTEX_ROUNDING / 8] = 0.0
    return corner


def _solved(equations: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The least change that does what is wanted, refined once: what is left of the equations is solved for too.

    As many equations as weights have one solution, which elimination finds in a tenth of the time, unless they are
    singular, or so nearly that what is left says so.
    """
    if equations.shape[0] == equations.shape[1]:
        with contextlib.suppress(np.linalg.LinAlgError), np.errstate(all="ignore"):
            inverse = np.linalg.inv(equations)
            change: np.ndarray = inverse @ wanted
            change = change + inverse @ (wanted - equations @ change)
            # Written so that what is not a number is not exact.
            if float(np.abs(equations @ change - wanted).max(initial=0)) <= VERTEX_ROUNDING / 8:
                return change
    change, *_ = np.linalg.lstsq(equations, wanted, rcond=None)
    refined: np.ndarray = change + np.linalg.lstsq(equations, wanted - equations @ change, rcond=None)[0]
    return refined
