"""Which attention weights a prediction rests on: how small each can be made while the outcome stays."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor

from identiscope.errors import InputError
from identiscope.methods.attention_runs import AttentionRuns, LayerMaps, chosen_places
from identiscope.methods.predictions.drawing_back import checked_tolerances
from identiscope.methods.predictions.first_order import first_order_bounds, removal_effect
from identiscope.progress import Progress

#: The columns that a Run has: name → meaning.
RUN_COLUMNS = {
    "load": "share of the attention weight that the outcome rests on to first order, copies of a token added up",
    "bearing_rows": "share of rows that hold such a weight",
}

#: How often the way to an end that does not hold is halved.
_HALVINGS = 4
#: An end is where the outcome is at the limit: rounding may put it just beyond.
_AT_THE_LIMIT = 1 + 1e-6


@dataclass(frozen=True, eq=False)
class LoadBearing:
    """load [layer] and, of the weights with the largest loads, arrays [cell]."""

    layers: list[int]
    heads: list[int]
    load: np.ndarray
    bearing_rows: np.ndarray
    cells: dict[str, Any]
    facts: dict[str, Any]
    bounds: list[Tensor]

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Any]]:
        """By name, with their axes."""
        by_layer: dict[str, tuple[tuple[str, ...], Any]] = {
            "load": (("layer",), self.load),
            "bearing_rows": (("layer",), self.bearing_rows),
        }
        axes = ("layer", "head", "row", "all_keys")
        every = {name: (axes, values) for name, values in zip(("least", "most"), self.bounds, strict=False)}
        return by_layer | {name: (("cell",), values) for name, values in self.cells.items()} | every

    def labels(self) -> dict[str, Sequence[int]]:
        """The layers, and the heads where every weight is given."""
        labels: dict[str, Sequence[int]] = {"layer": self.layers}
        return labels | {"head": self.heads} if self.bounds else labels


def load_bearing(
    attention_runs: AttentionRuns,
    *,
    tolerance: float = 0.05,
    top: int = 20,
    layers: Sequence[int] | None = None,
    outcomes: int = 5,
    weights: bool = False,
    progress: Progress | None = None,
) -> LoadBearing:
    """Of each weight the interval over its own row, all else fixed, the outcome staying within a tolerance: its load.

    The lower end is the weight's load: what the prediction rests on. To first order it has a closed form. A row that
    gives weight w to a token and the rest to others changes a number by something between the least and the most of its
    derivatives there; the outcome can stay within the tolerance if that range meets it. So a token bears a load only
    where no other key of its row pushes the outcome as far its way. With several numbers (the probabilities of the most
    likely choices) each gives a bound that holds, and the tightest is `merged_lower` and `merged_upper`, of a token
    with all its copies in the row; `lower` and `upper` are of the key alone. `load` [layer] is the share of all weight
    that is load. Weights are ranked by their load, and those that bear none by `effect`: how far a number moves to
    first order when the token leaves its row and the others are scaled up.

    The `top` weights are then solved with all numbers at once and run in the model at both ends: `end_lower` and
    `end_upper` are these ends, `lower_moved` and `upper_moved` by how much the outcome really moved there, and
    `removed_moved` by how much with none of the weight left, the rest of the row being what moves the numbers least.
    Where the outcome left the tolerance at the lower end, the row is drawn back towards what it is until it holds:
    `held_lower` is the least weight with which the outcome was seen to stay, so that the true load is at most that.

    tolerance: how far the outcome may move: each probability, or the outcome itself where there are no choices. top:
    how many weights are run. layers: only these. outcomes: how many of the most likely choices count. weights: give the
    interval of every weight to first order (`least`, `most` [layer, head, row, all_keys], of a key with its copies).

    >>> load_bearing(runs, tolerance=0.05).arrays()["load"]
    """
    limit = checked_tolerances(tolerance)[0]
    if top < 1:
        raise InputError(f"top={top} was given; expected at least 1.")
    known = attention_runs.layers
    places = chosen_places("layers", layers, [one.layer for one in known])
    _, gradients = attention_runs.gradients(outcomes)
    load: list[float] = []
    bearing: list[float] = []
    found: list[dict[str, Any]] = []
    bounds: list[tuple[Tensor, Tensor]] = []
    for place in places:
        layer = known[place]
        lower, upper = first_order_bounds(layer, gradients[place], layer.copies, limit)
        # Rows with one key cannot be anything else, and say nothing of what the outcome needs.
        able, total = lower[:, layer.movable], float(layer.raw[:, layer.movable].sum())
        load.append(float(able.sum()) / total if total else 0.0)
        bearing.append(float((able.amax(-1) > 0).double().mean()) if total else 0.0)
        if weights:
            bounds.append((lower[..., layer.copies] * layer.allowed, upper[..., layer.copies] * layer.allowed))
        found += _largest(layer, place, lower, upper, gradients[place], limit, top)
    found = sorted(found, key=lambda cell: (-cell["merged_lower"], -cell["effect"]))[:top]
    _run_ends(attention_runs, found, gradients, limit, progress)
    for cell in found:
        cell["layer_of_cell"] = known[cell["place"]].layer
    cells: dict[str, Any] = {name: np.array([cell[name] for cell in found], dtype) for name, dtype in _COLUMNS.items()}
    facts = {"tolerance": limit, "bound": "to first order, and of the weights that are listed in the running model"}
    every = [torch.stack(ends) for ends in zip(*bounds, strict=True)]
    numbers = [known[place].layer for place in places]
    return LoadBearing(numbers, list(known[0].heads), np.array(load), np.array(bearing), cells, facts, every)


#: Of a cell: what is said of it, and in which numbers.
_COLUMNS: dict[str, type] = {
    **dict.fromkeys(("layer_of_cell", "head_of_cell", "query", "key"), np.int64),
    **dict.fromkeys(("weight", "lower", "upper"), np.float64),
    "copies": np.int64,
    **dict.fromkeys(("effect", "merged_weight", "merged_lower", "merged_upper", "end_lower", "end_upper"), np.float64),
    **dict.fromkeys(("lower_moved", "upper_moved", "removed_moved", "held_lower"), np.float64),
}


def _largest(
    layer: LayerMaps, place: int, lower: Tensor, upper: Tensor, gradients: Tensor, limit: float, top: int
) -> list[dict[str, Any]]:
    """The tokens of largest load in a layer: of a token's copies in a row, the heaviest stands for all."""
    effect = removal_effect(layer, gradients).flatten()
    able = (layer.movable[:, None] & _seen(layer)).expand_as(lower).flatten()
    order = effect.argsort(descending=True, stable=True)
    order = order[torch.where(able, lower.flatten(), -1.0)[order].argsort(descending=True, stable=True)][:top]
    alone = first_order_bounds(layer, gradients, torch.arange(layer.raw.shape[-1], device=layer.raw.device), limit)
    cells: list[dict[str, Any]] = []
    for flat in order.tolist():
        head, rest = divmod(flat, lower.shape[1] * lower.shape[2])
        query, group = divmod(rest, lower.shape[2])
        own = layer.allowed[query] & (layer.copies == group)
        if not bool(able[flat]):
            continue
        key = int(torch.where(own, layer.raw[head, query], -1.0).argmax())
        cells.append(
            {
                "place": place, "head_of_cell": layer.heads[head], "query": query, "key": key,
                "weight": float(layer.raw[head, query, key]), "effect": float(effect[flat]),
                "lower": float(alone[0][head, query, key]), "upper": float(alone[1][head, query, key]),
                "copies": int(own.sum()), "merged_weight": float(layer.raw[head, query, own].sum()),
                "merged_lower": float(lower[head, query, group]), "merged_upper": float(upper[head, query, group]),
            }
        )  # fmt: skip
    return cells


