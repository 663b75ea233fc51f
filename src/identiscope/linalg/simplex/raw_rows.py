"""Raw attention a few rows at a time, from the queries and keys of a pass, with the sums of its weights."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

#: Cells of attention formed at once, all heads together: not much more than a processor's own cache holds.
_BLOCK_CELLS = 2**19


@dataclass(frozen=True, eq=False)
class RawSums:
    """Of some rows [head, row]: Σa, Σa², the entropy in nats, the weight of the last key that the row sees, and the sum
    of the squares of what is left of the weights without their mean."""

    total: Tensor
    squares: Tensor
    entropy: Tensor
    last: Tensor
    spread: Tensor


@dataclass(frozen=True, eq=False)
class RawRows:
    """Softmax attention of one text whose rows see their first `lengths` [query] keys, and all of these.

    query [head, query, channel] and key [kv_head, key, channel] are in the precision that the weights are to have,
    float32 or float64. position [head or 1, query or 1, key] is added to the logits; sinks [head] take weight.
    room: flat memory for as many weights as will be asked for at once, if that is not a block of `blocks`.
    """

    query: Tensor
    key: Tensor
    lengths: Tensor
    scale: float
    softcap: float | None = None
    position: Tensor | None = None
    sinks: Tensor | None = None
    room: Tensor | None = None

    def of_head(self, place: int) -> "RawRows":
        """The head in one place alone; in the same memory, so its weights are there until others are asked for."""
        group = place // (len(self.query) // len(self.key))
        own = slice(place, place + 1)
        position = self.position if self.position is None or len(self.position) == 1 else self.position[own]
        return RawRows(
            self.query[own], self.key[group : group + 1], self.lengths, self.scale, self.softcap, position,
            None if self.sinks is None else self.sinks[own], self._room,
        )  # fmt: skip

    @cached_property
    def _room(self) -> Tensor:
        """Memory for a block, which is slow to get anew for each."""
        if self.room is not None:
            return self.room
        heads, keys = len(self.query), int(self.lengths.max())
        return self.query.new_empty(max(_BLOCK_CELLS, heads * keys))

    def blocks(self, first: int, stop: int) -> Iterator[slice]:
        """The rows from `first` up to `stop`, a few at a time."""
        most = _BLOCK_CELLS / len(self.query)
        while first < stop:
            # Each row sees at most one key more than the row before.
            keys = int(self.lengths[first])
            end = min(first + max(1, int(((keys**2 + 4 * most) ** 0.5 - keys) / 2)), stop)
            yield slice(first, end)
            first = end

    def rows(self, rows: slice, received: Tensor | None = None) -> tuple[Tensor, RawSums]:
        """Weights [head, row, key] of some rows, over the keys up to the last that they see, and their sums.

        The weights are there until the next rows are asked for. received [head, key], in float64, is added to: what
        each key has received from these rows.
        """
        lengths = self.lengths[rows]
        stop = int(lengths.max())
        value_heads, heads = len(self.key), len(self.query)
        # The smaller factor is scaled, and heads of a group share one product.
        query = (self.query[:, rows] * self.scale).reshape(value_heads, -1, self.query.shape[2])
        cells = self._room[: query.shape[0] * query.shape[1] * stop].view(value_heads, -1, stop)
        torch.bmm(query, self.key[:, :stop].mT, out=cells)
        cells = cells.view(heads, -1, stop)
        if self.softcap is not None:
            cells.div_(self.softcap).tanh_().mul_(self.softcap)
        if self.position is not None:
            position = self.position if self.position.shape[-2] == 1 else self.position[..., rows, :]
            cells += position[..., :stop].to(cells.dtype)
        return cells, softmax_in_place(cells, lengths.expand(heads, -1), self.sinks, received)


def softmax_in_place(
    cells: Tensor, lengths: Tensor, sinks: Tensor | None = None, received: Tensor | None = None
) -> RawSums:
    """Turn logits [head, row, key] on the CPU into weights, each row over its first `lengths` [head, row] keys.

    sinks [head] take weight. received [head, key], in float64, is added to: what each key has received.
    """
    from identiscope.linalg.simplex.softmax_compiled import LOWEST, softmax_rows

    weights, heads = cells.numpy(), len(cells)
    taking = np.full(heads, -np.inf, weights.dtype) if sinks is None else sinks.to(cells.dtype).numpy()
    sums = torch.empty(5, *cells.shape[:2], dtype=torch.float64)
    gathered = np.empty((heads, 0)) if received is None else received.numpy()
    # One layout of memory in all calls, for which one function is compiled.
    softmax_rows(weights, lengths.contiguous().numpy(), taking, LOWEST[weights.dtype], sums.numpy(), gathered)
    return RawSums(*sums)
