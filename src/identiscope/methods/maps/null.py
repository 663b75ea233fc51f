"""Null attention: the part of attention that the head's output cannot depend on."""

from dataclasses import replace

import torch
from torch import Tensor

from identiscope.linalg.allowed import Allowed
from identiscope.linalg.rank.projection_factor import ProjectionFactor
from identiscope.methods.maps.effective import effective
from identiscope.methods.maps.factored import FactoredAttention, RawRows


def null(
    value: Tensor,
    projection: Tensor | ProjectionFactor,
    context: Tensor,
    raw: RawRows,
    allowed: Allowed = None,
    precision: torch.dtype | None = None,
    value_bias: Tensor | None = None,
    row_sum: Tensor | None = None,
) -> FactoredAttention:
    """A∥ = A − A⊥ (eq. 8): A∥·T = 0. Parameters as for `effective`.

    >>> from identiscope.methods.maps.factored import rows_of
    >>> value, projection = torch.tensor([[[1.0], [1.0]]]), torch.ones(1, 1, 1)
    >>> attention = torch.tensor([[[0.75, 0.25]]])
    >>> null(value, projection, attention @ value, rows_of(attention)).dense()
    tensor([[[ 0.2500, -0.2500]]], dtype=torch.float64)
    """
    visible = effective(
        value, projection, context, allowed=allowed, precision=precision, value_bias=value_bias,
        row_sum=row_sum, raw=raw,
    )  # fmt: skip
    return replace(visible, complement=True)
