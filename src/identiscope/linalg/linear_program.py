"""Linear programs over all rows with the same output, with vertices exact to float64."""

import numpy as np
from scipy.optimize import linprog

from identiscope.errors import MathError
from identiscope.linalg.tolerance import PROGRAM_FEASIBILITY, VERTEX_ZERO


def best_row(basis: np.ndarray, row: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """Row a' ≥ 0 with a'·basis = row·basis and the least cost·a', as a vertex solved again in float64.

    Never worse than `row` itself, which is one of the candidates.

    >>> best_row(np.full((2, 1), 0.5**0.5), np.array([0.5, 0.5]), np.array([1.0, 0.0]))
    array([0., 1.])
    """
    total = float(row.sum())
    if total <= 0 or basis.shape[1] >= len(row):
        return row.copy()
    # The row sum is a constraint of the basis; scaling it to one makes HiGHS's absolute tolerances relative.
    target = row @ basis / total
    solved = linprog(
        cost, A_eq=basis.T, b_eq=target, bounds=(0, None), method="highs-ds",
        options={
            "primal_feasibility_tolerance": PROGRAM_FEASIBILITY,
            "dual_feasibility_tolerance": PROGRAM_FEASIBILITY,
        },
    )  # fmt: skip
    if solved.x is None:
        if solved.status == 2:
            # The row itself is feasible, up to rounding that HiGHS did not forgive: nothing better is known.
            return row.copy()
        raise MathError(
            f"the linear program over {len(row)} keys and {basis.shape[1]} constraints failed: "
            f"{solved.message}; check that the row is non-negative and finite"
        )
    found = total * _polish(basis, target, np.asarray(solved.x))
    return found if float(cost @ found) <= float(cost @ row) else row.copy()


def _polish(basis: np.ndarray, target: np.ndarray, vertex: np.ndarray) -> np.ndarray:
    """Solve the vertex's own equations again: its non-zero weights are determined by the constraints."""
    support = vertex > VERTEX_ZERO
    exact: np.ndarray = np.zeros_like(vertex)
    solution, *_ = np.linalg.lstsq(basis[support].T, target, rcond=None)
    exact[support] = solution
    rough: np.ndarray = np.maximum(vertex, 0)
    if exact.min() < -VERTEX_ZERO:
        return rough
    exact = np.maximum(exact, 0)
    better = np.linalg.norm(exact @ basis - target) <= np.linalg.norm(rough @ basis - target)
    return exact if better else rough
