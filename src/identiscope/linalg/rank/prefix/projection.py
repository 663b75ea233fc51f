"""Each causal row projected on the T, and on the [T,1], of its own prefix: the sums of its A⊥, without a cell of it.

For a row with the context o and a prefix V = Q·R of full column rank, A⊥ = o·R⁻¹·Qᵀ: ‖A⊥‖² is that of o·R⁻¹, and sums
of A⊥ over keys follow from the same sums of the rows of Q. One more column of ones makes V into [V,1], and one more
number of each row into that of [T,1]. Where the keys of a prefix are independent, A⊥ = A. Only the few rows of a prefix
whose rank no bound proves are written out.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.linalg.rank.prefix.ranks import PrefixRanks, pairs


@dataclass(frozen=True, eq=False)
class RowSums:
    """Of A⊥, for some rows: Σy² and y at the row's last key [head, row], Σy over each column [head, row, column].

    `left` [head, row, channel] is w with y = X·w, X the points of `ranks`, for the rows of which it was asked for and
    that are not `short` [head, row]; it has no rows where it was asked for of none. `rank` [head, row] is that of the
    row's T, `lengths` [row] how many keys it sees.
    """

    ranks: PrefixRanks
    lengths: Tensor
    squares: Tensor
    own: Tensor
    columns: Tensor
    left: Tensor
    rank: Tensor
    short: Tensor

    def cells(self, weights: Tensor, keys: Tensor | None = None, places: Tensor | None = None) -> Tensor:
        """A⊥ [head, row, key], in the precision of the raw weights, on the keys that these are of.

        Left factors must have been asked for. keys: at some keys only; places: of some of the rows only.
        """
        lengths, left, short = self.lengths, self.left, self.short
        if places is not None:
            lengths, left, short, weights = lengths[places], left[:, places], short[:, places], weights[:, places]
        numbers = torch.arange(weights.shape[2]) if keys is None else keys
        points = self.ranks.points.points[:, : weights.shape[2]] if keys is None else self.ranks.points.points[:, keys]
        grouped = left.reshape(len(points), -1, left.shape[2]).to(weights.dtype)
        cells = (grouped @ points.to(weights.dtype).mT).view(*left.shape[:2], -1)
        if bool(short.any()):
            shared = _shared(self.ranks, weights, lengths)
            cells = torch.where(short[..., None], shared if keys is None else shared[..., keys], cells)
        return cells.masked_fill_(numbers >= lengths[:, None], 0)


class PrefixProjections:
    """The rows of a text in their order, some at a time; what is kept between them is one triangle a value head.

    `plain` and `ones` are the ranks of T and of [T,1]; `columns` [column, key] are what A⊥ is summed over, as 1 for
    each key of a type.
    """

    def __init__(self, plain: PrefixRanks, ones: PrefixRanks, columns: Tensor) -> None:
        self.plain, self.ones = plain, ones
        value_heads, keys, channels = plain.points.points.shape
        # Rows of whole vectors of eight numbers.
        pivots = channels + 1
        width = -(-(pivots + len(columns)) // 8) * 8
        self._points = torch.zeros(value_heads, keys, width, dtype=torch.float64)
        self._points[..., :channels] = plain.points.points
        self._points[..., channels] = 1
        self._points[..., pivots : pivots + len(columns)] = columns.mT
        self._triangle = torch.zeros(value_heads, pivots, width, dtype=torch.float64)
        self._columns, self._next, self._seen = columns.double(), 0, 0

    @property
    def open_rows(self) -> int:
        """So many rows, from the first on, need the weights themselves and not only the target."""
        settled = max(int(self.plain.settled.max()), int(self.ones.settled.max()))
        return int((self.plain.lengths < settled).sum())

    def rows(
        self,
        target: Tensor,
        total: Tensor,
        weights: Tensor | None = None,
        *,
        left: tuple[Tensor | bool, Tensor | bool] = (False, False),
    ) -> tuple[RowSums, RowSums]:
        """The rows that follow those asked for last, projected on T and on [T,1].

        target = A·X [head, row, channel] with X the points of T, total [head, row] are the sums of the rows, weights
        the raw attention [head, row, key] on the keys up to the last that these rows see. left: whether to give the
        left factors of all these rows, or places of those to give them of, for either.
        """
        heads, count = total.shape
        rows = slice(self._next, self._next + count)
        self._next = rows.stop
        lengths = self.plain.lengths[rows]
        solved = torch.zeros(2, count, dtype=torch.bool)
        for flags, asked in zip(solved, left, strict=True):
            flags[asked if isinstance(asked, Tensor) else slice(0, count if asked else 0)] = True
        squares, own = target.new_empty(heads, 2, count), target.new_empty(heads, 2, count)
        columns = target.new_empty(heads, 2, count, len(self._columns))
        lefts = [
            target.new_empty(heads, count if bool(flags.any()) else 0, ranks.columns)
            for flags, ranks in zip(solved, (self.plain, self.ones), strict=True)
        ]
        shorts = [lengths <= ranks.independent[:, None] for ranks in (self.plain, self.ones)]
        is_open = rows.start < self.open_rows
        first = int((shorts[0] & shorts[1]).all(0).sum()) if is_open else 0
        self._sweep(torch.cat([target, total[..., None]], -1), first, (squares, own, columns), lefts, solved)
        self._with_bias(lefts[1])
        found = [
            RowSums(
                ranks, lengths, squares[:, kind], own[:, kind], columns[:, kind], lefts[kind],
                torch.full((heads, count), ranks.columns), shorts[kind],
            )
            for kind, ranks in enumerate((self.plain, self.ones))
        ]  # fmt: skip
        if is_open:
            assert weights is not None
            for sums, given in zip(found, (target, self._with_ones(target, total)), strict=True):
                _open(sums, rows, given, weights.double(), self._columns)
        return found[0], found[1]

    def _with_ones(self, target: Tensor, total: Tensor) -> Tensor:
        """A·X with X the points of [T,1], which have the bias of the values in them."""
        points = self.plain.points
        context = target if points.bias is None else target + total[..., None] * points.of_head(points.bias)[:, None]
        return self.ones.points.target(context, total)

    def _with_bias(self, left: Tensor) -> None:
        """From w of [V − b, 1] to that of the points of [T,1], which are V and ones in a unit."""
        if self.plain.points.bias is not None:
            bias = self.plain.points.of_head(self.plain.points.bias)
            left[..., -1] -= (left[..., :-1] @ bias[..., None])[..., 0]
        assert self.ones.points.unit is not None
        left[..., -1] /= self.ones.points.of_head(self.ones.points.unit)[:, None]

    def _sweep(
        self, target: Tensor, first: int, outputs: tuple[Tensor, ...], lefts: list[Tensor], solved: Tensor
    ) -> None:
        """All rows from the first on as if the prefix had full column rank; keys before it are only taken in."""
        from identiscope.linalg.rank.prefix.compiled import sweep

        group = self.plain.points.group
        begin, end = self._seen, int(self.plain.lengths[self._next - 1])
        self._seen = end
        given, flags = target.numpy(), solved.numpy()
        squares, own, columns = (part.numpy() for part in outputs)
        plain, ones = (part.numpy() for part in lefts)
        triangle = self._triangle.numpy()
        for value_head, points in enumerate(self._points.numpy()):
            heads = slice(value_head * group, (value_head + 1) * group)
            sweep(
                points, begin, end, first, triangle[value_head], given[heads], squares[heads], own[heads],
                columns[heads], plain[heads], flags[0], ones[heads], flags[1],
            )  # fmt: skip


def _open(sums: RowSums, rows: slice, target: Tensor, weights: Tensor, columns: Tensor) -> None:
    """Rows of which the sweep does not know: with independent keys, or of a rank that only a spectrum shows."""
    ranks, keys, lengths = sums.ranks, weights.shape[2], sums.lengths
    by_column = columns[:, :keys].mT
    sums.rank[:] = ranks.known()[:, rows]
    cells = _shared(ranks, weights, lengths)
    last = lengths[:, None] - 1
    for written, short in (
        (sums.squares, cells.square().sum(-1)),
        (sums.own, cells.gather(2, last.expand(len(cells), -1, 1))[..., 0]),
        (sums.columns, cells @ by_column),
    ):
        mask = sums.short if written.ndim == 2 else sums.short[..., None]
        written.copy_(torch.where(mask, short, written))
    for heads, places in pairs((sums.rank < 0).nonzero()):
        sums.rank[heads, places], half = ranks.spectra(heads, places + rows.start)
        # One half after the other, never their product: that would square the rounding of the output.
        turned = half @ target[heads, places][..., None]
        left = half.mT @ turned
        seen = lengths[places]
        cells = (ranks.points.points[heads // ranks.points.group, :keys] @ left)[..., 0]
        cells *= torch.arange(keys) < seen[:, None]
        sums.squares[heads, places] = turned.square().sum((1, 2))
        sums.own[heads, places] = cells.gather(1, seen[:, None] - 1)[:, 0]
        sums.columns[heads, places] = cells @ by_column
        if sums.left.shape[1]:
            sums.left[heads, places] = left[..., 0]


def _shared(ranks: PrefixRanks, weights: Tensor, lengths: Tensor) -> Tensor:
    """A⊥ of rows whose distinct keys are independent: keys with the same values share their weight evenly."""
    merged, group = weights, ranks.points.group
    for value_head, number in enumerate(ranks.number[:, : weights.shape[2]]):
        own = slice(value_head * group, (value_head + 1) * group)
        known = number[: int(ranks.independent[own].max())]
        if len(known) and int(known.max()) + 1 < len(known):
            merged = merged.clone() if merged is weights else merged
            same = torch.nn.functional.one_hot(known).to(weights.dtype)
            counts = same.cumsum(0)[lengths.clamp(max=len(known)) - 1]
            shares = (weights[own, :, : len(known)] @ same) / counts.clamp(min=1)
            merged[own, :, : len(known)] = (shares @ same.mT) * (torch.arange(len(known)) < lengths[:, None])
    return merged
