"""Attention for a page: each layer as thin rounded matrices, with the error of every map they rebuild.

The page rebuilds raw attention as a softmax of query·key, its projection on col([T,1]) as left·right, and null
attention as their difference, in the rows where it is more than rounding: elsewhere (a row of an identifiable head, a
causal row of few keys) the difference would be the page's own rounding and nothing else, so there it is zero.
Where every key may be seen, left is raw·right, and need not be stored; nor where a row sees the first so many keys, as
in a causal model: there it is raw·right times the inverse of these keys' Gram matrix.
Here the same is done with the same rounded numbers, and every cell is compared with the library's.
A row that is off by more than the error aimed at is stored cell by cell; so is a map that has no thin factors, or whose
cells take less room than they do.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from identiscope.views.page.factors import RAW_ERROR, Factors
from identiscope.views.page.layer import Layer
from identiscope.views.page.packing import LARGEST, Array, Chunk, Rounding, from_levels, to_levels
from identiscope.views.page.shapes import Mask, Output, PackedLayer, PackedMap, Position

#: The error aimed at in a projected weight, in parts of the weight that uniform attention would have: an eighth.
EFFECTIVE_SHARE = 0.128

# Up to this share of rows may be off where the left factor is taken from the page's raw attention: of all keys, and of
# the first ones, where cells stored are on the even scale and so take far less room.
_OFF, _OFF_PREFIX = 0.02, 0.5


@dataclass(frozen=True)
class PackedLayers:
    """Descriptions of the layers, and their chunks by name."""

    described: list[PackedLayer]
    chunks: dict[str, bytes]


#: What is said of a head as a whole: by the names of `attention_identifiability`, whose numbers they are.
SHARES = ("simplex_null_share", "merged_null_share", "simplex_correlation")
Shares = Mapping[tuple[int, int], tuple[float | None, ...]]


def pack_layers(
    layers: Iterable[Layer],
    copies: Array,
    canonical: Mapping[tuple[int, int], Array] | None = None,
    progress: Callable[[int], None] | None = None,
    shares: Shares | None = None,
) -> PackedLayers:
    """Round and compress each layer; copies [key]: groups of equal ones; canonical maps, if any, by (layer, head).

    shares: of heads for which they are known already, by (layer, head); those of others are worked out here.
    """
    described: list[PackedLayer] = []
    chunks: dict[str, bytes] = {}
    for done, layer in enumerate(layers, 1):
        name = f"layer-{layer.layer}"
        maps = {head: cells for (number, head), cells in (canonical or {}).items() if number == layer.layer}
        entry, chunks[name] = _pack_layer(layer, maps, name, copies, shares or {})
        described.append(entry)
        if progress is not None:
            progress(done)
    return PackedLayers(described, chunks)


def _pack_layer(
    layer: Layer, canonical: Mapping[int, Array], name: str, copies: Array, shares: Shares
) -> tuple[PackedLayer, bytes]:
    chunk = Chunk()
    way = _first_way(layer)
    room = np.empty((layer.queries, layer.keys))
    heads = [_head(layer, place, way, copies, shares, room) for place in range(len(layer.heads))]
    most = (_OFF if way.stop is None else _OFF_PREFIX) * len(heads) * layer.queries
    if way.derived and sum(len(head["effective_simplex_span_rows"]) for head in heads) > most:
        factors = Factors.of_projected(layer, float(way.rounding.error.min()))
        way = replace(way, projected=factors, derived=False)
        heads = [_head(layer, place, way, copies, shares, room) for place in range(len(layer.heads))]
    entry = PackedLayer(
        layer=int(layer.layer),
        heads=[int(head) for head in layer.heads],
        queries=layer.queries,
        keys=layer.keys,
        chunk=name,
        mask=_mask(layer, chunk),
        raw={
            **_pack_map(chunk, way.raw, [head["raw_rows"] for head in heads], way.raw_rounding, way.inside),
            "softcap": layer.softcap,
            "position": None if way.raw is None else _position(layer, chunk),
            "sinks": None if layer.sinks is None else layer.sinks.tolist(),
        },
        effective_simplex_span=None,
        effective=None,
        null_rows=None,
        canonical=None,
        simplex_null_share=[head["simplex_null_share"] for head in heads],
        merged_null_share=[head["merged_null_share"] for head in heads],
        simplex_correlation=[head["simplex_correlation"] for head in heads],
        error={name: max(head["error"][name] for head in heads) for name in heads[0]["error"]},
    )
    if layer.effective_simplex_span is not None:
        kept = [head["effective_simplex_span_rows"] for head in heads]
        entry["effective_simplex_span"] = _pack_map(chunk, way.projected, kept, way.rounding, way.inside, way.derived)
        entry["null_rows"] = chunk.flags(np.stack([head["null_rows"] for head in heads]))
    if layer.effective is not None:
        kept = [head["effective_rows"] for head in heads]
        entry["effective"] = _pack_map(chunk, None, kept, way.rounding, way.inside)
    if way.projected is not None:
        entry["output"] = _pack_output(layer, chunk, way.projected)
    if canonical:
        chosen = sorted(canonical)
        levels = way.rounding.levels
        cells = np.stack([canonical[head] for head in chosen])
        codes = to_levels(cells, levels)
        entry["canonical"] = {"heads": chosen, "levels": levels, "cells": chunk.whole(codes)}
        entry["error"]["canonical"] = _stated(float(np.abs(from_levels(codes, levels) - cells).max()))
    return entry, chunk.compressed()


@dataclass(frozen=True)
class _Way:
    """How the maps of a layer are stored.

    raw and projected: factors, where there are any; each with how its cells are rounded where they are stored.
    derived: the projection is that of the page's own raw attention, on the first stop[query] keys or, without stop, on
    all. inside [query, key]: where a query may look, if not everywhere.
    """

    raw: Factors | None
    raw_rounding: Rounding
    projected: Factors | None
    rounding: Rounding
    derived: bool
    stop: Array | None
    inside: Array | None


def _first_way(layer: Layer) -> _Way:
    """The way that takes least room, if not too many rows turn out to be off."""
    inside = _inside(layer)
    seen = np.full(layer.queries, layer.keys) if inside is None else inside.sum(1)
    error = np.minimum(RAW_ERROR, EFFECTIVE_SHARE / np.maximum(seen, 1))
    # Cells of a long text with a mask are many and mostly small. Half of the error for each of raw and projected
    # attention, so that their difference keeps to it.
    even = inside is not None and float(error.min()) < RAW_ERROR
    rounding = Rounding(np.minimum(error, RAW_ERROR / 2) if even else error, even)
    raw_rounding = rounding if even else Rounding(np.full(layer.queries, RAW_ERROR), False)
    stop = layer.stop if even and _growing(layer) else None
    least = float(error.min())
    # Without a left factor, the right one's rounding hardly shows: rows are off by that of the raw weights.
    projected = Factors.of_projected(layer, least) if stop is None else Factors.of_projected(layer, 3 * least, 1)
    return _Way(
        raw=_smaller(layer, Factors.of_logits(layer), raw_rounding, inside),
        raw_rounding=raw_rounding,
        projected=projected,
        rounding=rounding,
        derived=projected is not None and (inside is None or stop is not None),
        stop=stop,
        inside=inside,
    )


def _smaller(layer: Layer, factors: Factors | None, rounding: Rounding, inside: Array | None) -> Factors | None:
    """The factors, or None where the cells themselves take less room, as they do for short texts."""
    longest = 16 if rounding.even else 8
    if factors is None or layer.keys > longest * factors.left[0].shape[1]:
        return factors
    # No code is larger than LARGEST: the cells of all heads are held at once here.
    codes = [dict(enumerate(rounding.codes(layer.raw(place)).astype(np.int16))) for place in range(len(layer.heads))]
    thin, cells = Chunk(), Chunk()
    _pack_map(thin, factors, [{} for _ in codes], rounding, inside)
    _pack_map(cells, None, codes, rounding, inside)
    return factors if len(thin.compressed()) < len(cells.compressed()) else None


def _growing(layer: Layer) -> bool:
    """Whether every row may see the first so many keys, and none fewer than the row before it."""
    if layer.matrix is not None or layer.start is None or layer.stop is None:
        return False
    return not layer.start.any() and bool((np.diff(layer.stop) >= 0).all())


def _head(layer: Layer, place: int, way: _Way, copies: Array, shares: Shares, room: Array) -> dict[str, Any]:
    """Rebuild one head's maps as the page will, compare them with the library's, and keep the rows that are off.

    room [query, key]: memory that is slow to get anew for each head.
    """
    inside, rounding = way.inside, way.rounding
    true_raw = layer.raw(place)
    rebuilt = None if way.raw is None else _softmax(layer, place, way.raw, inside)
    page_raw, off, raw_rows = _checked(true_raw, rebuilt, way.raw_rounding, room)
    errors = {"raw": _stated(off)}
    packed: dict[str, Any] = {"raw_rows": raw_rows, "error": errors}
    packed |= dict.fromkeys(SHARES)
    if layer.effective is not None:
        _, off, packed["effective_rows"] = _checked(layer.effective(place), None, rounding, room)
        errors["effective"] = _stated(off)
    if layer.effective_simplex_span is None:
        return packed
    true = layer.effective_simplex_span(place)
    rebuilt = None
    if way.projected is not None:
        factors = way.projected
        rebuilt = factors.projection(place, page_raw, way.stop) if way.derived else factors.product(place)
    if rebuilt is not None and inside is not None:
        rebuilt *= inside
    page_projected, off, packed["effective_simplex_span_rows"] = _checked(true, rebuilt, rounding, room)
    errors["effective_simplex_span"] = _stated(off)
    # Null attention is the difference; a row within the error aimed at is zero on the page.
    null = np.subtract(true_raw, true, out=room)
    size = _row_sizes(null)
    packed["null_rows"] = shown = size > rounding.error
    page_null = page_raw - page_projected
    errors["simplex_null"] = _stated(float(np.where(shown, _row_sizes(page_null - null), size).max()))
    known = shares.get((int(layer.layer), int(layer.heads[place])))
    if known is not None:
        return packed | dict(zip(SHARES, known, strict=True))
    packed["simplex_null_share"] = _share(null, true_raw)
    packed["merged_null_share"] = _share(*(_together(cells, copies) for cells in (null, true_raw)))
    packed["simplex_correlation"] = _correlation(true_raw, true, inside)
    return packed


def _checked(
    true: Array, rebuilt: Array | None, rounding: Rounding, room: Array
) -> tuple[Array, float, dict[int, Array]]:
    """The page's map, how far it is off at most, and the rows that it needs cell by cell: row → codes.

    room: memory of the size of a map, to be used meanwhile.
    """
    if rebuilt is None:
        codes = rounding.codes(true)
        cells = rounding.cells(codes)
        return cells, float(_row_sizes(np.subtract(cells, true, out=room)).max()), dict(enumerate(codes))
    page = rebuilt
    sizes = _row_sizes(np.subtract(page, true, out=room))
    # Written so that what is not a number is wrong, too.
    wrong = np.flatnonzero(~(sizes <= rounding.error))
    codes = rounding.codes(true[wrong], wrong)
    page[wrong] = rounding.cells(codes, wrong)
    sizes[wrong] = _row_sizes(page[wrong] - true[wrong])
    return page, float(sizes.max()), dict(zip(wrong.tolist(), codes, strict=True))


def _row_sizes(cells: Array) -> Array:
    """The largest magnitude in each row."""
    sizes: Array = np.maximum(cells.max(1), -cells.min(1))
    return sizes


def _softmax(layer: Layer, place: int, factors: Factors, inside: Array | None) -> Array:
    logits = factors.product(place)
    if layer.softcap is not None:
        logits = np.tanh(logits / np.float32(layer.softcap)) * np.float32(layer.softcap)
    if layer.position is not None:
        logits = logits + layer.position.of_head(place, layer.queries, layer.keys).astype(np.float32)
    if inside is not None:
        logits = np.where(inside, logits, -np.inf)
    top = logits.max(1, keepdims=True)
    if layer.sinks is not None:
        top = np.maximum(top, layer.sinks[place])
    logits = np.subtract(logits, top, dtype=np.float32)
    weights: Array = np.exp(logits, out=logits)
    total = weights.sum(1, keepdims=True)
    if layer.sinks is not None:
        total = total + np.exp(layer.sinks[place] - top)
    weights /= total
    return weights


def _pack_map(
    chunk: Chunk,
    factors: Factors | None,
    rows: list[dict[int, Array]],
    rounding: Rounding,
    inside: Array | None,
    derived: bool = False,
) -> PackedMap:
    """Factors, column by column, and the rows stored cell by cell; `rows` null where these are all.

    derived: without the left factor. All cells on the even scale are stored key by key, those alone that a query may
    see: how much weight a key gets changes less from query to query than weights of a query do from key to key.
    """
    queries = [head * 2**20 + row for head, by_row in enumerate(rows) for row in by_row]
    cells = [codes for by_row in rows for codes in by_row.values()]
    packed: PackedMap = {"factors": None, "levels": rounding.levels, "steps": None, "rows": None, "cells": None}
    if rounding.even and cells:
        packed["steps"] = chunk.numbers(rounding.steps)
    if factors is not None:
        packed["factors"] = {
            "left": None if derived else chunk.whole(np.stack(factors.left).transpose(2, 0, 1)),
            "right": chunk.whole(np.stack(factors.right).transpose(2, 0, 1)),
            "left_step": [] if derived else factors.left_step,
            "right_step": factors.right_step,
        }
        packed["rows"] = chunk.places(np.array(queries, dtype=np.uint32))
    if cells:
        stacked = np.stack(cells)
        if factors is None and rounding.even and inside is not None:
            by_key = stacked.reshape(len(rows), *inside.shape).transpose(0, 2, 1)
            stacked = by_key[:, inside.T]
        packed["cells"] = chunk.whole(stacked)
    return packed


def _pack_output(layer: Layer, chunk: Chunk, factors: Factors) -> Output:
    """T in the coordinates of the right factor, and how far a row of the rounded T may be from the true one.

    Rounded so that this adds no more to the error of any row than the right factor's rounding.
    """
    assert layer.right is not None and layer.output is not None
    group = len(layer.output) // len(layer.right)
    codes, steps, errors = [], [], []
    for head, small in enumerate(layer.output):
        right, right_step = layer.right[head // group], factors.right_step[head // group]
        largest = float(np.linalg.norm(right, axis=1).max()) * np.sqrt(small.shape[1])
        step = max(right_step * float(np.linalg.norm(small)) / largest, float(np.abs(small).max()) / LARGEST)
        codes.append(np.rint(small / step))
        steps.append(step)
        rebuilt = (factors.right[head // group] * right_step) @ (codes[-1] * step)
        errors.append(_stated(float(np.linalg.norm(right @ small - rebuilt, axis=1).max())))
    return {"matrix": chunk.whole(np.stack(codes)), "step": steps, "row_error": errors}


def _inside(layer: Layer) -> Array | None:
    if layer.matrix is not None:
        return layer.matrix
    if layer.start is None or layer.stop is None:
        return None
    position = np.arange(layer.keys)
    inside: Array = (position >= layer.start[:, None]) & (position < layer.stop[:, None])
    return inside


def _position(layer: Layer, chunk: Chunk) -> Position | None:
    if layer.position is None:
        return None
    return Position(by=layer.position.by, values=chunk.numbers(layer.position.values))


def _mask(layer: Layer, chunk: Chunk) -> Mask | None:
    if layer.matrix is not None:
        return {"matrix": chunk.flags(layer.matrix)}
    if layer.start is None or layer.stop is None:
        return None
    return {"start": chunk.places(layer.start), "stop": chunk.places(layer.stop)}


def _stated(error: float) -> float:
    """An error as it may be stated: rounded up, with room for the browser's own float32 arithmetic."""
    error = error * 1.01 + 2e-6
    digits = 1 - int(np.floor(np.log10(error)))
    return float(np.ceil(error * 10**digits) / 10**digits)


