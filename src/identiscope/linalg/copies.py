"""Attention with the keys of a group added up: what is exchanged between copies of a key does not count."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

#: Of longer texts so many rows, spread evenly, stand for all where every cell of them would cost too much.
MERGED_ROWS = 160


def spread_rows(count: int, most: int = MERGED_ROWS) -> Tensor:
    """All of some consecutive rows, or the most, spread evenly from the first to the last; of one alone the middle.

    >>> spread_rows(4), spread_rows(9, 3), spread_rows(9, 1)
    (tensor([0, 1, 2, 3]), tensor([0, 4, 8]), tensor([4]))
    """
    if most == 1:
        return torch.tensor([(count - 1) // 2])
    return torch.linspace(0, count - 1, min(count, most), dtype=torch.float64).round().long()


def merged_squares(raw: Tensor, kept: Tensor, groups: Tensor, places: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """‖(a − k)S‖² and ‖aS‖² of rows a, k [head, row, key], with S from keys to groups: each [head, row] in float64.

    groups: the number of each key's group, [key], or [head, key] where heads have groups of their own. places: where
    among the rows of `raw` those of `kept` are, [row] or [head, row]; without, they are the same rows.

    >>> raw, kept = torch.tensor([[[0.5, 0.25, 0.25]]]), torch.tensor([[[0.5, 0.5, 0.0]]])
    >>> [part.item() for part in merged_squares(raw, kept, torch.tensor([0, 1, 1]))]
    [0.0, 0.5]
    """
    heads, rows, keys = kept.shape
    groups = groups.expand(heads, keys)
    places = (torch.arange(rows) if places is None else places).expand(heads, rows)
    if raw.device.type == "cpu":
        from identiscope.linalg.copies_compiled import group_squares

        found = torch.empty(2, heads, rows, dtype=torch.float64)
        group_squares(raw.numpy(), places.numpy(), kept.numpy(), groups.cpu().numpy(), found.numpy())
        return found[0], found[1]
    chosen = raw.gather(1, places.to(raw.device)[..., None].expand(-1, -1, keys))
    count = int(groups.max()) + 1
    into = groups.to(raw.device)[:, None].expand(heads, rows, keys)
    null, whole = (
        raw.new_zeros(heads, rows, count, dtype=torch.float64).scatter_add_(2, into, part.double()).square().sum(-1)
        for part in (chosen - kept, chosen)
    )
    return null, whole


def group_sums(values: Tensor, groups: Tensor) -> Tensor:
    """The rows of values [head, key, column] added up by group, [head, group, column]; groups [head, key].

    >>> group_sums(torch.tensor([[[1.0], [2.0], [4.0]]]), torch.tensor([[0, 1, 0]]))[0, :, 0]
    tensor([5., 2.])
    """
    heads, _, columns = values.shape
    found = values.new_zeros(heads, int(groups.max()) + 1, columns)
    if values.device.type == "cpu":
        from identiscope.linalg.copies_compiled import group_rows

        group_rows(values.contiguous().numpy(), groups.numpy(), found.numpy())
        return found
    return found.scatter_add_(1, groups.to(values.device)[..., None].expand(-1, -1, columns), values)


def merged_kept_squares(raw: Tensor, kept: Tensor, groups: Tensor, places: Tensor) -> Tensor:
    """The same as `merged_squares`, [2, head, row], of k whose columns are added up before: kept [head, row, group].

    groups [head, key] and places [head, row] are on the CPU.

    >>> raw, kept = torch.tensor([[[0.5, 0.25, 0.25]]]), torch.tensor([[[0.5, 0.5]]])
    >>> merged_kept_squares(raw, kept, torch.tensor([[0, 1, 1]]), torch.tensor([[0]]))[:, 0, 0]
    tensor([0.0000, 0.5000], dtype=torch.float64)
    """
    heads, rows, _ = kept.shape
    if raw.device.type == "cpu":
        from identiscope.linalg.copies_compiled import kept_squares

        found = torch.empty(2, heads, rows, dtype=torch.float64)
        kept_squares(raw.numpy(), places.numpy(), kept.numpy(), groups.numpy(), found.numpy())
        return found
    chosen = raw.gather(1, places.to(raw.device)[..., None].expand(-1, -1, raw.shape[2]))
    into = groups.to(raw.device)[:, None].expand_as(chosen)
    whole = torch.zeros_like(kept, dtype=torch.float64).scatter_add_(2, into, chosen.double())
    return torch.stack([whole - kept.double(), whole]).square().sum(-1)


@dataclass(frozen=True, eq=False)
class MergedSums:
    """‖A∥S‖² and ‖AS‖² of each head, [sum, head], over the rows that `rows` [row] names; groups [key] of equal keys."""

    groups: Tensor
    rows: Tensor
    sums: Tensor

    def within(self, rows: slice) -> Tensor:
        """The places of the rows that count, within some consecutive ones; on the CPU."""
        first, stop = (int(torch.searchsorted(self.rows, end)) for end in (rows.start, rows.stop))
        places: Tensor = self.rows[first:stop] - rows.start
        return places

    def add(self, rows: slice, raw: Tensor, kept: Callable[[Tensor], Tensor]) -> None:
        """Some consecutive rows of raw attention [head, row, key]; kept: the same map projected, of some of them."""
        places = self.within(rows)
        if len(places):
            # Behind the last key that these rows see there is nothing.
            null, whole = merged_squares(raw, kept(places), self.groups[: raw.shape[2]], places)
            self.sums[0] += null.sum(1)
            self.sums[1] += whole.sum(1)

    @property
    def share(self) -> Tensor:
        """The null share of each head, [head], copies taken together."""
        share: Tensor = self.sums[0] / self.sums[1]
        return share


def no_merged_sums(
    heads: int, queries: int, groups: Tensor, device: torch.device | None = None, most: int = MERGED_ROWS
) -> MergedSums:
    """All zero, over `spread_rows` of the queries, so many at most."""
    return MergedSums(groups, spread_rows(queries, most), torch.zeros(2, heads, dtype=torch.float64, device=device))
