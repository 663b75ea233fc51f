"""Effective attention that keeps the row sums: projection on col([T,1])."""

import torch
from torch import Tensor

from identiscope.linalg.allowed import Allowed, describe_allowed
from identiscope.linalg.rank.coordinates import coordinates
from identiscope.linalg.rank.projection_factor import ProjectionFactor
from identiscope.linalg.rank.row_projection import project_rows
from identiscope.methods.maps.effective import as_factor
from identiscope.methods.maps.factored import FactoredAttention, RawRows


def effective_simplex_span(
    value: Tensor,
    projection: Tensor | ProjectionFactor,
    context: Tensor,
    allowed: Allowed = None,
    precision: torch.dtype | None = None,
    row_sum: Tensor | None = None,
    raw: RawRows | None = None,
) -> FactoredAttention:
    """A − Projection_LN([T,1]) A: the same output and row sums as A, the shortest such rows of either sign.

    Parameters as for `effective`; a value bias would make no difference, since 1 is in the span. `row_sum`
    [head, query] is what A's rows sum to (None: one; less with attention sinks).

    >>> value, projection = torch.tensor([[[1.0], [1.0], [1.0]]]), torch.ones(1, 1, 1)
    >>> attention = torch.tensor([[[0.5, 0.25, 0.25]]])
    >>> effective_simplex_span(value, projection, attention @ value).dense()
    tensor([[[0.3333, 0.3333, 0.3333]]], dtype=torch.float64)
    """
    points = coordinates(value, as_factor(projection), precision, with_ones=True)
    described = describe_allowed(allowed, context.shape[1], value.shape[1], value.device)
    projected = project_rows(points, points.target(context, row_sum), described)
    return FactoredAttention(
        projected.left, projected.right, described, raw=raw, rank=projected.rank, spectrum=projected.spectrum
    )


def simplex_map(
    attention: Tensor,
    value: Tensor,
    projection: Tensor | ProjectionFactor,
    allowed: Allowed = None,
    precision: torch.dtype | None = None,
    row_sum: Tensor | None = None,
) -> Tensor:
    """effective_simplex_span of raw maps [head, query, key] as a dense map in float64, with the context that these
    maps give; value [kv_head, key, channel].

    >>> value, projection = torch.tensor([[[1.0], [1.0], [1.0]]]), torch.ones(1, 1, 1)
    >>> simplex_map(torch.tensor([[[0.5, 0.25, 0.25]]]), value, projection)
    tensor([[[0.3333, 0.3333, 0.3333]]], dtype=torch.float64)
    """
    own = value.double().repeat_interleave(len(attention) // len(value), 0)
    context = attention.double() @ own
    return effective_simplex_span(value, projection, context, allowed, precision, row_sum).dense()
