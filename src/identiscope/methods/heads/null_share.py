"""How much of the attention the output cannot depend on, alone and with equal tokens taken together."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from identiscope.linalg.allowed import Allowed
from identiscope.linalg.copies import merged_squares
from identiscope.linalg.rank.projection_factor import ProjectionFactor
from identiscope.methods.equal_keys import Equal, key_groups
from identiscope.methods.maps.effective import as_factor, effective
from identiscope.methods.maps.effective_simplex_span import effective_simplex_span
from identiscope.methods.maps.factored import FactoredAttention, RawRows, raw_block


@dataclass(frozen=True)
class NullShare:
    """Of each head [head] and row [head, query], shares in [0, 1] of squared attention, and Pearson's correlations with
    what is left, over the allowed cells, not a number where the weights do not vary; of each type of key [head, type].
    """

    simplex: Tensor
    row_simplex: Tensor
    merged: Tensor
    row_merged: Tensor
    head: Tensor
    row: Tensor
    key_type: Tensor
    correlation: Tensor
    row_correlation: Tensor
    key_type_correlation: Tensor

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Tensor]]:
        """By name, with their axes."""
        return {
            "simplex_null_share": (("head",), self.simplex),
            "row_simplex_null_share": (("head", "query"), self.row_simplex),
            "merged_null_share": (("head",), self.merged),
            "row_merged_null_share": (("head", "query"), self.row_merged),
            "null_share": (("head",), self.head),
            "row_null_share": (("head", "query"), self.row),
            "correlation": (("head",), self.correlation),
            "row_correlation": (("head", "query"), self.row_correlation),
        }


def null_share(
    value: Tensor,
    projection: Tensor | ProjectionFactor,
    context: Tensor,
    raw: RawRows,
    allowed: Allowed = None,
    precision: torch.dtype | None = None,
    value_bias: Tensor | None = None,
    row_sum: Tensor | None = None,
    copies: Tensor | None = None,
    *,
    equal: Equal = "tokens",
    key_types: Tensor | None = None,
) -> NullShare:
    """Share of the squared weights that no output of the head can show.

    `simplex_null_share` is ‖A∥‖²/‖A‖² with A∥ the part of attention in LN([T,1]): what may be exchanged with the row
    sums kept. `merged_null_share` is ‖A∥S‖²/‖AS‖² with S from keys to groups of equal ones: what is exchanged between
    two copies of a word does not count. `null_share` is the paper's, in LN(T), with the `correlation` of raw and
    effective weights: one for n ≤ rank(T), falling after (Fig. 1a). All are gathered block by block of rows, and with
    `row_` given for each.

    Parameters as for `effective`.

    equal: which keys are copies: those of one token (`tokens`), or those whose rows of T are equal at the precision of
    the pass (`values`), of each head its own.
    key_types: boolean [type, key] picks the columns of a token type, of which
    Σ A∥² / Σ A² over those columns is given (not bounded by one: the projection mixes columns).

    >>> from identiscope.methods.maps.factored import rows_of
    >>> value, projection = torch.tensor([[[1.0], [1.0]]]), torch.ones(1, 1, 1)
    >>> attention = torch.tensor([[[0.75, 0.25]]])
    >>> found = null_share(value, projection, attention @ value, rows_of(attention), copies=torch.tensor([0, 0]))
    >>> found.simplex, found.merged
    (tensor([0.2000], dtype=torch.float64), tensor([0.], dtype=torch.float64))
    """
    options: dict[str, Any] = {"allowed": allowed, "precision": precision, "row_sum": row_sum, "raw": raw}
    paper = effective(value, projection, context, value_bias=value_bias, **options).moments_with_raw(key_types)
    kept = effective_simplex_span(value, projection, context, **options)
    simplex = kept.moments_with_raw()
    groups = key_groups(value, as_factor(projection), equal, copies, precision)
    null, whole = _merged_squares(kept, raw, groups)
    return NullShare(
        simplex.unexplained("head"), simplex.unexplained("row"), null.sum(1) / whole.sum(1), null / whole,
        paper.unexplained("head"), paper.unexplained("row"), paper.unexplained("key_type"),
        paper.correlation("head"), paper.correlation("row"), paper.correlation("key_type"),
    )  # fmt: skip


def _merged_squares(kept: FactoredAttention, raw: RawRows, groups: Tensor) -> tuple[Tensor, Tensor]:
    """‖a∥S‖² and ‖aS‖² of each row, [head, query], with the keys of a group added up; groups [key] or [head, key]."""
    squares = [merged_squares(raw_block(raw, rows, kept.shape), cells, groups) for rows, cells in kept.blocks()]
    null, whole = (torch.cat(parts, 1) for parts in zip(*squares, strict=True))
    return null, whole
