"""Directions in which one attention row may move without changing the output."""

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.allowed import Allowed, describe_allowed
from identiscope.linalg.rank.column_space import orthogonal_column_space
from identiscope.linalg.rank.coordinates import coordinates
from identiscope.linalg.rank.projection_factor import ProjectionFactor
from identiscope.methods.maps.effective import as_factor


def null_space_basis(
    value: Tensor,
    projection: Tensor | ProjectionFactor,
    queries: int | None = None,
    allowed: Allowed = None,
    precision: torch.dtype | None = None,
    value_bias: Tensor | None = None,
    *,
    head: int = 0,
    query: int | None = None,
    simplex: bool = True,
) -> Tensor:
    """Orthonormal rows [direction, key] that span LN([T,1]) of one head (eq. 7a, 7b), or LN(T) (eq. 4).

    For one `query`, over that row's `allowed` keys (zero elsewhere). Held on demand only: it is n×n in size.

    query: one row; needed where rows see different keys. simplex: of [T,1], or of T alone.

    >>> null_space_basis(torch.ones(1, 2, 1), torch.ones(1, 1, 1), head=0).abs()
    tensor([[0.7071, 0.7071]], dtype=torch.float64)
    """
    factor, keys = as_factor(projection), value.shape[1] if value.ndim > 1 else 0
    heads = len(factor.triangle)
    if not 0 <= head < heads:
        raise InputError(f"head {head} was asked for, expected one of 0 to {heads - 1}")
    described = describe_allowed(allowed, keys if queries is None else queries, keys, value.device)
    if query is None and not described.everything:
        raise InputError("rows have different allowed keys here; pass query= to say which row's null space")
    inside = described.row(0 if query is None else query)
    if value.ndim != 3 or not len(value) or heads % len(value):
        raise InputError(
            f"values of shape {list(value.shape)} were given for {heads} heads, expected [kv_head, key, channel] with a"
            f" number of value heads that divides {heads}"
        )
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
