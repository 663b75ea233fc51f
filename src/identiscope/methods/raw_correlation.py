"""Correlation of raw and effective attention."""

from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.linalg.allowed import Allowed
from identiscope.linalg.projection_factor import ProjectionFactor
from identiscope.methods.effective import effective
from identiscope.methods.factored import RawRows


@dataclass(frozen=True)
class RawCorrelation:
    """Pearson correlation of A and A⊥ over the allowed cells of each head, row and type of key."""

    head: Tensor
    row: Tensor
    key_type: Tensor


def raw_correlation(
    value: Tensor,
    output_projection: Tensor | ProjectionFactor,
    context: Tensor,
    raw: RawRows,
    *,
    allowed: Allowed = None,
    precision: torch.dtype | None = None,
    value_bias: Tensor | None = None,
    row_sum: Tensor | None = None,
    key_types: Tensor | None = None,
) -> RawCorrelation:
    """Correlation of raw and effective weights: one for n ≤ rank(T), falling after (Fig. 1a).

    Parameters as for `null_share`. Not a number where the weights do not vary, as in a row of one key.

    >>> from identiscope.methods.factored import rows_of
    >>> value, projection = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]), torch.eye(2)[None]
    >>> attention = torch.tensor([[[0.75, 0.25]]])
    >>> raw_correlation(value, projection, attention @ value, rows_of(attention)).head
    tensor([1.], dtype=torch.float64)
    """
    found = effective(
        value, output_projection, context, allowed=allowed, precision=precision, value_bias=value_bias,
        row_sum=row_sum, raw=raw,
    ).moments_with_raw(key_types)  # fmt: skip
    return RawCorrelation(found.correlation("head"), found.correlation("row"), found.correlation("key_type"))
