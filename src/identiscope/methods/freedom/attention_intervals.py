"""Between which bounds weights of one head may lie, the output being what it is."""

from collections.abc import Sequence

import torch
from torch import Tensor

from identiscope.linalg.allowed import Allowed
from identiscope.methods.equal_keys import Equal
from identiscope.methods.freedom.intervals import Intervals, intervals
from identiscope.methods.freedom.polytopes import whole_number
from identiscope.methods.maps.factored import RawRows
from identiscope.progress import Progress


def attention_intervals(
    value: Tensor,
    projection: Tensor,
    raw: RawRows,
    queries: int | None = None,
    allowed: Allowed = None,
    precision: torch.dtype | None = None,
    copies: Tensor | None = None,
    *,
    row: int | None = None,
    cells: Sequence[tuple[int, int]] | None = None,
    top: int | None = None,
    equal: Equal = "tokens",
    progress: Progress | None = None,
) -> Intervals:
    """Between which bounds weights of one head may lie, the output being what it is: axis cell.

    Choose one query `row`, some `cells`, the `top` largest weights, or nothing for the whole head, which solves up to
    two linear programs per weight. Cells come in the order given, with `top` the largest first. `lower_row` and
    `upper_row` attain the bounds. `merged_weight`, `merged_lower` and `merged_upper` are those of a key and its
    `copies` together: weight that can only move to a copy of its key is no freedom that a reader would mean.

    row: one query position. cells: pairs (query, key). top: how many of the largest weights. equal: which keys are
    copies: those of one token (`tokens`), or those whose rows of T are equal at the precision of the pass (`values`).

    >>> from identiscope.methods.maps.factored import rows_of
    >>> attention = torch.tensor([[[0.5, 0.25, 0.25]]])
    >>> attention_intervals(torch.ones(1, 3, 1), torch.ones(1, 1, 1), rows_of(attention), 1, row=0).upper.tolist()
    [1.0, 1.0, 1.0]
    """
    if row is not None:
        row = whole_number(row, "row", "one query position")
    return intervals(
        value, projection, raw, queries, allowed, precision,
        head=0, query=row, cells=cells, top=top, equal=equal, copies=copies, progress=progress,
    )  # fmt: skip
