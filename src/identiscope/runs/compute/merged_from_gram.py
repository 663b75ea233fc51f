"""The null share of texts in a batch with equal tokens added up, where every token sees all others."""

from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.linalg.copies import group_sums, merged_kept_squares, spread_rows


@dataclass(frozen=True, eq=False)
class MergedRows:
    """Equal tokens are told by copies [text, token], and added up in some rows [text, row], those that are counted
    [text, row]; all on the CPU. Texts with fewer rows than others have some that are not counted.
    """

    copies: Tensor
    rows: Tensor
    counted: Tensor


def merged_rows(lengths: Tensor, copies: Tensor) -> MergedRows:
    """Which rows of each text are looked at; lengths [text], copies [text, token]."""
    known = {length: spread_rows(length) for length in set(lengths.tolist())}
    of_texts = [known[length] for length in lengths.tolist()]
    most = max(len(rows) for rows in of_texts)
    rows, counted = torch.zeros(len(lengths), most, dtype=torch.long), torch.zeros(len(lengths), most, dtype=torch.bool)
    for number, places in enumerate(of_texts):
        rows[number, : len(places)], counted[number, : len(places)] = places, True
    return MergedRows(copies, rows, counted)


@dataclass(frozen=True, eq=False)
class KeptRows:
    """What is left of raw attention projected on col([T,1]), equal tokens added up: left·rightᵀ, of the rows that are
    looked at [text, head, row, column], and of the groups of equal tokens [text, head, group, column].
    """

    left: Tensor
    right: Tensor

    def beside(self, other: "KeptRows") -> "KeptRows":
        """With more columns: the sum of both products."""
        return KeptRows(torch.cat([self.left, other.left], -1), torch.cat([self.right, other.right], -1))


def kept_rows(looked_at: MergedRows, left: Tensor, right: Tensor, dtype: torch.dtype) -> KeptRows:
    """From both factors of all rows, left and right [text, head, token, column]."""
    heads, columns = left.shape[1], left.shape[3]
    if looked_at.rows.shape[1] < left.shape[2]:
        places = looked_at.rows.to(left.device)[:, None, :, None]
        left = left.gather(2, places.expand(-1, heads, -1, columns))
    # Added up before the product, which is then as much smaller as there are copies.
    groups = looked_at.copies.repeat_interleave(heads, 0)
    together = group_sums(right.flatten(0, 1), groups).unflatten(0, (-1, heads))
    return KeptRows(left.to(dtype), together.to(dtype))


def merged_squares_of(
    looked_at: MergedRows, weights: Tensor, kept: KeptRows, some: slice, of: slice, rows: slice
) -> Tensor:
    """‖A∥S‖² and ‖AS‖² [2, text, head] of weights [text, head, row, key]: of some texts, heads and consecutive rows."""
    texts, heads = weights.shape[:2]
    places, counted, left = looked_at.rows[some], looked_at.counted[some], kept.left[some, of]
    if rows.stop - rows.start < looked_at.copies.shape[1]:
        counted = counted & (places >= rows.start) & (places < rows.stop)
        here = counted.any(0)
        if not bool(here.any()):
            return weights.new_zeros(2, texts, heads, dtype=torch.float64)
        places, counted, left = places[:, here], counted[:, here], left[:, :, here.to(left.device)]
    cells = (left @ kept.right[some, of].mT).flatten(0, 1)
    groups = looked_at.copies[some].repeat_interleave(heads, 0)
    # Rows that are not counted may be anywhere.
    within = (places - rows.start).clamp(0, weights.shape[2] - 1).repeat_interleave(heads, 0)
    sums = merged_kept_squares(weights.flatten(0, 1), cells, groups, within).view(2, texts, heads, -1)
    squares: Tensor = (sums * counted[:, None].to(sums)).sum(-1)
    return squares
