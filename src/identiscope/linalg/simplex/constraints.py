"""What a row must keep for the output to stay the same, in orthonormal coordinates."""

from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.rank.column_space import orthogonal_column_space
from identiscope.linalg.rank.coordinates import coordinates
from identiscope.linalg.rank.projection_factor import ProjectionFactor
from identiscope.linalg.tolerance import output_resolution


@dataclass(frozen=True)
class SimplexConstraints:
    """Orthonormal basis [key, direction] of col([T,1]) of one head, and T itself up to rotation [key, channel].

    A row a' gives the output and row sum of a exactly if a'·basis = a·basis; it gives the same output if
    a'·rows = a·rows, in the norm of the output.
    """

    basis: Tensor
    rows: Tensor


def simplex_constraints(value: Tensor, factor: ProjectionFactor, precision: torch.dtype) -> SimplexConstraints:
    """Constraints of one head from its values [key, channel] and its factor (of that head alone).

    Directions down to the resolution of an output in `precision` are kept, so that whatever satisfies the
    constraints leaves the output alone beyond rounding. A value bias makes no difference: it moves every
    row of T by the same vector, and the row sum is kept.
    """
    points = coordinates(value[None], factor, precision, with_ones=True)
    # Centring first would do as well; appending the ones keeps one code path for ranks and constraints.
    space = orthogonal_column_space(points, output_resolution(precision))
    rank = int(space.spectrum.rank[0])
    rows = value.double() @ factor.triangle[0].mT
    return SimplexConstraints(space.right[0, :, :rank].contiguous(), rows)


def head_constraints(
    value: Tensor, factor: ProjectionFactor, head: int, precision: torch.dtype | None
) -> SimplexConstraints:
    """Constraints of one of many heads, from the values [kv_head, key, channel] they share."""
    heads = len(factor.triangle)
    if value.ndim != 3 or not len(value) or heads % len(value):
        raise InputError(
            f"values of shape {list(value.shape)} were given for {heads} heads, expected "
            f"[kv_head, key, channel] with a number of value heads that divides {heads}"
        )
    if not -heads <= head < heads:
        raise InputError(f"head {head} was asked for, expected one of {heads}")
    head %= heads
    return simplex_constraints(
        value[head // (heads // len(value))], factor.of_head(head), value.dtype if precision is None else precision
    )
