"""What kind of pattern an attention map or its structure W shows, with a score for each kind."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.allowed import Allowed, describe_allowed
from identiscope.linalg.devices import as_numpy

PATTERNS = ("diagonal", "previous", "next", "vertical", "block", "broad", "antidiagonal")

#: A map whose best score is below this shows no one pattern, and is called mixed.
NAMED = 0.3

#: Where a longer text may be cut into blocks, so that the search stays short: at so many places, evenly spread.
PLACES = 48

MOST_BLOCKS = 4


@dataclass(frozen=True)
class MapPattern:
    """A score from 0 (no more than uniform attention has) to 1 (nothing else) for each pattern.

    `diagonal`, `previous`, `next`, `antidiagonal`: weight on the token itself, the one before, the one after, the
    mirrored place. `vertical`: weight on one key, `vertical_key`, from all queries. `block`: weight spread evenly
    within 2 to 4 consecutive blocks, which begin at `block_starts`. `broad`: weight spread evenly over all keys.
    `name` is the pattern with the largest score, or "mixed" if that is below 0.3.
    """

    diagonal: float
    previous: float
    next: float
    vertical: float
    block: float
    broad: float
    antidiagonal: float
    vertical_key: int
    block_starts: tuple[int, ...]
    name: str

    @property
    def scores(self) -> Mapping[str, float]:
        """Score by pattern."""
        return {name: getattr(self, name) for name in PATTERNS}


@dataclass(frozen=True)
class HeadPattern:
    """The pattern of every head: `scores` [head, pattern], and the `names` of the best ones."""

    scores: Tensor
    names: tuple[str, ...]

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Any]]:
        """By name, with their axes."""
        scores = {name: (("head",), self.scores[:, place]) for place, name in enumerate(PATTERNS)}
        return scores | {"pattern": (("head",), np.array(self.names, dtype=object))}


def head_pattern(attention: Tensor, allowed: Allowed = None) -> HeadPattern:
    """A score for each pattern of every map of attention [head, query, key], as `map_pattern` gives them.

    >>> head_pattern(torch.eye(6)[None]).names
    ('diagonal',)
    """
    patterns = [map_pattern(one, allowed=allowed) for one in attention]
    scores = torch.tensor([list(one.scores.values()) for one in patterns], dtype=torch.float64)
    return HeadPattern(scores, tuple(one.name for one in patterns))


def map_pattern(attention: Tensor, *, allowed: Allowed = None) -> MapPattern:
    """Score one map [query, key], or a structure W; rows are normalised, and rows of zeros left out.

    Every score is (weight − chance) / (1 − chance), not below 0: chance is what attention spread evenly over the
    `allowed` keys has there, so that a short or a causal map does not look patterned by itself. Rows without a cell of
    a pattern (the first token has no previous one) do not count for it. A column counts as vertical only if at
    least half of the rows may see it; blocks have at least two tokens, and only square maps have any.

    >>> map_pattern(torch.eye(6)).name, map_pattern(torch.full((6, 6), 1 / 6)).name
    ('diagonal', 'broad')
    """
    if attention.ndim != 2 or not attention.numel():
        raise InputError(f"a map of shape {list(attention.shape)} was given, expected one [query, key]")
    cells = as_numpy(attention.double())
    if not np.isfinite(cells).all() or cells.min() < 0:
        raise InputError("the map has weights that are negative or not finite; give raw attention or W")
    described = describe_allowed(allowed, attention.shape[0], attention.shape[1], torch.device("cpu"))
    inside = as_numpy(described.block(slice(0, len(cells))))
    kept = cells.sum(1) > 0
    weights = cells / np.where(kept, cells.sum(1), 1)[:, None]
    even = inside / inside.sum(1, keepdims=True)
    offset = np.arange(cells.shape[1]) - np.arange(cells.shape[0])[:, None]
    mirrored = np.arange(cells.shape[1]) + np.arange(cells.shape[0])[:, None] == cells.shape[1] - 1
    places = {"diagonal": offset == 0, "previous": offset == -1, "next": offset == 1, "antidiagonal": mirrored}
    scores = {name: _score(weights, even, place & inside, kept) for name, place in places.items()}
    scores["vertical"], column = _vertical(weights, even, inside, kept)
    scores["block"], starts = _block(weights, inside, kept)
    scores["broad"] = _broad(weights, even, inside, kept)
    best = max(PATTERNS, key=lambda name: scores[name])
    return MapPattern(
        **scores, vertical_key=column, block_starts=starts, name=best if scores[best] >= NAMED else "mixed"
    )


def _share(above: float, room: float) -> float:
    """Above chance, as a share of what could be; 0 where nothing could."""
    return float(min(max(above / room, 0.0), 1.0)) if room > 0 else 0.0


def _score(weights: np.ndarray, even: np.ndarray, place: np.ndarray, kept: np.ndarray) -> float:
    rows = place.any(1) & kept
    weight, chance = (weights * place)[rows].sum(1), (even * place)[rows].sum(1)
    return _share(float((weight - chance).sum()), float((1 - chance).sum()))


def _vertical(weights: np.ndarray, even: np.ndarray, inside: np.ndarray, kept: np.ndarray) -> tuple[float, int]:
    seen = (inside & kept[:, None]).sum(0)
    best, column = 0.0, 0
    for key in np.flatnonzero(2 * seen >= kept.sum()):
        rows = inside[:, key] & kept
        chance = even[rows, key]
        share = _share(float((weights[rows, key] - chance).sum()), float((1 - chance).sum()))
        if share > best:
            best, column = share, int(key)
    return best, column


def _broad(weights: np.ndarray, even: np.ndarray, inside: np.ndarray, kept: np.ndarray) -> float:
    """What a row shares with an even one, above what a row with all weight on one key does."""
    shared = np.minimum(weights, even)[kept].sum(1)
    least = 1 / inside[kept].sum(1)
    return _share(float((shared - least).sum()), float((1 - least).sum()))


def _block(weights: np.ndarray, inside: np.ndarray, kept: np.ndarray) -> tuple[float, tuple[int, ...]]:
    size = len(weights)
    if weights.shape[1] != size or size < 4:
        return 0.0, ()
    places = np.unique(np.linspace(0, size, min(size, PLACES) + 1).round().astype(int))
    above, room = _intervals(weights, inside, kept, places)
    # gain[k, e]: the most that k blocks up to place e have above chance, and where the last of them begins.
    count = len(places)
    gain = np.full((MOST_BLOCKS + 1, count), -np.inf)
    last = np.zeros((MOST_BLOCKS + 1, count), dtype=int)
    gain[0, 0] = 0.0
    for blocks in range(1, MOST_BLOCKS + 1):
        reached = gain[blocks - 1][:, None] + above
        last[blocks], gain[blocks] = reached.argmax(0), reached.max(0)
    best: float = 0.0
    starts: tuple[int, ...] = ()
    for blocks in range(2, MOST_BLOCKS + 1):
        if gain[blocks, -1] > 0:
            path = [count - 1]
            for number in range(blocks, 0, -1):
                path.insert(0, int(last[number, path[0]]))
            total = sum(room[begin, end] for begin, end in pairwise(path))
            share = _share(float(gain[blocks, -1]), float(total))
            if share > best:
                best, starts = share, tuple(int(places[one]) for one in path[:-1])
    return best, starts


def _intervals(
    weights: np.ndarray, inside: np.ndarray, kept: np.ndarray, places: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """For a block from one place to another: overlap with an even block above chance, and the room for it."""
    firsts, afters = np.triu_indices(len(places), 1)
    wide = places[afters] - places[firsts] >= 2
    firsts, afters = firsts[wide], afters[wide]
    find = _masked_intervals
    if inside.all():
        find = _unmasked_intervals
    elif np.array_equal(inside, np.tri(len(inside), dtype=bool)):
        find = _causal_intervals
    above, room = np.full((len(places), len(places)), -np.inf), np.zeros((len(places), len(places)))
    above[firsts, afters], room[firsts, afters] = find(weights, inside, kept, places[firsts], places[afters])
    return above, room


def _unmasked_intervals(
    weights: np.ndarray, inside: np.ndarray, kept: np.ndarray, begins: np.ndarray, ends: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """All blocks of one width at a time: their weights are clipped alike, and summed from one table."""
    size = len(weights)
    rows = np.concatenate([[0], np.cumsum(kept)])
    shared = np.empty(len(begins))
    for width in np.unique(ends - begins):
        here = ends - begins == width
        table = np.zeros((size + 1, size + 1))
        np.cumsum(np.cumsum(np.minimum(weights, 1 / width), 0), 1, out=table[1:, 1:])
        begin, end = begins[here], ends[here]
        shared[here] = table[end, end] - table[begin, end] - table[end, begin] + table[begin, begin]
    count, chance = rows[ends] - rows[begins], (ends - begins) / size
    return shared - count * chance, count * (1 - chance)


def _causal_intervals(
    weights: np.ndarray, inside: np.ndarray, kept: np.ndarray, begins: np.ndarray, ends: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """All blocks that begin at one place: what a causal row sees of its block does not depend on where that ends."""
    sums = np.empty((2, len(begins)))
    for begin in np.unique(begins):
        here = begins == begin
        own = np.arange(1, len(weights) - begin + 1)
        chance = own / (begin + own)
        shared = np.minimum(weights[begin:, begin:], 1 / own[:, None]).sum(1)
        rows = np.stack([shared - chance, 1 - chance]) * kept[begin:]
        sums[:, here] = np.cumsum(rows, 1)[:, ends[here] - begin - 1]
    return sums[0], sums[1]


def _masked_intervals(
    weights: np.ndarray, inside: np.ndarray, kept: np.ndarray, begins: np.ndarray, ends: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Block by block: how wide a block is for a row depends on what the row may see of it."""
    seen, sums = inside.sum(1), np.empty((2, len(begins)))
    for number, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        rows = kept[begin:end]
        own = inside[begin:end, begin:end][rows].sum(1)
        chance = own / seen[begin:end][rows]
        cells = weights[begin:end, begin:end][rows]
        shared = np.minimum(cells, 1 / np.maximum(own, 1)[:, None]).sum(1)
        sums[:, number] = (shared - chance).sum(), (1 - chance).sum()
    return sums[0], sums[1]
