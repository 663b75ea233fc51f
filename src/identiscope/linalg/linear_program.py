"""Linear programs over all rows with the same output, with vertices exact to float64."""

from functools import cached_property

import highspy
import numpy as np

from identiscope.errors import MathError
from identiscope.linalg.tolerance import PROGRAM_FEASIBILITY, VERTEX_ZERO

#: HiGHS's name for the primal simplex method: a vertex stays feasible when only the cost changes, so each program
#: starts from the vertex the last one ended on.
_PRIMAL = 4


class RowPrograms:
    """The rows a' ≥ 0 with a'·basis = row·basis, asked again and again for one of least cost.

    >>> programs = RowPrograms(np.full((2, 1), 0.5**0.5), np.array([0.5, 0.5]))
    >>> programs.best(np.array([1.0, 0.0])), programs.best(np.array([0.0, 1.0]))
    (array([0., 1.]), array([1., 0.]))
    """

    def __init__(self, basis: np.ndarray, row: np.ndarray) -> None:
        self._basis, self._row, self._total = basis, row, float(row.sum())
        # The row sum is a constraint of the basis; scaling it to one makes HiGHS's absolute tolerances relative.
        self._target = row @ basis / self._total if self._total > 0 else row @ basis

    def best(self, cost: np.ndarray) -> np.ndarray:
        """A row of least cost·a', as a vertex solved again in float64. Never worse than the row itself."""
        keys, constraints = self._basis.shape
        if self._total <= 0 or constraints >= keys:
            return self._row.copy()
        vertex = self._vertex(cost)
        if vertex is None:
            return self._row.copy()
        found: np.ndarray = self._total * polish(self._basis, self._target, vertex)
        return found if float(cost @ found) <= float(cost @ self._row) else self._row.copy()

    def _vertex(self, cost: np.ndarray) -> np.ndarray | None:
        """What HiGHS finds; None where it calls the row's own constraints infeasible."""
        solver, keys = self._solver, len(self._row)
        solver.changeColsCost(keys, np.arange(keys, dtype=np.int32), np.asarray(cost, dtype=np.float64))
        solver.run()
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            # Once more without what is left of earlier programs.
            solver.clearSolver()
            solver.run()
        status = solver.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            # The row itself is feasible, up to rounding that HiGHS did not forgive: nothing better is known.
            return None
        if status != highspy.HighsModelStatus.kOptimal:
            raise MathError(
                f"the linear program over {keys} keys and {self._basis.shape[1]} constraints failed: "
                f"{solver.modelStatusToString(status)}; check that the row is non-negative and finite"
            )
        return np.array(solver.getSolution().col_value)

    @cached_property
    def _solver(self) -> highspy.Highs:
        keys, constraints = self._basis.shape
        program = highspy.HighsLp()
        program.num_col_, program.num_row_ = keys, constraints
        program.col_cost_, program.col_lower_ = np.zeros(keys), np.zeros(keys)
        program.col_upper_ = np.full(keys, highspy.kHighsInf)
        program.row_lower_ = program.row_upper_ = self._target
        program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        program.a_matrix_.start_ = constraints * np.arange(keys + 1)
        program.a_matrix_.index_ = np.tile(np.arange(constraints), keys)
        program.a_matrix_.value_ = np.ravel(self._basis)
        solver = highspy.Highs()
        for name, value in {
            "output_flag": False,
            "presolve": "off",
            "simplex_strategy": _PRIMAL,
            "primal_feasibility_tolerance": PROGRAM_FEASIBILITY,
            "dual_feasibility_tolerance": PROGRAM_FEASIBILITY,
        }.items():
            solver.setOptionValue(name, value)
        solver.passModel(program)
        return solver


def polish(basis: np.ndarray, target: np.ndarray, vertex: np.ndarray) -> np.ndarray:
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
