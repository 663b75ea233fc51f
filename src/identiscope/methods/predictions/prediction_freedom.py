"""How far attention can move while the outcome of the running model stays."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.methods.attention_runs import AttentionRuns, chosen_places, free_share
from identiscope.methods.predictions.drawing_back import (
    FIRST_STEPS,
    TOGETHER_STEPS,
    Way,
    Ways,
    aims_of,
    checked_tolerances,
    random_way,
    run_along,
    ways_back,
)
from identiscope.progress import Progress

#: The columns that a Run has: name → meaning.
RUN_COLUMNS = {
    "reach": "how far the layer's rows were moved with the outcome within the largest tolerance: mean total variation",
    "merged_reach": "the same with copies of a token added up",
    "reach_same_choice": "how far with the same most likely word or class",
    "exactly_free": "share of rows on which the outcome does not depend at all",
    "outcome_moved": "by how much the outcome moved then",
    "control_moved": "by how much random maps as far away move it",
}
SAME = "same choice"
By = Literal["layer", "head", "row"]


@dataclass(frozen=True, eq=False)
class Unit:
    """Rows that move together: by place of a layer which of them, [head, query]; and where in the answer they go."""

    moving: dict[int, Tensor]
    place: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class PredictionFreedom:
    """arrays by name with their axes, labels by axis, and what is known of all of it."""

    arrays_by_name: dict[str, tuple[tuple[str, ...], Any]]
    labels_by_axis: dict[str, Sequence[Any]]
    facts: dict[str, Any] = field(default_factory=dict)

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Any]]:
        """By name, with their axes."""
        return self.arrays_by_name

    def labels(self) -> dict[str, Sequence[Any]]:
        """Layers, and what was asked for."""
        return self.labels_by_axis


def prediction_freedom(
    attention_runs: AttentionRuns,
    *,
    tolerance: float | Sequence[float] = (0.01, 0.05),
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    rows: Sequence[int] | None = None,
    by: By = "layer",
    all_at_once: bool = True,
    merged: bool = False,
    maps: bool = False,
    outcomes: int = 5,
    refinements: int = 1,
    seed: int = 0,
    progress: Progress | None = None,
) -> PredictionFreedom:
    """How far attention can move while the outcome stays, in the running model: by layer, and all layers at once.

    Every row is moved away from its strongest key as far as the most likely choices keep their probabilities to first
    order (a linear program a row); the model is run with these maps, and they are drawn back along the straight way to
    the raw ones, which is always attention, until what comes out is within the tolerance. `reach_within` [layer,
    criterion] is the mean total variation of the rows from the raw ones then: the best that was found, so a lower bound
    on how far they can move. Criteria are the tolerances, on the total variation of the probabilities of all words or
    classes where the outcome is read (on the outcome itself, where it has no choices), and the `same choice`.
    `moved_within` is by how much it moved in that run, `outcome_within` what came out and `step` the share of the way;
    where the whole way holds, the same is tried with nothing kept to first order; and random maps are, with those
    numbers kept to first order and without, first as far away as what was found, and farther where they hold there. The
    farthest counts; `first_order` says whether its way kept these numbers, and `random` whether it was drawn. `reach`,
    `merged_reach` (copies of a key added up) and `outcome_moved` [layer] are of the largest tolerance, and
    `control_moved` of random maps as far away, row by row, drawn independently of all that was tried. `exactly_free`
    [layer] is the share of rows from which no path of allowed cells leads to where the outcome is read: these can be
    anything, as runs with random numbers in all of them, and with none in those of the last layer, confirm.

    tolerance: how far the outcome may move: one number or several. layers: only these. heads: only these heads move.
    rows: only these queries move. by: answer for each layer, and also for each head or row of it by itself.
    all_at_once: move all layers together, too (`all_…`). merged: move away from the strongest token with all its
    copies, and seek the largest `merged_reach`; the control is as far away in that. maps: give the maps themselves,
    too, those of each layer and those of all at once (`maps`, `all_maps` [layer, head, query, key], of the largest
    tolerance), to be run again by `substitute`. outcomes: how many choices keep their probabilities to first order.
    refinements: how often the share of the way is refined after the first four runs. seed: of the random maps.

    >>> prediction_freedom(runs, tolerance=0.05).arrays()["reach"]
    """
    tolerances = checked_tolerances(tolerance)
    if refinements < 0:
        raise InputError(f"refinements={refinements} was given; expected 0 or more.")
    known = attention_runs.layers
    places = chosen_places("layers", layers, [one.layer for one in known])
    numbers, gradients = attention_runs.gradients(outcomes)
    aims = aims_of({place: known[place] for place in places}, {one: gradients[one] for one in places}, merged, seed)
    free = {place: attention_runs.free_rows[place] for place in places}
    criteria: list[float | None] = (
        [*tolerances, None] if attention_runs.reference.distribution is not None else [*tolerances]
    )
    names = [SAME if one is None else f"{one:g}" for one in criteria]
    units = list(_units(attention_runs, places, heads, rows, by))
    whole = {place: unit.moving[place] for unit in units for place in unit.moving if len(unit.place) == 1}
    together = [Unit(whole, ())] if all_at_once and len(places) > 1 else []
    shape = {1: (len(places),), 2: (len(places), len(known[0].heads))}
    shape[3] = (*shape[2], known[0].raw.shape[1])
    found: dict[int, dict[str, np.ndarray]] = {}
    outcome = float(attention_runs.reference.value[0])
    kept = {size: {place: known[place].raw for place in places} for size in ((1, 0) if all_at_once else (1,)) if maps}
    for done, unit in enumerate([*units, *together]):
        if progress is not None:
            progress(done, len(units) + len(together))
        way = Way(known, {place: aims[0].targets[place] for place in unit.moving}, unit.moving, free)
        size = len(unit.place)
        answer = found.setdefault(size, _empty(shape.get(size, ()), len(criteria), outcome))
        if way.reach(1.0)[1] > 0:
            start = FIRST_STEPS if unit.place else TOGETHER_STEPS
            ways = ways_back(attention_runs, aims, unit.moving, free, merged, criteria, refinements, start)
            final = _write(answer, unit.place, attention_runs, ways, criteria, len(tolerances) - 1, seed)
            if maps and size < 2:
                kept[size] |= final
    if progress is not None:
        progress(len(units) + len(together), len(units) + len(together))
    if all_at_once and len(places) == 1:
        found[0] = {name: values[0] for name, values in found[1].items()}
        kept |= {0: kept[1]} if maps else {}
    whole_answer = _answer(found, known, places, names, free, whole, len(tolerances) - 1, numbers, attention_runs)
    for size, by_place in kept.items():
        name = "maps" if size else "all_maps"
        cells = torch.stack([by_place[place] for place in places])
        whole_answer.arrays_by_name[name] = ("layer", "head", "query", "key"), cells
        whole_answer.labels_by_axis["head"] = list(known[0].heads)
    return whole_answer


def _units(
    runs: AttentionRuns, places: Sequence[int], heads: Sequence[int] | None, rows: Sequence[int] | None, by: By
) -> Iterator[Unit]:
    """What moves together: each layer; and each head, or row, of it by itself."""
    if by not in ("layer", "head", "row"):
        raise InputError(f"by={by!r} was given; expected layer, head or row.")
    for number, place in enumerate(places):
        layer = runs.layers[place]
        moving = torch.zeros(layer.raw.shape[:2], dtype=torch.bool, device=layer.raw.device)
        own_heads = chosen_places("heads", heads, layer.heads)
        own_rows = chosen_places("rows", rows, range(layer.raw.shape[1]))
        moving[torch.tensor(own_heads)[:, None], torch.tensor(own_rows)] = True
        yield Unit({place: moving}, (number,))
        for head in own_heads if by != "layer" else ():
            alone = torch.zeros_like(moving)
            alone[head] = moving[head]
            if by == "head":
                yield Unit({place: alone}, (number, head))
            for row in own_rows if by == "row" else ():
                single = torch.zeros_like(moving)
                single[head, row] = True
                yield Unit({place: single}, (number, head, row))


#: What is known of each unit: for each criterion, and once.
_BY_CRITERION = (
    "reach_within",
    "merged_reach_within",
    "moved_within",
    "outcome_within",
    "step",
    "first_order",
    "random",
)
_ONCE = ("control_moved", "control_same_choice")


def _empty(shape: tuple[int, ...], criteria: int, outcome: float) -> dict[str, np.ndarray]:
    """Where nothing can move nothing does, and no control is run."""
    made = {name: np.zeros((*shape, criteria)) for name in _BY_CRITERION}
    made["outcome_within"][...] = outcome
    return made | {name: np.full(shape, np.nan) for name in _ONCE}


def _write(
    answer: dict[str, np.ndarray],
    place: tuple[int, ...],
    runs: AttentionRuns,
    ways: Ways,
    criteria: Sequence[float | None],
    main: int,
    seed: int,
) -> dict[int, Tensor]:
    """Put what was found into the answer; the maps [head, query, key] of the main criterion, by place of a layer."""
    control, final = None, {}
    for number, criterion in enumerate(criteria):
        way, tried, best, aims = ways.farthest(criterion)
        answer["step"][(*place, number)] = tried.steps[best]
        answer["first_order"][(*place, number)] = float(aims.first_order)
        answer["random"][(*place, number)] = float(aims.random)
        answer["moved_within"][(*place, number)] = tried.moved[best]
        answer["outcome_within"][(*place, number)] = tried.value[best]
        answer["reach_within"][(*place, number)] = way.reach(tried.steps[best])[0]
        answer["merged_reach_within"][(*place, number)] = way.reach(tried.steps[best], merged=True)[0]
        if number == main:
            control = run_along(runs, random_way(way, tried.steps[best], seed, ways.merged), [1.0])
            final = {one: way.at(one, torch.tensor([tried.steps[best]]))[0] for one in way.targets}
    assert control is not None
    answer["control_moved"][place] = float(control.variation(runs.reference)[0])
    same = control.same_choice(runs.reference)
    answer["control_same_choice"][place] = np.nan if same is None else float(same[0])
    return final


def _answer(
    found: dict[int, dict[str, np.ndarray]],
    known: Sequence[Any],
    places: Sequence[int],
    names: Sequence[str],
    free: dict[int, Tensor],
    whole: dict[int, Tensor],
    main: int,
    numbers: Tensor,
    runs: AttentionRuns,
) -> PredictionFreedom:
    axes: dict[int, tuple[str, ...]] = {0: (), 1: ("layer",), 2: ("layer", "head"), 3: ("layer", "head", "query")}
    arrays: dict[str, tuple[tuple[str, ...], Any]] = {}
    layer = found[1]
    arrays["reach"] = ("layer",), layer["reach_within"][:, main]
    arrays["merged_reach"] = ("layer",), layer["merged_reach_within"][:, main]
    last = names.index(SAME) if SAME in names else None
    arrays["reach_same_choice"] = (
        ("layer",),
        np.full(len(places), np.nan) if last is None else layer["reach_within"][:, last],
    )
    arrays["outcome_moved"] = ("layer",), layer["moved_within"][:, main]
    shares = [free_share(known[place], free[place], whole[place]) for place in places]
    arrays["exactly_free"] = ("layer",), np.array(shares)
    for size, prefix in ((1, ""), (0, "all_"), (2, "head_"), (3, "row_")):
        for name, values in found.get(size, {}).items():
            own = (*axes[size], "criterion") if name in _BY_CRITERION else axes[size]
            arrays[f"{prefix}{name}"] = own, values
    labels: dict[str, Sequence[Any]] = {"layer": [known[place].layer for place in places], "criterion": list(names)}
    if len(found.keys() & {2, 3}):
        labels["head"] = list(known[0].heads)
    choices = runs.reference.distribution is not None
    facts = {
        "measured": "total variation of the probabilities of all choices"
        if choices
        else "size of the outcome's change",
        "held_to_first_order": numbers.tolist(),
        "bound": "the farthest that was found: a lower bound",
    }
    return PredictionFreedom(arrays, labels, facts)
