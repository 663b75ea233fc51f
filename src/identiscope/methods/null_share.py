"""How much of the attention the output cannot depend on."""

from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.linalg.allowed import Allowed
from identiscope.linalg.projection_factor import ProjectionFactor
from identiscope.methods.effective import effective
from identiscope.methods.factored import RawRows


@dataclass(frozen=True)
class NullShare:
    """‖A∥‖²/‖A‖² of each head [head], row [head, query] and type of key [head, type]; in [0, 1] for the first two."""

    head: Tensor
    row: Tensor
    key_type: Tensor


def null_share(
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
) -> NullShare:
    """Share of the squared weights that lies in LN(T), gathered block by block of rows.

    Parameters as for `effective`; `key_types` boolean [type, key] picks the columns of a token type, of which
    Σ A∥² / Σ A² over those columns is given (not bounded by one: the projection mixes columns).

    >>> from identiscope.methods.factored import rows_of
    >>> value, projection = torch.tensor([[[1.0], [1.0]]]), torch.ones(1, 1, 1)
    >>> attention = torch.tensor([[[0.75, 0.25]]])
    >>> null_share(value, projection, attention @ value, rows_of(attention)).head
    tensor([0.2000], dtype=torch.float64)
    """
    found = effective(
        value, output_projection, context, allowed=allowed, precision=precision, value_bias=value_bias,
        row_sum=row_sum, raw=raw,
    ).moments_with_raw(key_types)  # fmt: skip
    return NullShare(found.unexplained("head"), found.unexplained("row"), found.unexplained("key_type"))