def _seen(layer: LayerMaps) -> Tensor:
    """Which tokens each query sees, [query, group]."""
    groups = torch.nn.functional.one_hot(layer.copies).double()
    return layer.allowed.double() @ groups > 0


def _run_ends(
    runs: AttentionRuns,
    cells: list[dict[str, Any]],
    gradients: Sequence[Tensor],
    limit: float,
    progress: Progress | None,
) -> None:
    """Both ends of each cell, and none of its weight, solved for all numbers at once and run in the model."""
    if not cells:
        return
    rows = [_rows_at_ends(runs.layers[cell["place"]], cell, gradients[cell["place"]], limit) for cell in cells]
    names = ("lower", "upper", "removed")
    moved = _ran(runs, [(cell, row) for cell, ends in zip(cells, rows, strict=True) for row in ends])
    for number, (cell, ends) in enumerate(zip(cells, rows, strict=True)):
        token = _token(runs.layers[cell["place"]], cell)
        cell["end_lower"], cell["end_upper"] = (float(end[token].sum()) for end in ends[:2])
        for place, name in enumerate(names):
            cell[f"{name}_moved"] = moved[number * len(names) + place]
        cell["held_lower"] = min(
            [cell["merged_weight"]]
            + [weight for weight, name in ((0.0, "removed"), (cell["end_lower"], "lower"))
               if cell[f"{name}_moved"] <= limit * _AT_THE_LIMIT]
        )  # fmt: skip
    beyond = [number for number, cell in enumerate(cells) if cell["held_lower"] == cell["merged_weight"]]
    _draw_back(runs, [(cells[number], rows[number][0]) for number in beyond], limit)
    if progress is not None:
        progress(len(cells), len(cells))


