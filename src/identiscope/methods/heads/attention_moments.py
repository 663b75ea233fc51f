"""Raw against effective attention of one site, in sums: what null shares and correlations are made of, with the ranks.

Where rows see prefixes, or all keys, the effective attention is that of the weights computed here, in float64, and of
most rows no cell of it is formed: a row's projection is orthogonal, so its length and sums say it all. The loops over
rows are compiled for the CPU; on other devices, as with any other mask, cells are formed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from identiscope.linalg.allowed import AllowedKeys
from identiscope.linalg.copies import MergedSums, no_merged_sums
from identiscope.linalg.devices import on_cpu
from identiscope.linalg.moments import CellsOf, Moments, no_moments
from identiscope.linalg.rank.column_space import ColumnSpace, Spectrum, column_space, spectrum_of
from identiscope.linalg.rank.coordinates import Coordinates, coordinates
from identiscope.linalg.rank.full_rank import HeadProducts
from identiscope.linalg.rank.prefix.projection import PrefixProjections, RowSums
from identiscope.linalg.rank.prefix.ranks import prefix_ranks
from identiscope.linalg.simplex.raw_rows import RawRows as SoftmaxRows
from identiscope.methods.heads.row_rank import row_rank
from identiscope.methods.maps.effective import effective
from identiscope.methods.maps.effective_simplex_span import effective_simplex_span
from identiscope.methods.maps.factored import RawRows


@dataclass(frozen=True, eq=False)
class AttentionMoments:
    """Sums over cells, the ranks of T and of [T,1] of each row, [head, query], and the spectrum of T over all keys.

    `moments` are those of raw attention and its projection on col(T), `simplex` the same for col([T,1]), without types
    of keys, `merged` of that with copies of a key added up. `plain` and `ones` are the coordinates of T
    and of [T,1].
    """

    moments: Moments
    simplex: Moments
    merged: MergedSums
    rank: Tensor
    simplex_rank: Tensor
    spectrum: Spectrum
    plain: Coordinates
    ones: Coordinates


def attention_moments(
    value: Tensor,
    products: HeadProducts,
    types: Tensor,
    allowed: AllowedKeys,
    *,
    raw: RawRows,
    exact_context: Callable[[], Tensor],
    precision: torch.dtype | None,
    value_bias: Tensor | None,
    row_sum: Tensor | None,
    softmax_rows: SoftmaxRows | None,
    copies: Tensor | None = None,
) -> AttentionMoments:
    """Of some heads of one layer; `products` of their output projection, types [type, key], value_bias: to take out.

    copies [key]: the group of equal keys that each is of.
    exact_context is called only where cells are formed; softmax_rows: queries and keys, for loops that are compiled.
    """
    device, queries = value.device, allowed.queries
    types = types.to(device)
    plain = coordinates(value, products.factor, precision, value_bias=value_bias)
    ones = coordinates(value, products.factor, precision, with_ones=True)
    heads = len(products.factor.triangle)
    shape = (heads, queries, allowed.keys)
    total, simplex = no_moments(shape, types, device), no_moments(shape, None, device)
    groups = torch.arange(allowed.keys) if copies is None else on_cpu(copies)
    merged = no_merged_sums(heads, queries, groups, device, most=queries)
    if softmax_rows is not None and allowed.everything:
        space, with_ones = column_space(plain), column_space(ones)
        _of_whole(softmax_rows, (total, simplex), merged, (plain, ones), (space, with_ones))
        ranks = [one.spectrum.rank[:, None].expand(-1, queries) for one in (space, with_ones)]
        return AttentionMoments(total, simplex, merged, ranks[0], ranks[1], space.spectrum, plain, ones)
    if softmax_rows is not None and allowed.consecutive_prefixes:
        rank, simplex_rank = _of_prefixes(softmax_rows, (total, simplex), merged, (plain, ones), products)
        return AttentionMoments(total, simplex, merged, rank, simplex_rank, spectrum_of(plain), plain, ones)
    options: dict[str, Any] = {"allowed": allowed, "precision": precision}
    given, context = {"row_sum": row_sum, "raw": raw, **options}, exact_context()
    total = effective(value, products.factor, context, value_bias=value_bias, **given).moments_with_raw(types)

    def also(rows: slice, weights: Tensor, cells: Tensor) -> None:
        merged.add(rows, weights, lambda places: cells[:, places.to(cells.device)])

    simplex = effective_simplex_span(value, products.factor, context, **given).moments_with_raw(also=also)
    own = row_rank(value, products.factor, queries=queries, value_bias=value_bias, **options)
    return AttentionMoments(total, simplex, merged, own.rank, own.simplex_rank, spectrum_of(plain), plain, ones)


#: Of T, and of [T,1].
_Both = tuple[Moments, Moments]


def _of_prefixes(
    raw: SoftmaxRows,
    sums: _Both,
    merged: MergedSums,
    points: tuple[Coordinates, Coordinates],
    products: HeadProducts,
) -> tuple[Tensor, Tensor]:
    """Add all rows to the sums; the ranks of T and [T,1]."""
    (plain, ones), queries, ranks = points, len(raw.lengths), []
    keys = torch.ones(1, plain.points.shape[1])
    projections = PrefixProjections(*prefix_ranks(plain, ones, products, queries), keys)
    for rows in raw.blocks(0, queries):
        weights, raw_sums = raw.rows(rows)
        lengths, whole = raw.lengths[rows], (raw_sums.total, raw_sums.squares)
        target = plain.weighted(weights)
        left = (sums[0].needs_cells, merged.within(rows))
        projected, extended = projections.rows(target, raw_sums.total, weights, left=left)
        ranks.append((projected.rank, extended.rank))

        def kept(places: Tensor, weights: Tensor = weights, found: RowSums = extended) -> Tensor:
            return found.cells(weights, places=places)

        merged.add(rows, weights, kept)

        def cells(keys: Tensor, weights: Tensor = weights, projected: RowSums = projected) -> Tensor:
            return projected.cells(weights, keys)

        sums[0].add_projected(
            rows, lengths, whole, (projected.columns[..., 0], projected.squares), _at(weights, cells, lengths)
        )
        sums[1].add_projected(rows, lengths, whole, (raw_sums.total, extended.squares))
    of_plain, of_ones = (torch.cat(parts, 1) for parts in zip(*ranks, strict=True))
    return of_plain, of_ones


def _of_whole(
    raw: SoftmaxRows,
    sums: _Both,
    merged: MergedSums,
    points: tuple[Coordinates, Coordinates],
    spaces: tuple[ColumnSpace, ColumnSpace],
) -> None:
    """Add all rows to the sums, where all of them see all keys."""
    (plain, ones), (space, with_ones) = points, spaces
    added = space.right.sum(1)
    for rows in raw.blocks(0, len(raw.lengths)):
        weights, raw_sums = raw.rows(rows)
        lengths, whole = raw.lengths[rows], (raw_sums.total, raw_sums.squares)
        target = plain.weighted(weights)
        turned = target @ space.half.mT
        left = turned @ space.half if space.shared else turned

        def cells(keys: Tensor, left: Tensor = left) -> Tensor:
            return _by_group(left, space.right[:, keys].mT)

        total = _by_group(left, added[..., None])[..., 0]
        sums[0].add_projected(rows, lengths, whole, (total, turned.square().sum(-1)), _at(weights, cells, lengths))
        extended = _with_sums(plain, ones, target, raw_sums.total) @ with_ones.half.mT
        # The rows keep their sums.
        sums[1].add_projected(rows, lengths, whole, (raw_sums.total, extended.square().sum(-1)))

        def kept(places: Tensor, turned: Tensor = extended) -> Tensor:
            left = turned[:, places]
            return _by_group(left @ with_ones.half if with_ones.shared else left, with_ones.right.mT)

        merged.add(rows, weights, kept)


def _with_sums(plain: Coordinates, ones: Coordinates, target: Tensor, total: Tensor) -> Tensor:
    """A·X of [T,1], [head, row, column], from that of T and the sums of the rows."""
    context = target if plain.bias is None else target + total[..., None] * plain.of_head(plain.bias)[:, None]
    return ones.target(context, total)


def _at(weights: Tensor, cells: Callable[[Tensor], Tensor], lengths: Tensor) -> CellsOf:
    """Raw and effective weights of some rows at keys that are asked for."""

    def at(keys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        keys = keys[keys < weights.shape[2]]
        return weights[..., keys], cells(keys), keys < lengths[:, None]

    return at


def _by_group(rows: Tensor, factor: Tensor) -> Tensor:
    """rows [head, row, …] times the factor [kv_head or head, …, column] of each head's group: one product a group."""
    products = rows.reshape(len(factor), -1, rows.shape[2]) @ factor
    return products.view(*rows.shape[:2], -1)
