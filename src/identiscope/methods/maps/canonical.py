"""Canonical attention: of all attention rows with the same output, the shortest."""

import warnings

import torch
from torch import Tensor

from identiscope.linalg.allowed import Allowed, check_attention, describe_allowed
from identiscope.linalg.rank.projection_factor import ProjectionFactor
from identiscope.linalg.simplex.constraints import head_constraints
from identiscope.linalg.simplex.minimum_norm import minimum_norm_rows
from identiscope.linalg.tolerance import NEWTON_ACCEPTED
from identiscope.methods.maps.effective import as_factor
from identiscope.methods.maps.factored import FactoredAttention, RawRows, raw_block, row_slices


@torch.no_grad()
def canonical(
    value: Tensor,
    projection: Tensor | ProjectionFactor,
    raw: RawRows,
    queries: int | None = None,
    allowed: Allowed = None,
    precision: torch.dtype | None = None,
) -> FactoredAttention:
    """The minimum-norm row of {a ≥ 0, a·[T,1] = A·[T,1]}, for every row (the open question of §3.4 and §7).

    Unique, always feasible (A is), the same for all attention with this output: rows sum to what A's sum to
    and are zero outside the `allowed` keys. `value` [kv_head, key, channel], `raw` gives the attention of a
    slice of queries; `queries` is their number (default: that of the keys). The `residual` [head, query] of
    the answer is ‖a·[T,1] − A·[T,1]‖ in orthonormal coordinates, the only KKT condition that can fail; a warning
    says so where it does, as it may for rows on keys that are equal to many digits.

    >>> from identiscope.methods.maps.factored import rows_of
    >>> attention = torch.tensor([[[0.5, 0.25, 0.25]]])
    >>> canonical(torch.ones(1, 3, 1), torch.ones(1, 1, 1), rows_of(attention), queries=1).dense()
    tensor([[[0.3333, 0.3333, 0.3333]]], dtype=torch.float64)
    """
    factor = as_factor(projection)
    heads, keys, channels = len(factor.triangle), value.shape[1], value.shape[2]
    described = describe_allowed(allowed, keys if queries is None else queries, keys, value.device)
    shape = (heads, described.queries, keys)
    left = torch.zeros(heads, described.queries, channels + 1, dtype=torch.float64, device=value.device)
    right = left.new_zeros(heads, keys, channels + 1)
    residual = left.new_zeros(shape[:2])
    constraints = [head_constraints(value, factor, head, precision) for head in range(heads)]
    for head, constraint in enumerate(constraints):
        right[head, :, : constraint.basis.shape[1]] = constraint.basis
    for rows in row_slices(shape):
        weights = raw_block(raw, rows, shape)
        inside = None if described.everything else described.block(rows)
        check_attention(weights, inside)
        for head, constraint in enumerate(constraints):
            basis = constraint.basis
            shortest = minimum_norm_rows(basis, weights[head] @ basis, inside)
            left[head, rows, : basis.shape[1]] = shortest.dual
            residual[head, rows] = shortest.residual
    unsolved = residual > NEWTON_ACCEPTED
    if bool(unsolved.any()):
        warnings.warn(
            f"canonical attention keeps the output to only {float(residual.max()):.0e} in the worst of "
            f"{int(unsolved.sum())} of {unsolved.numel()} rows; `residual` says which",
            stacklevel=2,
        )
    return FactoredAttention(left, right, described, clipped=True, raw=raw, residual=residual)
