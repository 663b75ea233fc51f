"""From the tensors of a site to the rows of one head and their polytopes: what intervals and alternatives share."""

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.allowed import Allowed, AllowedKeys, describe_allowed
from identiscope.linalg.devices import on_cpu
from identiscope.linalg.rank.projection_factor import ProjectionFactor
from identiscope.linalg.simplex.constraints import SimplexConstraints, head_constraints
from identiscope.linalg.simplex.polytope import RowPolytope, row_polytope
from identiscope.methods.equal_keys import Equal, key_groups
from identiscope.methods.maps.effective import as_factor
from identiscope.methods.maps.factored import RawRows, raw_block


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
    """The attention rows of one head, their allowed keys, and what each must keep; on the CPU, but for `raw`.

    radii [query]: how far the output of each row may move; not at all without.
    """

    value: Tensor
    factor: ProjectionFactor
    raw: RawRows
    head: int
    allowed: AllowedKeys
    precision: torch.dtype | None
    common: SimplexConstraints | None
    radii: Tensor | None = None

    def row(self, query: int) -> Tensor:
        """Raw attention [key] of one query."""
        shape = (len(self.factor.triangle), self.allowed.queries, self.allowed.keys)
        return on_cpu(raw_block(self.raw, slice(query, query + 1), shape)[self.head, 0])

    def groups(self, equal: Equal, copies: Tensor | None) -> Tensor:
        """The number of the group of equal keys that each key is of, [key]; copies: those of equal tokens."""
        group = self.head // (len(self.factor.triangle) // len(self.value))
        own = self.value[group : group + 1], self.factor.of_head(self.head)
        return key_groups(*own, equal, copies, self.precision).view(-1)

    def polytope(self, query: int, row: Tensor | None = None) -> RowPolytope:
        """All rows with the same output as that of one query; row: its raw attention [key], if that is at hand."""
        query = whole_number(query, "query", "one query position")
        inside, row = self.allowed.row(query), self.row(query) if row is None else row
        constraint = self.common
        if constraint is None:
            constraint = head_constraints(self.value[:, inside], self.factor, self.head, self.precision)
        return row_polytope(constraint, row, inside, 0.0 if self.radii is None else float(self.radii[query]))


def head_rows(
    value: Tensor,
    projection: Tensor | ProjectionFactor,
    raw: RawRows,
    head: int = 0,
    queries: int | None = None,
    allowed: Allowed = None,
    precision: torch.dtype | None = None,
    radii: Tensor | None = None,
) -> HeadRows:
    """Describe one head; where all rows have all keys, its constraints are computed once. radii: see `HeadRows`.

    Linear programs are solved on the CPU, so all that they need is taken there here.
    """
    cpu = torch.device("cpu")
    value, factor, keys = on_cpu(value), as_factor(projection).to(cpu), value.shape[1]
    if not 0 <= head < len(factor.triangle):
        raise InputError(f"head {head} was asked for, expected one of 0 to {len(factor.triangle) - 1}")
    described = describe_allowed(allowed, keys if queries is None else queries, keys, cpu)
    common = head_constraints(value, factor, head, precision) if described.everything else None
    return HeadRows(value, factor, raw, head, described, precision, common, radii)


def output_radii(epsilon: float, output_size: Tensor | None) -> Tensor | None:
    """How far the output of each row may move, [query]: a share ε of the length of the attention block's output.

    >>> output_radii(0.01, torch.tensor([2.0])), output_radii(0.0, None)
    (tensor([0.0200], dtype=torch.float64), None)
    """
    if isinstance(epsilon, bool) or not isinstance(epsilon, (int, float)) or not 0 <= epsilon < float("inf"):
        raise InputError(
            f"epsilon={epsilon!r} was given; expected a share of the output of 0 or more, such as 0.01 for one in a"
            " hundred."
        )
    if epsilon == 0:
        return None
    if output_size is None:
        raise InputError(f"epsilon={epsilon} was given without the size of the output that it is a share of.")
    return float(epsilon) * on_cpu(output_size).double()
