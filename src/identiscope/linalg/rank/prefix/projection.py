"""Each causal row projected on the T of its own prefix: the sums of its A⊥, without a cell of it.

For a row with the context o and a prefix V = Q·R of full column rank, A⊥ = o·R⁻¹·Qᵀ: ‖A⊥‖² is that of o·R⁻¹, and sums
of A⊥ over keys follow from the same sums of the rows of Q. Where the keys of a prefix are independent, A⊥ = A. Only the
few rows of a prefix whose rank no bound proves are written out.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.linalg.rank.prefix.ranks import PrefixRanks, pairs


@dataclass(frozen=True, eq=False)
class RowSums:
    """Of A⊥, for some rows: Σy² and y at the row's last key [head, row], Σy over each column [head, row, column].

    `left` [head, row, channel] is w with y = V·w, for the rows of which it was asked for and that are not `short`
    [head, row]; it has no rows where it was asked for of none. `rank` [head, row] is that of the row's T.
    """

    squares: Tensor
    own: Tensor
    columns: Tensor
    left: Tensor
    rank: Tensor
    short: Tensor


class PrefixProjection:
    """The rows of a text in their order, some at a time; what is kept between them is one triangle a value head.

    `columns` [column, key] are what A⊥ is summed over, as 1 for each key of a type.
    """

    def __init__(self, ranks: PrefixRanks, columns: Tensor) -> None:
        self.ranks = ranks
        value_heads, keys, channels = ranks.points.points.shape
        # Rows of whole vectors of eight numbers.
        width = -(-(channels + len(columns)) // 8) * 8
        self._points = torch.zeros(value_heads, keys, width, dtype=torch.float64)
        self._points[..., :channels] = ranks.points.points
        self._points[..., channels : channels + len(columns)] = columns.mT
        self._triangle = torch.zeros(value_heads, channels, width, dtype=torch.float64)
        self._columns, self._next, self._seen = columns.double(), 0, 0

    @property
    def open_rows(self) -> int:
        """So many rows, from the first on, need the weights themselves and not only the target."""
        return int((self.ranks.lengths < self.ranks.settled.max()).sum())

    def rows(self, target: Tensor, weights: Tensor | None = None, *, left: Tensor | bool = False) -> RowSums:
        """The rows that follow those asked for last, from their target = A·X [head, row, channel].

        weights: the raw attention [head, row, key] on the keys up to the last that these rows see. left: whether to
        give the left factors of all these rows, or places of those to give them of.
        """
        heads, count, channels = target.shape
        rows = slice(self._next, self._next + count)
        self._next = rows.stop
        lengths = self.ranks.lengths[rows]
        solved = torch.zeros(count, dtype=torch.bool)
        solved[left if isinstance(left, Tensor) else slice(0, count if left else 0)] = True
        sums = RowSums(
            target.new_empty(heads, count),
            target.new_empty(heads, count),
            target.new_empty(heads, count, len(self._columns)),
            target.new_empty(heads, count if bool(solved.any()) else 0, channels),
            torch.full((heads, count), self.ranks.columns),
            lengths <= self.ranks.independent[:, None],
        )
        if rows.start < self.open_rows:
            assert weights is not None
            self._sweep(target, sums, solved, first=int(sums.short.all(0).sum()))
            self._open(rows, target, weights, sums)
        else:
            self._sweep(target, sums, solved, first=0)
        return sums

    def _sweep(self, target: Tensor, sums: RowSums, solved: Tensor, first: int) -> None:
        """All rows from the first on as if the prefix had full column rank; keys before it are only taken in."""
        from identiscope.linalg.rank.prefix.compiled import sweep

        group = self.ranks.points.group
        begin, end = self._seen, int(self.ranks.lengths[self._next - 1])
        self._seen = end
        given = target[:, first:].contiguous().numpy()
        outputs = [part[:, first:].numpy() for part in (sums.squares, sums.own, sums.columns, sums.left)]
        triangle = self._triangle.numpy()
        for value_head, points in enumerate(self._points.numpy()):
            own = slice(value_head * group, (value_head + 1) * group)
            sweep(
                points, begin, end, triangle[value_head], given[own], *(part[own] for part in outputs),
                solved[first:].numpy(),
            )  # fmt: skip

    def _open(self, rows: slice, target: Tensor, weights: Tensor, row_sums: RowSums) -> None:
        """Rows of which the sweep does not know: with independent keys, or of a rank that only a spectrum shows."""
        ranks, keys = self.ranks, weights.shape[2]
        columns = self._columns[:, :keys].mT
        row_sums.rank[:] = ranks.known()[:, rows]
        cells = self._shared(weights, ranks.lengths[rows])
        last = ranks.lengths[rows, None] - 1
        for sums, short in (
            (row_sums.squares, cells.square().sum(-1)),
            (row_sums.own, cells.gather(2, last.expand(len(cells), -1, 1))[..., 0]),
            (row_sums.columns, cells @ columns),
        ):
            mask = row_sums.short if sums.ndim == 2 else row_sums.short[..., None]
            sums.copy_(torch.where(mask, short, sums))
        for heads, places in pairs((row_sums.rank < 0).nonzero()):
            row_sums.rank[heads, places], half = ranks.spectra(heads, places + rows.start)
            # One half after the other, never their product: that would square the rounding of the output.
            turned = half @ target[heads, places][..., None]
            left = half.mT @ turned
            lengths = ranks.lengths[rows][places]
            cells = (ranks.points.points[heads // ranks.points.group, :keys] @ left)[..., 0]
            cells *= torch.arange(keys) < lengths[:, None]
            row_sums.squares[heads, places] = turned.square().sum((1, 2))
            row_sums.own[heads, places] = cells.gather(1, lengths[:, None] - 1)[:, 0]
            row_sums.columns[heads, places] = cells @ columns
            if row_sums.left.shape[1]:
                row_sums.left[heads, places] = left[..., 0]

    def _shared(self, weights: Tensor, lengths: Tensor) -> Tensor:
        """A⊥ of rows whose distinct keys are independent: keys with the same values share their weight evenly."""
        merged, group = weights, self.ranks.points.group
        for value_head, number in enumerate(self.ranks.number[:, : weights.shape[2]]):
            own = slice(value_head * group, (value_head + 1) * group)
            known = number[: int(self.ranks.independent[own].max())]
            if len(known) and int(known.max()) + 1 < len(known):
                merged = merged.clone() if merged is weights else merged
                same = torch.nn.functional.one_hot(known).double()
                counts = same.cumsum(0)[lengths.clamp(max=len(known)) - 1]
                shares = (weights[own, :, : len(known)] @ same) / counts.clamp(min=1)
                merged[own, :, : len(known)] = (shares @ same.mT) * (torch.arange(len(known)) < lengths[:, None])
        return merged

    def cells(self, sums: RowSums, weights: Tensor, keys: Tensor, places: Tensor | None = None) -> Tensor:
        """A⊥ [head, row, key] of the rows asked for last, at some keys; their left factors must have been asked for.

        places: of some of these rows only.
        """
        lengths = self.ranks.lengths[self._next - sums.squares.shape[1] : self._next]
        left, short = sums.left, sums.short
        if places is not None:
            lengths, left, short, weights = lengths[places], left[:, places], short[:, places], weights[:, places]
        points = self.ranks.points
        grouped = left.reshape(len(points.points), -1, left.shape[2])
        cells = (grouped @ points.points[:, keys].mT).view(*left.shape[:2], -1)
        if bool(short.any()):
            cells = torch.where(short[..., None], self._shared(weights, lengths)[..., keys], cells)
        return cells * (keys < lengths[:, None])
