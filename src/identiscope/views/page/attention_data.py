"""Attention for a page: each layer as thin rounded matrices, with the error of every map they rebuild.

The page rebuilds raw attention as a softmax of query·key, its projection on col([T,1]) as left·right, and null
attention as their difference, in the rows where it is more than rounding: elsewhere (a row of an identifiable head, a
causal row of few keys) the difference would be the page's own rounding and nothing else, so there it is zero.
Where every key may be seen, left is raw·right, and need not be stored.
Here the same is done with the same rounded numbers, and every cell is compared with the library's.
A row that is off by more than the error aimed at is stored cell by cell; so is a map that has no thin factors, or is so
small that its cells take less room than they do.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from identiscope.views.page.layer import Layer
from identiscope.views.page.packing import LARGEST, Array, Chunk, balanced, from_levels, levels_for, to_levels
from identiscope.views.page.shapes import Mask, Output, PackedLayer, PackedMap, Position

#: The error aimed at in a raw weight. The softmax makes it a relative one: small weights are far more exact.
RAW_ERROR = 1e-3

#: The error aimed at in a projected weight, in parts of the weight that uniform attention would have: an eighth.
EFFECTIVE_SHARE = 0.128

# Rounding errors of many products are nearly Gaussian; this many standard deviations are rarely exceeded.
_SPREAD = 4.5 / np.sqrt(12)

# The share of rows whose size a step is chosen for; the others may have to be stored cell by cell.
_COVERED = 0.95

# Up to this share of rows may be off where the left factor is taken from the page's raw attention.
_OFF = 0.02

# How much finer the right factor of projected attention is rounded: it also stands for T, which the page moves rows on.
_FINER = 4.0


@dataclass(frozen=True)
class PackedLayers:
    """Descriptions of the layers, and their chunks by name."""

    described: list[PackedLayer]
    chunks: dict[str, bytes]


def pack_layers(
    layers: Iterable[Layer],
    copies: Array,
    canonical: Mapping[tuple[int, int], Array] | None = None,
    progress: Callable[[int], None] | None = None,
) -> PackedLayers:
    """Round and compress each layer; copies [key]: groups of equal ones; canonical maps, if any, by (layer, head)."""
    described: list[PackedLayer] = []
    chunks: dict[str, bytes] = {}
    for done, layer in enumerate(layers, 1):
        name = f"layer-{layer.layer}"
        maps = {head: cells for (number, head), cells in (canonical or {}).items() if number == layer.layer}
        entry, chunks[name] = _pack_layer(layer, maps, name, copies)
        described.append(entry)
        if progress is not None:
            progress(done)
    return PackedLayers(described, chunks)


def _pack_layer(layer: Layer, canonical: Mapping[int, Array], name: str, copies: Array) -> tuple[PackedLayer, bytes]:
    chunk = Chunk()
    inside = _inside(layer)
    error = min(RAW_ERROR, EFFECTIVE_SHARE / layer.keys)
    raw = _smaller(layer, _Factors.of_logits(layer))
    projected = _Factors.of_projected(layer, error)
    derived = projected is not None and inside is None
    heads = [_head(layer, place, (raw, projected), inside, error, copies, derived) for place in range(len(layer.heads))]
    if derived and sum(len(head["effective_simplex_span_rows"]) for head in heads) > _OFF * len(heads) * layer.queries:
        derived = False
        heads = [_head(layer, place, (raw, projected), inside, error, copies) for place in range(len(layer.heads))]
    entry = PackedLayer(
        layer=int(layer.layer),
        heads=[int(head) for head in layer.heads],
        queries=layer.queries,
        keys=layer.keys,
        chunk=name,
        mask=_mask(layer, chunk),
        raw={
            **_pack_map(chunk, raw, [head["raw_rows"] for head in heads], RAW_ERROR),
            "softcap": layer.softcap,
            "position": None if raw is None else _position(layer, chunk),
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
        entry["effective_simplex_span"] = _pack_map(chunk, projected, kept, error, derived)
        entry["null_rows"] = chunk.flags(np.stack([head["null_rows"] for head in heads]))
    if layer.effective is not None:
        entry["effective"] = _pack_map(chunk, None, [head["effective_rows"] for head in heads], error)
    if projected is not None:
        entry["output"] = _pack_output(layer, chunk, projected)
    if canonical:
        chosen = sorted(canonical)
        levels = levels_for(error)
        cells = np.stack([canonical[head] for head in chosen])
        codes = to_levels(cells, levels)
        entry["canonical"] = {"heads": chosen, "levels": levels, "cells": chunk.whole(codes)}
        entry["error"]["canonical"] = _stated(float(np.abs(from_levels(codes, levels) - cells).max()))
    return entry, chunk.compressed()


@dataclass(frozen=True)
class _Factors:
    """Rounded factors: left [head, query, column], right [group, key, column], and the step of each."""

    left: list[Array]
    right: list[Array]
    left_step: list[float]
    right_step: list[float]

    @staticmethod
    def of_logits(layer: Layer) -> "_Factors | None":
        if layer.query is None or layer.key is None:
            return None
        centre = layer.softcap is None and layer.sinks is None
        group = len(layer.query) // len(layer.key)
        factors = _Factors([], [], [], [])
        for place, key in enumerate(layer.key):
            query = layer.query[place * group : (place + 1) * group]
            left, right = balanced(query.reshape(-1, query.shape[2]), key, centre)
            # A weight changes by at most a quarter of the largest difference of changes in its logits, and mostly by
            # less; at six times as much, hardly any row has to be stored.
            left_step, right_step = _steps(left, right, 6 * RAW_ERROR)
            for part in np.split(left, group):
                factors._add(factors.left, factors.left_step, part, left_step)
            factors._add(factors.right, factors.right_step, right, max(right_step, _coarsest(right)))
        return factors

    @staticmethod
    def of_projected(layer: Layer, error: float) -> "_Factors | None":
        if layer.left is None or layer.right is None:
            return None
        found = _Factors([], [], [], [])
        group = len(layer.left) // len(layer.right)
        for place, right in enumerate(layer.right):
            lefts = layer.left[place * group : (place + 1) * group]
            steps = [_steps(left, right, error, _FINER) for left in lefts]
            for left, (step, _) in zip(lefts, steps, strict=True):
                found._add(found.left, found.left_step, left, step)
            found._add(found.right, found.right_step, right, max(min(step for _, step in steps), _coarsest(right)))
        return found

    @staticmethod
    def _add(into: list[Array], steps: list[float], values: Array, step: float) -> None:
        codes = np.rint(values / step)
        # A row too large for its step (a causal row of few keys) is left out: its cells will be stored.
        codes[np.abs(codes).max(1) > LARGEST] = 0
        into.append(codes.astype(np.int32))
        steps.append(step)

    def product(self, place: int) -> Array:
        """left·rightᵀ of one head as the page computes it."""
        group = place // (len(self.left) // len(self.right))
        left = self.left[place].astype(np.float32) * np.float32(self.left_step[place] * self.right_step[group])
        product: Array = left @ self.right[group].astype(np.float32).T
        return product

    def projection(self, place: int, raw: Array) -> Array:
        """raw·right·rightᵀ of one head."""
        group = place // (len(self.left) // len(self.right))
        right = self.right[group] * self.right_step[group]
        product: Array = raw @ right @ right.T
        return product

    @property
    def numbers(self) -> int:
        """How many numbers a head takes."""
        return (sum(part.size for part in self.left) + sum(part.size for part in self.right)) // len(self.left)


def _smaller(layer: Layer, factors: _Factors | None) -> _Factors | None:
    """The factors, or None where the cells themselves take less room, as they do for short texts."""
    if factors is None or layer.keys > 8 * factors.left[0].shape[1]:
        return factors
    codes = [dict(enumerate(to_levels(layer.raw(place), levels_for(RAW_ERROR)))) for place in range(len(layer.heads))]
    thin, cells = Chunk(), Chunk()
    _pack_map(thin, factors, [{} for _ in codes], RAW_ERROR)
    _pack_map(cells, None, codes, RAW_ERROR)
    return factors if len(thin.compressed()) < len(cells.compressed()) else None


def _coarsest(values: Array) -> float:
    """The least step at which all values fit in 16 bits."""
    return float(np.abs(values).max()) / LARGEST


def _steps(left: Array, right: Array, error: float, finer: float = 1.0) -> tuple[float, float]:
    """Steps for left and right that keep their product within an error; right gets a share 1/finer of it.

    The error of one is multiplied with the rows of the other, of which a few may be so large that storing their cells
    takes less room than a finer step for all.
    """
    sizes = [float(np.quantile(np.linalg.norm(part, axis=1), _COVERED)) or 1.0 for part in (left, right)]
    each = error / (_SPREAD * float(np.hypot(1, 1 / finer)))
    return each / sizes[1], each / sizes[0] / finer


def _head(
    layer: Layer,
    place: int,
    factors: tuple[_Factors | None, _Factors | None],
    inside: Array | None,
    error: float,
    copies: Array,
    derived: bool = False,
) -> dict[str, Any]:
    """Rebuild one head's maps as the page will, compare them with the library's, and keep the rows that are off.

    derived: the projection is that of the page's own raw attention.
    """
    raw, projected = factors
    true_raw = layer.raw(place)
    off, raw_rows = _checked(true_raw, None if raw is None else _softmax(layer, place, raw, inside), RAW_ERROR)
    errors = {"raw": _stated(_largest(off))}
    packed: dict[str, Any] = {"raw_rows": raw_rows, "error": errors}
    packed |= dict.fromkeys(("simplex_null_share", "merged_null_share", "simplex_correlation"))
    if layer.effective is not None:
        effective_off, packed["effective_rows"] = _checked(layer.effective(place), None, error)
        errors["effective"] = _stated(_largest(effective_off))
    if layer.effective_simplex_span is None:
        return packed
    true = layer.effective_simplex_span(place)
    rebuilt = None if projected is None else projected.product(place)
    if derived and projected is not None:
        rebuilt = projected.projection(place, true_raw + off)
    if rebuilt is not None and inside is not None:
        rebuilt *= inside
    projected_off, packed["effective_simplex_span_rows"] = _checked(true, rebuilt, error)
    errors["effective_simplex_span"] = _stated(_largest(projected_off))
    # Null attention is the difference, and so is its error; a row within the error aimed at is zero on the page.
    null = true_raw - true
    packed["null_rows"] = np.maximum(null.max(1), -null.min(1)) > error
    off -= projected_off
    off[~packed["null_rows"]] = -null[~packed["null_rows"]]
    errors["simplex_null"] = _stated(_largest(off))
    packed["simplex_null_share"] = _share(null, true_raw)
    packed["merged_null_share"] = _share(*(_together(cells, copies) for cells in (null, true_raw)))
    packed["simplex_correlation"] = _correlation(true_raw, true, inside)
    return packed


def _checked(true: Array, rebuilt: Array | None, error: float) -> tuple[Array, dict[int, Array]]:
    """How far the page is off in every cell, and the rows that it needs cell by cell: row → codes."""
    levels = levels_for(error)
    if rebuilt is None:
        codes = to_levels(true, levels)
        return from_levels(codes, levels) - true, dict(enumerate(codes))
    off = rebuilt - true
    # Written so that what is not a number is wrong, too.
    right = (off.max(1) <= error) & (off.min(1) >= -error)
    wrong = np.flatnonzero(~right)
    codes = to_levels(true[wrong], levels)
    off[wrong] = from_levels(codes, levels) - true[wrong]
    return off, dict(zip(wrong.tolist(), codes, strict=True))


def _largest(off: Array) -> float:
    return max(float(off.max()), -float(off.min()))


def _softmax(layer: Layer, place: int, factors: _Factors, inside: Array | None) -> Array:
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
    weights = np.exp(logits - top, dtype=np.float32)
    total = weights.sum(1, keepdims=True)
    if layer.sinks is not None:
        total = total + np.exp(layer.sinks[place] - top)
    return np.asarray(weights / total)


def _pack_map(
    chunk: Chunk, factors: _Factors | None, rows: list[dict[int, Array]], error: float, derived: bool = False
) -> PackedMap:
    """Factors, column by column, and the rows stored cell by cell; `rows` null where these are all.

    derived: without the left factor.
    """
    queries = [head * 2**20 + row for head, by_row in enumerate(rows) for row in by_row]
    cells = [codes for by_row in rows for codes in by_row.values()]
    packed: PackedMap = {"factors": None, "levels": levels_for(error), "rows": None, "cells": None}
    if factors is not None:
        packed["factors"] = {
            "left": None if derived else chunk.whole(np.stack(factors.left).transpose(2, 0, 1)),
            "right": chunk.whole(np.stack(factors.right).transpose(2, 0, 1)),
            "left_step": [] if derived else factors.left_step,
            "right_step": factors.right_step,
        }
        packed["rows"] = chunk.places(np.array(queries, dtype=np.uint32))
    if cells:
        packed["cells"] = chunk.whole(np.stack(cells))
    return packed


def _pack_output(layer: Layer, chunk: Chunk, factors: _Factors) -> Output:
    """T in the coordinates of the right factor, and how far a row of the rounded T may be from the true one."""
    assert layer.right is not None and layer.output is not None
    group = len(layer.output) // len(layer.right)
    errors = []
    for head, small in enumerate(layer.output):
        place = head // group
        missing = (layer.right[place] - factors.right[place] * factors.right_step[place]) @ small
        errors.append(_stated(float(np.linalg.norm(missing, axis=1).max())))
    return {"matrix": chunk.numbers(layer.output), "row_error": errors}


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
    found: Array = np.add.reduceat(cells[:, order], starts, axis=1)
    return found


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
