"""Directions in which one attention row may move without changing the output."""

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.allowed import Allowed, describe_allowed
from identiscope.linalg.column_space import orthogonal_column_space
from identiscope.linalg.coordinates import coordinates
from identiscope.linalg.projection_factor import ProjectionFactor
from identiscope.methods.effective import as_factor


def null_space_basis(
    value: Tensor,
    output_projection: Tensor | ProjectionFactor,
    *,
    head: int,
    query: int | None = None,
    queries: int | None = None,
    allowed: Allowed = None,
    simplex: bool = True,
    precision: torch.dtype | None = None,
    value_bias: Tensor | None = None,
) -> Tensor:
    """Orthonormal rows [direction, key] that span LN([T,1]) of one head (eq. 7a, 7b), or LN(T) (eq. 4).

    For one `query`, over that row's `allowed` keys (zero elsewhere). Held on demand only: it is n×n in size.

    >>> null_space_basis(torch.ones(1, 2, 1), torch.ones(1, 1, 1), head=0).abs()
    tensor([[0.7071, 0.7071]], dtype=torch.float64)
    """
    factor, keys = as_factor(output_projection), value.shape[1]
    heads = len(factor.triangle)
    if not 0 <= head < heads:
        raise InputError(f"head {head} was asked for, expected one of 0 to {heads - 1}")
    described = describe_allowed(allowed, keys if queries is None else queries, keys)
    if query is None and not described.everything:
        raise InputError("rows have different allowed keys here; pass query= to say which row's null space")
    inside = described.row(0 if query is None else query)
    kv_head = head // (heads // len(value))
    bias = None if value_bias is None or simplex else value_bias[kv_head : kv_head + 1]
    points = coordinates(
        value[kv_head : kv_head + 1, inside], factor.of_head(head), precision, value_bias=bias, with_ones=simplex
    )
    space = orthogonal_column_space(points)
    rank = int(space.spectrum.rank[0])
    complete = torch.linalg.qr(space.right[0, :, :rank], mode="complete").Q
    basis: Tensor = complete.new_zeros(int(inside.sum()) - rank, keys)
    basis[:, inside] = complete[:, rank:].mT
    return basis