def _draw_back(runs: AttentionRuns, ends: Sequence[tuple[dict[str, Any], Tensor]], limit: float) -> None:
    """Halve the way from a row to its end until the outcome is known to hold, for all cells at once."""
    low, high = [0.0] * len(ends), [1.0] * len(ends)
    for _ in range(_HALVINGS if ends else 0):
        shares = [(one + other) / 2 for one, other in zip(low, high, strict=True)]
        tried = []
        for (cell, end), share in zip(ends, shares, strict=True):
            layer = runs.layers[cell["place"]]
            raw = layer.raw[layer.heads.index(cell["head_of_cell"]), cell["query"]].cpu()
            tried.append((cell, raw + share * (end - raw)))
        for number, moved in enumerate(_ran(runs, tried)):
            cell, row = tried[number]
            if moved <= limit * _AT_THE_LIMIT:
                low[number] = shares[number]
                weight = float(row[_token(runs.layers[cell["place"]], cell)].sum())
                cell["held_lower"] = min(cell["held_lower"], weight)
            else:
                high[number] = shares[number]


def _token(layer: LayerMaps, cell: dict[str, Any]) -> Tensor:
    """Which keys are copies of a cell's, [key]."""
    return (layer.copies == layer.copies[cell["key"]]).cpu()


def _ran(runs: AttentionRuns, tried: Sequence[tuple[dict[str, Any], Tensor]]) -> list[float]:
    """By how much the outcome moves with one row [key] in the place of each cell's."""
    moved = [0.0] * len(tried)
    for place in sorted({cell["place"] for cell, _ in tried}):
        own = [number for number, (cell, _) in enumerate(tried) if cell["place"] == place]

        def maps(numbers: Tensor, place: int = place, own: list[int] = own) -> Tensor:
            layer = runs.layers[place]
            made = layer.raw.expand(len(numbers), *layer.raw.shape).clone()
            for at, number in enumerate(numbers.tolist()):
                cell, row = tried[own[number]]
                made[at, layer.heads.index(cell["head_of_cell"]), cell["query"]] = row.to(made)
            return made

        for number, one in zip(own, runs.answers({place: maps}, len(own)).variation(runs.reference), strict=True):
            moved[number] = float(one)
    return moved


def _rows_at_ends(layer: LayerMaps, cell: dict[str, Any], gradients: Tensor, limit: float) -> list[Tensor]:
    """The row with the least and the most of a token that moves no number by more than the limit to first order, and
    the one without it that moves them least: [key] each."""
    head, query = layer.heads.index(cell["head_of_cell"]), cell["query"]
    keys = layer.allowed[query].nonzero()[:, 0].cpu()
    row = layer.raw[head, query].cpu()[keys].numpy()
    slopes = gradients[:, head, query].cpu()[:, keys].numpy()
    token = (layer.copies.cpu()[keys] == layer.copies.cpu()[cell["key"]]).numpy()
    bounds = [(-weight, None) for weight in row]
    both = np.concatenate([slopes, -slopes])
    ends = []
    for sign in (1.0, -1.0):
        found = linprog(
            sign * token, A_ub=both, b_ub=np.full(len(both), limit), A_eq=np.ones((1, len(row))), b_eq=[0.0],
            bounds=bounds, method="highs",
        )  # fmt: skip
        ends.append(row + found.x if found.status == 0 else row)
    # Without the token: the largest change of a number is one more variable, which is made small.
    size = float(np.abs(both).max()) or 1.0
    gone = [(-weight, -weight) if own else (-weight, None) for weight, own in zip(row, token, strict=True)]
    found = linprog(
        np.append(np.zeros(len(row)), 1.0), A_ub=np.column_stack([both / size, -np.ones(len(both))]),
        b_ub=np.zeros(len(both)), A_eq=np.append(np.ones(len(row)), 0.0)[None], b_eq=[0.0], bounds=[*gone, (0, None)],
        method="highs",
    )  # fmt: skip
    ends.append(row + found.x[:-1] if found.status == 0 else row)
    whole = []
    for end in ends:
        full = torch.zeros(layer.raw.shape[-1], dtype=torch.float64)
        full[keys] = torch.from_numpy(np.maximum(end, 0.0) / max(np.maximum(end, 0.0).sum(), 1e-300) * row.sum())
        whole.append(full)
    return whole
