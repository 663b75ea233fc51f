"""The null share of texts in a batch with equal tokens added up, where every token sees all others."""

from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.linalg.copies import merged_squares, spread_rows


@dataclass(frozen=True, eq=False)
class MergedRows:
    """Equal tokens are told by copies [text, token], and added up in some rows [text, row], those that are counted
    [text, row]; all on the CPU. Texts with fewer rows than others have some that are not counted.
    """

    copies: Tensor
    rows: Tensor
    counted: Tensor


def merged_rows(real: Tensor, copies: Tensor) -> MergedRows:
    """Which rows of each text are looked at; real, copies [text, token]."""
    of_texts = [one.nonzero()[:, 0] for one in real]
    of_texts = [places[spread_rows(len(places))] for places in of_texts]
    most = max(len(rows) for rows in of_texts)
    rows, counted = torch.zeros(len(real), most, dtype=torch.long), torch.zeros(len(real), most, dtype=torch.bool)
    for number, places in enumerate(of_texts):
        rows[number, : len(places)], counted[number, : len(places)] = places, True
    return MergedRows(copies, rows, counted)


@dataclass(frozen=True, eq=False)
class KeptRows:
    """What is left of raw attention projected on col([T,1]), in some rows: left·rightᵀ.

    left [text, head, row, column], right [text, head, token, column]; the last column is of the one direction that
    [T,1] has more than T.
    """

    left: Tensor
    right: Tensor

    def cells(self, some: slice, span: slice) -> Tensor:
        """Of some texts, within a span of places: [text, head, row, token]."""
        found: Tensor = self.left[some] @ self.right[some, :, span].mT
        return found


def merged_null_share(looked_at: MergedRows, weights: Tensor, kept: KeptRows, some: slice, span: slice) -> Tensor:
    """The null share with equal tokens added up, [text, head], of weights [text, head, query, key]."""
    heads = weights.shape[1]
    rows, counted = looked_at.rows[some], looked_at.counted[some]
    # Rows that are not counted may be anywhere.
    places = (rows - span.start).clamp(min=0).repeat_interleave(heads, 0)
    groups = looked_at.copies[some, span].repeat_interleave(heads, 0)
    kept_cells = kept.cells(some, span).flatten(0, 1)
    null, whole = merged_squares(weights.flatten(0, 1), kept_cells, groups, places)
    flags = counted[:, None].to(null)
    null, whole = ((sums.view(len(rows), heads, -1) * flags).sum(-1) for sums in (null, whole))
    return null / whole
