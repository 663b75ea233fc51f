"""Effective attention: the part of attention that the head's output can depend on."""

import torch
from torch import Tensor

from identiscope.linalg.allowed import Allowed, describe_allowed
from identiscope.linalg.rank.coordinates import coordinates
from identiscope.linalg.rank.projection_factor import ProjectionFactor, projection_factor
from identiscope.linalg.rank.row_projection import project_rows
from identiscope.methods.maps.factored import FactoredAttention, RawRows


def effective(
    value: Tensor,
    projection: Tensor | ProjectionFactor,
    context: Tensor,
    allowed: Allowed = None,
    precision: torch.dtype | None = None,
    value_bias: Tensor | None = None,
    row_sum: Tensor | None = None,
    raw: RawRows | None = None,
) -> FactoredAttention:
    """A⊥ = A − Projection_LN(T) A (eq. 9), from the context O = A·V alone: A⊥ = O·V⁺.

    `value` [kv_head, key, channel], `projection` [head, channel, model] or its factor, `context`
    [head, query, channel]. Each row is projected on the T of its own `allowed` keys. `precision` is that of
    the forward pass (default: of `value`). With `value_bias` [kv_head, channel] the bias is taken out of the
    values first, as in the literal T = E·W_V·H; `row_sum` [head, query] then says what A's rows sum to.

    >>> value, projection = torch.tensor([[[1.0], [1.0]]]), torch.ones(1, 1, 1)
    >>> attention = torch.tensor([[[0.9, 0.1], [0.2, 0.8]]])
    >>> effective(value, projection, attention @ value).dense()
    tensor([[[0.5000, 0.5000],
             [0.5000, 0.5000]]], dtype=torch.float64)
    """
    points = coordinates(value, as_factor(projection), precision, value_bias=value_bias)
    described = describe_allowed(allowed, context.shape[1], value.shape[1], value.device)
    projected = project_rows(points, points.target(context, row_sum), described)
    return FactoredAttention(
        projected.left, projected.right, described, raw=raw, rank=projected.rank, spectrum=projected.spectrum
    )


def as_factor(projection: Tensor | ProjectionFactor) -> ProjectionFactor:
    """Factorise an output projection, unless that has been done."""
    if isinstance(projection, ProjectionFactor):
        return projection
    return projection_factor(projection)
