"""Between which bounds weights of one head may lie, the output being what it is."""

from collections.abc import Sequence

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.allowed import Allowed
from identiscope.methods.equal_keys import Equal
from identiscope.methods.freedom.intervals import Intervals, intervals
from identiscope.methods.freedom.polytopes import output_radii, whole_number
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
    output_size: Tensor | None = None,
    *,
    row: int | None = None,
    cells: Sequence[tuple[int, int]] | None = None,
    top: int | None = None,
    equal: Equal = "tokens",
    epsilon: float = 0.0,
    box: bool = False,
    progress: Progress | None = None,
) -> Intervals:
    """Between which bounds weights of one head may lie, the output being what it is: axis cell.

    Choose one query `row`, some `cells`, the `top` largest weights, or nothing for the whole head, which solves up to
    two linear programs per weight. Cells come in the order given, with `top` the largest first. `lower_row` and
    `upper_row` attain the bounds. `merged_weight`, `merged_lower` and `merged_upper` are those of a key and its
    `copies` together: weight that can only move to a copy of its key is no freedom that a reader would mean.

    With `epsilon` the output may move a little: all rows count with ‖(a' − a)·T‖ ≤ ε·‖o‖, o being the row of the
    attention block's output, all heads and b_O included. That is a second-order cone program for each bound; `gap` says
    by how much the true bound may be farther out at most. With `box`, `outer_lower` and `outer_upper` are bounds that
    hold for certain and `inner_lower` and `inner_upper` such as can be reached, by linear programs over boxes.

    row: one query position. cells: pairs (query, key). top: how many of the largest weights. equal: which keys are
    copies: those of one token (`tokens`), or those whose rows of T are equal at the precision of the pass (`values`).
    epsilon: by which share of the attention block's output a head may move it; 0 is not at all. box: give the bounds of
    boxes beside those of the cone.

    >>> from identiscope.methods.maps.factored import rows_of
    >>> attention = torch.tensor([[[0.5, 0.25, 0.25]]])
    >>> attention_intervals(torch.ones(1, 3, 1), torch.ones(1, 1, 1), rows_of(attention), 1, row=0).upper.tolist()
    [1.0, 1.0, 1.0]
    """
    radii = output_radii(epsilon, output_size)
    if box and radii is None:
        raise InputError("box was asked for with epsilon=0, for which there is no box; give an epsilon above 0.")
    if row is not None:
        row = whole_number(row, "row", "one query position")
    return intervals(
        value, projection, raw, queries, allowed, precision,
        head=0, query=row, cells=cells, top=top, equal=equal, copies=copies, radii=radii, box=box,
        progress=progress,
    )  # fmt: skip
