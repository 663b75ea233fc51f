"""All attention rows with the same output as one given row, or with one that is at most so far from it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from identiscope.linalg.allowed import check_attention
from identiscope.linalg.simplex.cone import ConePrograms, box_bounds
from identiscope.linalg.simplex.constraints import SimplexConstraints
from identiscope.linalg.simplex.row_programs import RowPrograms


@dataclass(frozen=True)
class Certificate:
    """What makes a row, or a whole map, an alternative: how little it breaks, as the largest over its rows.

    `least_weight` is its smallest weight (negative: not attention), `row_sum_error` the largest change of a
    row sum, `output_error` the largest ‖a'T − aT‖ and `output_error_relative` that over ‖aT‖.
    """

    least_weight: float
    row_sum_error: float
    output_error: float
    output_error_relative: float


@dataclass(frozen=True)
class RowPolytope:
    """{a ≥ 0, a·[T,1] = row·[T,1]} of one head and query, over its `allowed` keys (indices of the full row).

    `basis` [allowed, direction] spans col([T,1]), `points` [allowed, channel] is T up to rotation. With a `radius`
    above zero the output may move by so much: {a ≥ 0, Σa = Σrow, ‖(a − row)·T‖ ≤ radius}.
    """

    row: np.ndarray
    basis: np.ndarray
    points: np.ndarray
    allowed: np.ndarray
    keys: int
    radius: float = 0.0

    @property
    def fixed(self) -> bool:
        """Whether the row is the only one."""
        return len(self.row) == 1 or (self.radius == 0 and self.freedom == 0)

    @property
    def freedom(self) -> int:
        """Dimension of LN([T,1]): 0 means that the row is identifiable."""
        return len(self.row) - int(self.basis.shape[1])

    def best(self, cost: np.ndarray) -> np.ndarray:
        """Row over the allowed keys of least cost."""
        return self.best_with_gap(cost)[0]

    def best_with_gap(self, cost: np.ndarray) -> tuple[np.ndarray, float]:
        """The same, and by how much less one may cost at most: nothing where the output stays, which is exact."""
        if self.radius > 0:
            return self._cone.best_with_gap(cost)
        return self._programs.best(cost), 0.0

    def box(self, cost: np.ndarray) -> tuple[tuple[float, float], tuple[float, float]]:
        """Outer and inner bounds of the least and the most of a cost, by linear programs over boxes."""
        return box_bounds(self.points, self.row, self.radius, cost)

    @cached_property
    def _programs(self) -> RowPrograms:
        return RowPrograms(self.basis, self.row)

    @cached_property
    def _cone(self) -> ConePrograms:
        return ConePrograms(self.points, self.row, self.radius, self.basis)

    def full(self, row: np.ndarray) -> Tensor:
        """A row over the allowed keys as a row over all keys."""
        spread = torch.zeros(self.keys, dtype=torch.float64)
        spread[torch.from_numpy(self.allowed)] = torch.from_numpy(np.ascontiguousarray(row))
        return spread

    def certificate(self, row: np.ndarray) -> Certificate:
        """How well a row over the allowed keys keeps what it must."""
        return certify(torch.from_numpy(self.points), torch.from_numpy(self.row)[None], torch.from_numpy(row)[None])


def certify(points: Tensor, rows: Tensor, alternative: Tensor) -> Certificate:
    """Certificate of alternative rows [row, key] for rows [row, key], with T up to rotation [key, channel]."""
    change = ((alternative - rows) @ points).norm(dim=-1)
    size = (rows @ points).norm(dim=-1)
    relative = torch.where(size > 0, change / torch.where(size > 0, size, 1), change)
    return Certificate(
        float(alternative.min()),
        float((alternative.sum(-1) - rows.sum(-1)).abs().max()),
        float(change.max()),
        float(relative.max()),
    )


def worst_certificate(certificates: Sequence[Certificate]) -> Certificate:
    """What holds for all of several rows; NaN in any of them is NaN here, since it certifies nothing."""
    # NumPy's extremes keep a NaN wherever it stands; those of Python drop it, depending on the order.
    return Certificate(
        float(np.min([one.least_weight for one in certificates])),
        float(np.max([one.row_sum_error for one in certificates])),
        float(np.max([one.output_error for one in certificates])),
        float(np.max([one.output_error_relative for one in certificates])),
    )


def row_polytope(constraint: SimplexConstraints, row: Tensor, inside: Tensor, radius: float = 0.0) -> RowPolytope:
    """Polytope of one row of raw attention [key], over the keys where `inside` [key] is true."""
    check_attention(row, inside)
    return RowPolytope(
        row[inside].double().numpy(),
        np.ascontiguousarray(constraint.basis.numpy()),
        constraint.rows.numpy(),
        inside.nonzero()[:, 0].numpy(),
        len(row),
        radius,
    )
