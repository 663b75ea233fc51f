"""Attention as two thin matrices: rows, cells, column means and correlations without an n×n map."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.allowed import AllowedKeys
from identiscope.linalg.moments import Moments, no_moments
from identiscope.linalg.rank.column_space import Spectrum

#: Raw attention on demand: a slice of queries becomes their weights [head, query, key].
RawRows = Callable[[slice], Tensor]

#: Numbers of a block of rows held at once (64 MB).
_BLOCK_NUMBERS = 2**23


@dataclass(frozen=True)
class Top:
    """The k cells of largest weight of each head, largest first: each field is [head, k]."""

    weight: Tensor
    query: Tensor
    key: Tensor


@dataclass(frozen=True)
class FactoredAttention:
    """Attention whose cell (i, j) is left[i]·right[j] on the allowed keys of row i, and zero elsewhere.

    `left` is [head, query, column], `right` [kv_head or head, key, column]. Where `clipped`, negative cells
    are zero; where `complement`, the cell is the raw weight minus all this.
    `rank` [head, query] is the rank of what each row was projected on, `spectrum` that of the whole T where
    all rows share their keys, `residual` [head, query] how far a solver stayed from its constraints.

    >>> from identiscope.linalg.allowed import causal
    >>> found = FactoredAttention(torch.ones(1, 3, 1), torch.ones(1, 3, 1) / 3, causal(3, 3))
    >>> found.row(1)
    tensor([[0.3333, 0.3333, 0.0000]])
    """

    left: Tensor
    right: Tensor
    allowed: AllowedKeys
    clipped: bool = False
    complement: bool = False
    raw: RawRows | None = None
    rank: Tensor | None = None
    spectrum: Spectrum | None = None
    residual: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Number of heads, queries and keys."""
        return len(self.left), self.allowed.queries, self.allowed.keys

    def block(self, rows: slice) -> Tensor:
        """The cells of some consecutive queries, [head, query, key]."""
        group = len(self.left) // len(self.right)
        left = self.left[:, rows]
        heads, count, columns = left.shape
        # Heads of one group share their right factor: one product for the group, no copy of the factor.
        grouped = left.reshape(len(self.right), group * count, columns)
        cells = (grouped @ self.right.mT).view(heads, count, -1)
        if self.clipped:
            cells.clamp_(min=0)
        if not self.allowed.everything:
            cells *= self.allowed.block(rows)
        return raw_block(self.raw, rows, self.shape) - cells if self.complement else cells

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """All rows, some at a time."""
        for rows in row_slices(self.shape):
            yield rows, self.block(rows)

    def row(self, query: int) -> Tensor:
        """The weights of one query, [head, key]."""
        return self.block(self._one(query, self.allowed.queries, "query"))[:, 0]

    def cell(self, query: int, key: int) -> Tensor:
        """One weight of each head, [head]."""
        column = self._one(key, self.allowed.keys, "key")
        if self.complement:
            return self.row(query)[:, column.start]
        narrow = replace(self, right=self.right[:, column], allowed=_column(self.allowed, column.start))
        return narrow.row(query)[:, 0]

    def column_mean(self, mask: Tensor | np.ndarray | Sequence[bool] | None = None) -> Tensor:
        """Mean weight each key receives, [head, key], over all queries or those where `mask` [query] is true.

        Rows that may not look at a key count with weight zero, as in the dense map.
        """
        chosen = _query_mask(mask, self.allowed.queries).to(self.left.device)
        weight = chosen.double() / chosen.sum()
        if self.allowed.everything and not (self.clipped or self.complement):
            heads, group = len(self.left), len(self.left) // len(self.right)
            mean = weight @ self.left
            return (mean.view(len(self.right), group, -1) @ self.right.mT).reshape(heads, -1)
        total = self.left.new_zeros(self.shape[0], self.shape[2])
        for rows, cells in self.blocks():
            total += weight[rows] @ cells
        return total

    def top(self, k: int) -> Top:
        """The k largest cells of each head."""
        heads, queries, keys = self.shape
        if not 1 <= k <= queries * keys:
            raise InputError(f"the top {k} cells were asked for, expected between 1 and {queries * keys}")
        weight = self.left.new_empty(heads, 0)
        place = torch.empty(heads, 0, dtype=torch.long, device=weight.device)
        for rows, cells in self.blocks():
            if not self.allowed.everything:
                cells = cells.masked_fill(~self.allowed.block(rows), -torch.inf)
            flat = cells.flatten(1)
            best, where = flat.topk(min(k, flat.shape[1]), dim=1)
            weight = torch.cat([weight, best], 1)
            place = torch.cat([place, where + rows.start * keys], 1)
            weight, order = weight.topk(min(k, weight.shape[1]), dim=1)
            place = place.gather(1, order)
        # Fewer allowed cells than k: the rest are forbidden cells, whose weight is zero.
        return Top(weight.masked_fill(torch.isinf(weight), 0), place // keys, place % keys)

    def moments_with_raw(
        self, key_types: Tensor | None = None, also: Callable[[slice, Tensor, Tensor], None] | None = None
    ) -> Moments:
        """Sums of raw, this, and their products over the allowed cells, per row and per type of key.

        also: is given the same rows, raw and in this map, for what else is made of them.
        """
        total = no_moments(self.shape, key_types, self.left.device)
        for rows, cells in self.blocks():
            raw = raw_block(self.raw, rows, self.shape)
            total.add_block(rows, raw, cells, self.allowed.block(rows))
            if also is not None:
                also(rows, raw, cells)
        return total

    def correlation_with_raw(self) -> Tensor:
        """Pearson correlation with the raw attention over the allowed cells of each head (Fig. 1a), [head].

        Not a number where either is constant.
        """
        return self.moments_with_raw().correlation("head")

    def dense(self) -> Tensor:
        """The whole map, [head, query, key]; the only call that holds n×n."""
        if not self.complement:
            return self.block(slice(0, self.allowed.queries))
        full = self.left.new_empty(self.shape)
        for rows, cells in self.blocks():
            full[:, rows] = cells
        return full

    @staticmethod
    def _one(index: int, count: int, axis: str) -> slice:
        if not -count <= index < count:
            raise InputError(f"{axis} {index} was asked for, expected one of {count}")
        return slice(index % count, index % count + 1)


def row_slices(shape: tuple[int, int, int]) -> Iterator[slice]:
    """Slices of queries whose blocks fit in memory."""
    heads, queries, keys = shape
    size = max(1, _BLOCK_NUMBERS // (heads * keys))
    for begin in range(0, queries, size):
        yield slice(begin, min(begin + size, queries))


def raw_block(raw: RawRows | None, rows: slice, shape: tuple[int, int, int]) -> Tensor:
    """Raw weights [head, query, key] of some queries in float64, checked."""
    if raw is None:
        raise InputError(
            "this needs the raw attention, which was not given; pass raw=, a function from a slice of "
            "queries to their weights [head, query, key]"
        )
    weights = raw(rows).double()
    expected = (shape[0], len(range(*rows.indices(shape[1]))), shape[2])
    if weights.shape != expected:
        raise InputError(
            f"raw attention of shape {list(weights.shape)} came for queries {rows.start}:{rows.stop}, "
            f"expected [head={expected[0]}, query={expected[1]}, key={expected[2]}]"
        )
    return weights


def rows_of(attention: Tensor) -> RawRows:
    """Raw attention that is already there [head, query, key], as a function of the queries asked for."""
    return lambda rows: attention[:, rows]


def _query_mask(mask: Tensor | np.ndarray | Sequence[bool] | None, queries: int) -> Tensor:
    """Which queries are meant, a boolean [query] with at least one true."""
    if mask is None:
        return torch.ones(queries, dtype=torch.bool)
    expected = f"expected one true or false for each of {queries} queries, at least one of them true"
    try:
        # A copy: torch cannot look at an array that runs backwards.
        chosen = mask if isinstance(mask, Tensor) else torch.from_numpy(np.array(mask, order="C"))
    except (TypeError, ValueError) as error:
        raise InputError(f"the query mask {mask!r} was given; {expected}") from error
    if chosen.dtype != torch.bool:
        name = str(chosen.dtype).removeprefix("torch.")
        raise InputError(f"a query mask of {name} was given, not of true and false (positions are no mask); {expected}")
    if chosen.shape != (queries,) or not bool(chosen.any()):
        raise InputError(
            f"a query mask of shape {list(chosen.shape)}, {int(chosen.sum())} of it true, was given; {expected}"
        )
    return chosen


def _column(allowed: AllowedKeys, key: int) -> AllowedKeys:
    """The allowed keys, reduced to one key."""
    inside = (allowed.start <= key) & (key < allowed.stop)
    chosen = inside if allowed.matrix is None else allowed.matrix[:, key]
    return AllowedKeys(allowed.queries, 1, torch.zeros_like(allowed.start), chosen.long())
