"""How sparse attention can be made before the outcome moves: few keys, large weights, a window, global tokens."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.allowed import Allowed
from identiscope.linalg.copies import spread_rows
from identiscope.methods.attention_runs import AttentionRuns, LayerMaps
from identiscope.methods.freedom.polytopes import head_rows
from identiscope.methods.maps.factored import RawRows
from identiscope.methods.predictions.drawing_back import checked_tolerances
from identiscope.progress import Progress

#: Way → what it may be, from the sparsest to the fullest. Windows are to either side.
WAYS: Mapping[str, tuple[float, ...]] = {
    "top": (1, 2, 4, 8, 16, 32),
    "threshold": (0.2, 0.1, 0.05, 0.02, 0.01),
    "window": (0, 1, 2, 4, 8, 16),
    "global": (0, 1, 2, 4, 8, 16),
}
#: The columns that a Run has: name → meaning.
RUN_COLUMNS = {
    "top_needed": "fewest keys of a row, those of the largest weights, that keep the outcome within the tolerance",
    "threshold_needed": "largest threshold for weights that keeps it so",
    "window_needed": "smallest window around the query that keeps it so",
    "global_needed": "smallest window that does, with special tokens and the first seen from everywhere",
    "exact_keys": "mean number of keys that a row needs for exactly the same output (an upper bound of the fewest)",
}


@dataclass(frozen=True, eq=False)
class SparseAttention:
    """By how much the outcome moved, by way, and how many keys do exactly, by layer."""

    arrays_by_name: dict[str, tuple[tuple[str, ...], Any]]
    layers: list[int]
    facts: dict[str, Any]

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Any]]:
        """By name, with their axes."""
        return self.arrays_by_name

    def labels(self) -> dict[str, Sequence[Any]]:
        """The layers, and what each way may be."""
        return {"layer": self.layers, **{way: list(levels) for way, levels in WAYS.items()}}


def sparse_attention(
    attention_runs: AttentionRuns,
    special_tokens: Tensor,
    value: Sequence[Tensor],
    projection: Sequence[Tensor],
    raw: Sequence[RawRows],
    allowed: Sequence[Allowed],
    precision: Sequence[torch.dtype | None],
    *,
    tolerance: float = 0.05,
    rows: int = 4,
    layers: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> SparseAttention:
    """What becomes of an outcome when rows of attention keep some of their keys, the others being scaled up.

    Brahma et al. 2022 mask attention; here the model is run with what is left. `top_moved` [layer, top] is by how much
    the outcome moves (total variation of the probabilities of all choices, or the size of its change where there are
    none) with the largest weights of each row alone, `threshold_moved` with those of at least a threshold (and always
    the largest), `window_moved` with keys at most so far from the query, `global_moved` with special tokens and the
    first one too. `top_together` [top] and its kin are with all these layers at once; their weights are those of the
    pass, and are not found anew. `top_share` is the share of cells that is left. `top_needed` [layer] and its kin are
    the sparsest from which on the outcome stays within the tolerance; NaN if none of those tried does.

    Beside it what costs nothing: `exact_keys` [layer], the mean over heads and rows of how many keys a row with exactly
    the same output has (a corner of the set of all such rows; no more than rank([T,1]), `exact_most`), of `seen_keys`.

    tolerance: what the outcome may move by. rows: of each head so many, spread evenly, stand for all in `exact_keys`.
    layers: only these.

    >>> sparse_attention(runs, special, value, projection, raw, allowed, precision).arrays()["top_needed"]
    """
    limit = checked_tolerances(tolerance)[0]
    if rows < 1:
        raise InputError(f"rows={rows} was given; expected at least 1.")
    known = attention_runs.layers
    numbers = [one.layer for one in known]
    if layers is not None and (not len(layers) or any(one not in numbers for one in layers)):
        raise InputError(f"layers {list(layers)} were asked for; there are {numbers[0]} to {numbers[-1]}.")
    places = [place for place, number in enumerate(numbers) if layers is None or number in layers]
    levels = [(way, level) for way, several in WAYS.items() for level in several]
    anywhere = special_tokens.clone()
    anywhere[:1] = True
    found: list[dict[str, Any]] = []
    for done, place in enumerate(places):
        if progress is not None:
            progress(done, len(places) + 1)
        moved = _moved(attention_runs, {place: _maps(known[place], levels, anywhere)}, len(levels))
        own = _by_way(moved, "moved") | {f"{way}_needed": _needed(moved[_part(way)], WAYS[way], limit) for way in WAYS}
        own |= _by_way(np.array([_share(known[place], way, level, anywhere) for way, level in levels]), "share")
        given = value[place], projection[place], raw[place], allowed[place], precision[place]
        found.append(own | _exact(*given, len(special_tokens), rows))
    together = _moved(attention_runs, {place: _maps(known[place], levels, anywhere) for place in places}, len(levels))
    if progress is not None:
        progress(len(places) + 1, len(places) + 1)
    arrays: dict[str, tuple[tuple[str, ...], Any]] = {}
    for name in found[0]:
        way = name.split("_")[0]
        axes = ("layer", way) if name.endswith(("_moved", "_share")) else ("layer",)
        arrays[name] = (axes, np.array([one[name] for one in found], np.float64))
    arrays |= {name: ((name.split("_")[0],), values) for name, values in _by_way(together, "together").items()}
    return SparseAttention(arrays, [numbers[place] for place in places], {"tolerance": limit})


def sparse_rows(layer: LayerMaps, way: str, level: float, anywhere: Tensor) -> Tensor:
    """The maps of a layer with only what a way leaves of each row, scaled up to its sum: [head, query, key]. A row of
    which nothing is left stays as it is. anywhere [key]: the tokens that `global` sees from everywhere."""
    kept = _kept(layer, way, level, anywhere)
    left = torch.where(kept, layer.raw, 0.0)
    total = left.sum(-1, keepdim=True)
    scaled = left / torch.where(total > 0, total, 1.0) * layer.raw.sum(-1, keepdim=True)
    return torch.where(total > 0, scaled, layer.raw)


def _kept(layer: LayerMaps, way: str, level: float, anywhere: Tensor) -> Tensor:
    """Which cells a way leaves, of those that are allowed."""
    queries, keys = layer.raw.shape[1:]
    if way == "top":
        # Of equal weights the earlier key.
        weights = torch.where(layer.allowed, layer.raw, -1.0)
        rank = weights.sort(dim=-1, descending=True, stable=True).indices.argsort(-1)
        return (rank < level) & layer.allowed
    if way == "threshold":
        largest = layer.raw.max(-1, keepdim=True).values
        return (layer.raw >= torch.minimum(largest, torch.full_like(largest, level))) & layer.allowed
    place = torch.arange(keys, device=layer.raw.device)
    near = (place - place[:queries, None]).abs() <= level
    if way == "global":
        near = near | anywhere.to(near.device)
    return (near & layer.allowed).expand_as(layer.raw)


def _maps(layer: LayerMaps, levels: Sequence[tuple[str, float]], anywhere: Tensor) -> Callable[[Tensor], Tensor]:
    def made(numbers: Tensor) -> Tensor:
        chosen = [levels[number] for number in numbers.tolist()]
        return torch.stack([sparse_rows(layer, way, level, anywhere) for way, level in chosen])

    return made


def _moved(runs: AttentionRuns, changed: Mapping[int, Callable[[Tensor], Tensor]], count: int) -> np.ndarray:
    moved: np.ndarray = runs.answers(changed, count).variation(runs.reference).double().cpu().numpy()
    return moved


def _part(way: str) -> slice:
    """Where the numbers of a way stand among those of all."""
    before = 0
    for name, levels in WAYS.items():
        if name == way:
            return slice(before, before + len(levels))
        before += len(levels)
    raise KeyError(way)


def _by_way(numbers: np.ndarray, what: str) -> dict[str, np.ndarray]:
    return {f"{way}_{what}": numbers[_part(way)] for way in WAYS}


def _share(layer: LayerMaps, way: str, level: float, anywhere: Tensor) -> float:
    cells = float(layer.allowed.sum()) * len(layer.raw)
    return float(_kept(layer, way, level, anywhere).sum()) / max(cells, 1.0)


def _needed(moved: np.ndarray, levels: Sequence[float], limit: float) -> float:
    """The sparsest level from which on all keep the outcome; NaN if the fullest does not."""
    needed = float("nan")
    for level, change in zip(reversed(levels), moved[::-1], strict=True):
        if not change <= limit:
            break
        needed = float(level)
    return needed


def _exact(
    value: Tensor, projection: Tensor, raw: RawRows, allowed: Allowed, precision: torch.dtype | None, queries: int,
    most: int,
) -> dict[str, float]:  # fmt: skip
    """Means over heads and some rows: keys that do for exactly the same output, the most that it takes, keys seen."""
    counts = []
    for head in range(len(projection)):
        rows = head_rows(value, projection, raw, head, queries, allowed, precision)
        for query in spread_rows(queries, most).tolist():
            polytope = rows.polytope(query)
            corner = polytope.best(-polytope.row)
            counts.append((int((corner > 0).sum()), polytope.basis.shape[1], len(polytope.row)))
    means = np.mean(counts, axis=0)
    return dict(zip(("exact_keys", "exact_most", "seen_keys"), means.tolist(), strict=True))
