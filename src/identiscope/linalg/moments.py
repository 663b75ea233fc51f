"""Sums over attention cells from which null shares and correlations follow, gathered block by block."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.tolerance import VARIANCE_FLOOR

Level = Literal["head", "row", "key_type"]


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
        sums = (
            inside.expand_as(raw).double(), raw, other, raw * raw, other * other, raw * other,
            (raw - other).square(),
        )  # fmt: skip
        for index, cells in enumerate(sums):
            self.row[index, :, rows] = cells.sum(-1)
            if self.key_types is not None:
                self.key_type[index] += cells.sum(1) @ self.key_types.double().mT

    def level(self, level: Level) -> Tensor:
        """Sums [sum, …] of one level."""
        return {"head": self.row.sum(-1), "row": self.row, "key_type": self.key_type}[level]

    def correlation(self, level: Level) -> Tensor:
        """Pearson correlation of x and y; not a number where one of them is constant."""
        count, x, y, xx, yy, xy, _ = self.level(level)
        spread_x, spread_y = xx - x * x / count, yy - y * y / count
        defined = (spread_x > VARIANCE_FLOOR**0.5 * xx) & (spread_y > VARIANCE_FLOOR**0.5 * yy)
        found = (xy - x * y / count) / (spread_x * spread_y).clamp(min=0).sqrt()
        return torch.where(defined, found.clamp(-1, 1), torch.nan)

    def unexplained(self, level: Level) -> Tensor:
        """Σ(x − y)² / Σx²: with y the effective attention, the null share."""
        sums = self.level(level)
        return sums[6] / sums[3]


def no_moments(shape: tuple[int, int, int], key_types: Tensor | None) -> Moments:
    """All sums zero, for [head, query, key] cells and boolean key types [type, key]."""
    heads, queries, keys = shape
    if key_types is not None and (key_types.dtype != torch.bool or key_types.ndim != 2 or key_types.shape[1] != keys):
        raise InputError(
            f"key types of shape {list(key_types.shape)} and dtype {key_types.dtype} were given, expected a "
            f"boolean [type, key={keys}]: one row per type, true at its tokens"
        )
    types = 0 if key_types is None else len(key_types)
    zeros = torch.zeros(7, heads, queries, dtype=torch.float64)
    return Moments(zeros, zeros.new_zeros(7, heads, types), key_types)
