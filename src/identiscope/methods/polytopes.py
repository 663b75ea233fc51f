"""From the tensors of a site to the rows of one head and their polytopes: what intervals and alternatives share."""

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.allowed import Allowed, AllowedKeys, describe_allowed
from identiscope.linalg.polytope import RowPolytope, row_polytope
from identiscope.linalg.projection_factor import ProjectionFactor
from identiscope.linalg.simplex_constraints import SimplexConstraints, head_constraints
from identiscope.methods.effective import as_factor
from identiscope.methods.factored import RawRows, raw_block


def whole_number(given: Any, name: str, expected: str) -> int:
    """A whole number of Python, NumPy or torch as an int, or an InputError that says what was expected."""
    try:
        return operator.index(given)
    except TypeError:
        raise InputError(f"{name}={given!r} was given, expected {expected}: a whole number") from None


def whole_numbers(given: Any, name: str, expected: str) -> list[int]:
    """One whole number or several as a list with at least one."""
    if isinstance(given, (str, bytes)):
        several = None
    elif hasattr(given, "__iter__") and getattr(given, "ndim", 1) != 0:
        several = list(given)
    else:
        several = [given]
    if not several:
        raise InputError(f"{name}={given!r} was given, expected {expected}: one whole number or several")
    return [whole_number(one, name, expected) for one in several]


@dataclass(frozen=True)
class HeadRows:
    """The attention rows of one head, their allowed keys, and what each must keep."""

    value: Tensor
    factor: ProjectionFactor
    raw: RawRows
    head: int
    allowed: AllowedKeys
    precision: torch.dtype | None
    common: SimplexConstraints | None

    def row(self, query: int) -> Tensor:
        """Raw attention [key] of one query."""
        shape = (len(self.factor.triangle), self.allowed.queries, self.allowed.keys)
        return raw_block(self.raw, slice(query, query + 1), shape)[self.head, 0]

    def polytope(self, query: int) -> RowPolytope:
        """All rows with the same output as that of one query."""
        query = whole_number(query, "query", "one query position")
        inside, row = self.allowed.row(query), self.row(query)
        constraint = self.common
        if constraint is None:
            constraint = head_constraints(self.value[:, inside], self.factor, self.head, self.precision)
        return row_polytope(constraint, row, inside)


def head_rows(
    value: Tensor,
    output_projection: Tensor | ProjectionFactor,
    raw: RawRows,
    head: int,
    queries: int | None,
    allowed: Allowed,
    precision: torch.dtype | None,
) -> HeadRows:
    """Describe one head; where all rows have all keys, its constraints are computed once."""
    factor, keys = as_factor(output_projection), value.shape[1]
    if not 0 <= head < len(factor.triangle):
        raise InputError(f"head {head} was asked for, expected one of 0 to {len(factor.triangle) - 1}")
    described = describe_allowed(allowed, keys if queries is None else queries, keys)
    common = head_constraints(value, factor, head, precision) if described.everything else None
    return HeadRows(value, factor, raw, head, described, precision, common)