def _share(part: Array, whole: Array) -> float | None:
    squares = float(np.vdot(whole, whole))
    return float(np.vdot(part, part)) / squares if squares > 0 else None


def _together(cells: Array, copies: Array) -> Array:
    """Cells [query, key] with the keys of a group added up, [query, group]."""
    order = np.argsort(copies, kind="stable")
    starts = np.flatnonzero(np.diff(copies[order], prepend=-1))
    sums: Array = np.add.reduceat(cells.take(order, axis=1), starts, axis=1)
    return sums


def _correlation(one: Array, other: Array, inside: Array | None) -> float | None:
    """Pearson's, over the allowed cells; both maps are zero elsewhere, so only the number of cells differs."""
    count = one.size if inside is None else int(inside.sum())
    means = (float(one.sum()) / count, float(other.sum()) / count)
    squares = (float(np.vdot(one, one)), float(np.vdot(other, other)))
    spread = [square - count * mean**2 for square, mean in zip(squares, means, strict=True)]
    # A constant map has no correlation; what is left of its variance is rounding.
    if any(left <= 1e-12 * square for left, square in zip(spread, squares, strict=True)):
        return None
    return (float(np.vdot(one, other)) - count * means[0] * means[1]) / float(np.sqrt(spread[0] * spread[1]))
