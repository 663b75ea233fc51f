"""Sums over attention cells from which null shares and correlations follow, gathered block by block."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.tolerance import VARIANCE_FLOOR

Level = Literal["head", "row", "key_type"]

#: Keys to the cells of raw, other and inside at these keys.
CellsOf = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]


@dataclass(frozen=True)
class Moments:
    """Sums over the allowed cells: [sum, head, query] for each row and [sum, head, type] for each key type.

    The sums are count, x, y, x², y², x·y and (x − y)², with x the raw weight and y the other.
    """

    row: Tensor
    key_type: Tensor
    key_types: Tensor | None

    def add_block(self, rows: slice, raw: Tensor, other: Tensor, inside: Tensor) -> None:
        """Add some consecutive rows."""
        for index, cells in enumerate(_products(raw, other, inside)):
            self.row[index, :, rows] = cells.sum(-1)
            if self.key_types is not None:
                self.key_type[index] += cells.sum(1) @ self.key_types[:, : raw.shape[2]].double().mT

    def add_projected(
        self,
        rows: slice,
        lengths: Tensor,
        raw: tuple[Tensor, Tensor],
        other: tuple[Tensor, Tensor],
        cells: CellsOf | None = None,
    ) -> None:
        """Add some consecutive rows of which no more than sums are known, y being an orthogonal projection of x.

        Then Σx·y = Σy² and Σ(x − y)² = Σx² − Σy². lengths [row] is the number of allowed cells; raw and other are Σx,
        Σx² and Σy, Σy² [head, row]. `cells` gives x, y [head, row, key] and which are allowed [row, key] at some keys:
        the smaller part of the keys, those of a type or those not of it. It is asked only where there are key types.
        """
        (x, xx), (y, yy) = raw, other
        null = (xx - yy).clamp(min=0)
        sums = torch.stack([lengths.double().expand_as(x), x, y, xx, yy, yy, null])
        self.row[:, :, rows] = sums
        if self.key_types is None or cells is None:
            return
        whole = sums.sum(-1)
        for index, flags in enumerate(self.key_types):
            few = int(flags.sum()) * 2 <= len(flags)
            keys = (flags if few else ~flags).nonzero()[:, 0]
            part = torch.zeros_like(whole)
            if len(keys):
                part = torch.stack([values.sum((1, 2)) for values in _products(*cells(keys))])
            self.key_type[:, :, index] += part if few else whole - part

    @property
    def needs_cells(self) -> bool:
        """Whether a type has some of the keys and not all."""
        return self.key_types is not None and bool((self.key_types.any(1) & ~self.key_types.all(1)).any())

    def level(self, level: Level) -> Tensor:
        """Sums [sum, …] of one level."""
        return {"head": self.row.sum(-1), "row": self.row, "key_type": self.key_type}[level]

    def correlation(self, level: Level) -> Tensor:
        """Pearson correlation of x and y; not a number where one of them is constant."""
        count, x, y, xx, yy, xy, _ = self.level(level)
        spread_x, spread_y = xx - x * x / count, yy - y * y / count
        defined = (spread_x > VARIANCE_FLOOR**0.5 * xx) & (spread_y > VARIANCE_FLOOR**0.5 * yy)
        correlation = (xy - x * y / count) / (spread_x * spread_y).clamp(min=0).sqrt()
        return torch.where(defined, correlation.clamp(-1, 1), torch.nan)

    def unexplained(self, level: Level) -> Tensor:
        """Σ(x − y)² / Σx²: with y the effective attention, the null share."""
        sums = self.level(level)
        return sums[6] / sums[3]


def _products(raw: Tensor, other: Tensor, inside: Tensor) -> tuple[Tensor, ...]:
    """What is summed, cell by cell."""
    return (
        inside.expand_as(raw).double(), raw, other, raw * raw, other * other, raw * other, (raw - other).square(),
    )  # fmt: skip


def no_moments(shape: tuple[int, int, int], key_types: Tensor | None, device: torch.device | None = None) -> Moments:
    """All sums zero, for [head, query, key] cells on a device and boolean key types [type, key]."""
    heads, queries, keys = shape
    if key_types is not None and (key_types.dtype != torch.bool or key_types.ndim != 2 or key_types.shape[1] != keys):
        raise InputError(
            f"key types of shape {list(key_types.shape)} and dtype {key_types.dtype} were given, expected a "
            f"boolean [type, key={keys}]: one row per type, true at its tokens"
        )
    types = 0 if key_types is None else len(key_types)
    zeros = torch.zeros(7, heads, queries, dtype=torch.float64, device=device)
    return Moments(zeros, zeros.new_zeros(7, heads, types), None if key_types is None else key_types.to(zeros.device))
