"""Each row of attention projected on the T of its own allowed keys, in factored form."""

from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.linalg.allowed import AllowedKeys
from identiscope.linalg.rank.column_space import Spectrum, column_space
from identiscope.linalg.rank.coordinates import Coordinates
from identiscope.linalg.rank.prefix.rows import solve_tall, solve_wide, tall_prefixes, wide_prefixes
from identiscope.linalg.rank.set_rows import solve_sets


@dataclass(frozen=True)
class RowProjection:
    """A⊥[i, j] = left[i] · right[j] on the allowed keys of row i, and zero elsewhere.

    `left` is [head, query, column], `right` [kv_head or head, key, column], `rank` [head, query] that of the
    row's own T. The `spectrum` is that of the whole T; it exists only where all rows have the same keys.
    """

    left: Tensor
    right: Tensor
    rank: Tensor
    spectrum: Spectrum | None


def project_rows(points: Coordinates, target: Tensor, allowed: AllowedKeys) -> RowProjection:
    """Project rows given only by target = A·X [head, query, column], the attention itself not being needed.

    >>> from identiscope.linalg.allowed import describe_allowed
    >>> from identiscope.linalg.rank.coordinates import coordinates
    >>> from identiscope.linalg.rank.projection_factor import projection_factor
    >>> value = torch.tensor([[[1.0], [1.0]]], dtype=torch.float64)
    >>> points = coordinates(value, projection_factor(torch.ones(1, 1, 1)))
    >>> found = project_rows(points, torch.ones(1, 2, 1).double(), describe_allowed("causal", 2, 2))
    >>> (found.left @ found.right.mT)[0].tril()
    tensor([[1.0000, 0.0000],
            [0.5000, 0.5000]], dtype=torch.float64)
    """
    if allowed.everything:
        space = column_space(points)
        rank = space.spectrum.rank[:, None].expand(-1, allowed.queries)
        return RowProjection(space.left(target), space.right, rank, space.spectrum)
    left = torch.empty_like(target)
    rank = torch.empty(target.shape[:2], dtype=torch.long, device=target.device)
    solve = _solve_prefixes if allowed.consecutive_prefixes else _solve_distinct
    for value_head in range(len(points.points)):
        heads = slice(value_head * points.group, (value_head + 1) * points.group)
        left[heads], rank[heads] = solve(points, heads, target[heads], allowed)
    return RowProjection(left, points.points, rank, None)


def _solve_distinct(points: Coordinates, heads: slice, target: Tensor, allowed: AllowedKeys) -> tuple[Tensor, Tensor]:
    rows, set_of_row = allowed.distinct()
    return solve_sets(points, heads, target, allowed.block(rows), set_of_row)


def _solve_prefixes(points: Coordinates, heads: slice, target: Tensor, allowed: AllowedKeys) -> tuple[Tensor, Tensor]:
    """Short prefixes with independent rows, long ones with independent columns, and the few in between."""
    lengths, plain = allowed.stop, points.points[heads.start // points.group]
    wide, tall = wide_prefixes(points, heads), tall_prefixes(points, heads)
    left = torch.zeros_like(target)
    rank = lengths.expand(len(target), -1).clone()
    short, long = lengths <= max(wide), lengths >= min(tall)
    # A row both wide and tall is square and invertible; either way gives it.
    if bool(long.any()):
        left[:, long] = solve_tall(plain, target[:, long], lengths[long])
        rank[:, long] = plain.shape[1]
    if bool(short.any()):
        left[:, short] = solve_wide(plain, target[:, short], lengths[short])
        rank[:, short] = lengths[short]
    for index in range(len(target)):
        between = ((lengths > wide[index]) & (lengths < tall[index])).nonzero()[:, 0]
        if len(between):
            head = heads.start + index
            masks = torch.arange(allowed.keys, device=lengths.device) < lengths[between, None]
            solved = solve_sets(
                points, slice(head, head + 1), target[index : index + 1, between], masks,
                torch.arange(len(between), device=lengths.device),
            )  # fmt: skip
            left[index, between], rank[index, between] = solved[0][0], solved[1][0]
    return left, rank
