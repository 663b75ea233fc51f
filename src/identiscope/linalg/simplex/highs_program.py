"""Linear programs over all rows with the same output by HiGHS, for the rows on which the walk of corners is lost."""

from functools import cached_property

import highspy
import numpy as np

from identiscope.errors import MathError
from identiscope.linalg.simplex.corner import vertex
from identiscope.linalg.tolerance import PROGRAM_FEASIBILITY, VERTEX_ROUNDING

#: HiGHS's name for the primal simplex method: a vertex stays feasible when only the cost changes, so each program
#: starts from the vertex the last one ended on.
_PRIMAL = 4
_OPTIMAL = highspy.HighsModelStatus.kOptimal
#: How often a program is solved in smaller and smaller units.
ZOOMS = 4
#: A bound this many units away is none.
FAR = 1e6


class HighsPrograms:
    """The rows a' ≥ 0 with a'·basis = row·basis, asked again and again for one of least cost.

    What is solved for is the change a' − row, which has nothing to keep but zero. Where a row is nearly one-hot all
    changes are small, and the program is solved again in units of them: HiGHS's tolerances are absolute.

    >>> programs = HighsPrograms(np.full((2, 1), 0.5**0.5), np.array([0.5, 0.5]))
    >>> programs.best(np.array([1.0, 0.0])), programs.best(np.array([0.0, 1.0]))
    (array([0., 1.]), array([1., 0.]))
    """

    def __init__(self, basis: np.ndarray, row: np.ndarray) -> None:
        self._basis, self._row, self._total = basis, row, float(row.sum())
        self._start = row / self._total if self._total > 0 else row
        self._unit = 1.0

    def best(self, cost: np.ndarray) -> np.ndarray:
        """A row of least cost·a', as a vertex solved again in float64. Never worse than the row itself."""
        keys, constraints = self._basis.shape
        if self._total <= 0 or constraints >= keys:
            return self._row.copy()
        best, unit = self._start, 1.0
        for _ in range(ZOOMS):
            basic = self._basic(cost, unit)
            if basic is None:
                break
            new = vertex(self._basis, self._start, basic)
            reached = float(np.abs(new - self._start).max())
            if new.min() >= 0 and float(np.abs((new - self._start) @ self._basis).max()) <= VERTEX_ROUNDING:
                best = new
                break
            # Not exact: as far towards it as weights stay non-negative, until it is known better.
            nearer = _as_far_as_feasible(self._basis, self._start, new)
            best = nearer if float(cost @ nearer) < float(cost @ best) else best
            if not 0 < reached < unit:
                break
            unit = reached
        made: np.ndarray = self._total * best
        return made if float(cost @ made) <= float(cost @ self._row) else self._row.copy()

    def _basic(self, cost: np.ndarray, unit: float) -> np.ndarray | None:
        """Which weights HiGHS leaves free at the vertex it finds; None where it calls the row itself infeasible."""
        solver, keys = self._solver, len(self._row)
        every = np.arange(keys, dtype=np.int32)
        if unit != self._unit:
            lower = -self._start / unit
            # A weight that is far from zero in these units is not bounded by it.
            lower[lower < -FAR] = -highspy.kHighsInf
            solver.changeColsBounds(keys, every, lower, np.full(keys, highspy.kHighsInf))
            self._unit = unit
        solver.changeColsCost(keys, every, np.asarray(cost, dtype=np.float64))
        solver.run()
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            # Once more without what is left of earlier programs.
            solver.clearSolver()
            solver.run()
        status = solver.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible or (status != _OPTIMAL and unit != 1.0):
            # The row itself is feasible, up to rounding that HiGHS did not forgive: nothing better is known.
            return None
        if status != _OPTIMAL:
            raise MathError(
                f"the linear program over {keys} keys and {self._basis.shape[1]} constraints failed: "
                f"{solver.modelStatusToString(status)}; check that the row is non-negative and finite"
            )
        return np.array([status == highspy.HighsBasisStatus.kBasic for status in solver.getBasis().col_status])

    @cached_property
    def _solver(self) -> highspy.Highs:
        keys, constraints = self._basis.shape
        program = highspy.HighsLp()
        program.num_col_, program.num_row_ = keys, constraints
        program.col_cost_, program.col_lower_ = np.zeros(keys), -self._start
        program.col_upper_ = np.full(keys, highspy.kHighsInf)
        program.row_lower_ = program.row_upper_ = np.zeros(constraints)
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


def _as_far_as_feasible(basis: np.ndarray, row: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The last row on the way from one to another that keeps the output and has no negative weight."""
    change = other - row
    for _ in range(2):  # what leaves the null space is rounding, and so is what the first projection leaves
        change = change - basis @ (basis.T @ change)
    falling = change < 0
    step = float(np.min(row[falling] / -change[falling], initial=1.0))
    reached: np.ndarray = np.maximum(row + step * change, 0.0)
    return reached
