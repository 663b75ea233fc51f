"""From maps that keep an outcome to first order to maps that keep it in the running model: back along the way."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.random_rows import random_aims, random_rows
from identiscope.linalg.simplex.kept_rows import kept_rows
from identiscope.methods.attention_runs import Answers, AttentionRuns, LayerMaps

#: Shares of the way that are tried first, all in one batch.
FIRST_STEPS = (1.0, 0.5, 0.25, 0.125)
#: The same where all layers move together, whose changes add up.
TOGETHER_STEPS = (0.5, 0.125, 0.03125, 0.0078125)
#: How much of a tolerance is aimed at, so that what is read off other runs has room to be wrong.
_AIM = 0.95
#: What the search draws has seeds of its own, so that the control is drawn independently of it.
_OF_SEARCH = 2**40
#: So many corners that keep numbers to first order have their mean taken: farther inside, less is moved beyond that.
_CORNERS = 2


def checked_tolerances(tolerance: float | Sequence[float]) -> list[float]:
    """How far the outcome may move: one number or several, each at least zero, the smallest first."""
    given = [tolerance] if isinstance(tolerance, (int, float)) else list(tolerance)
    if not given or any(isinstance(one, bool) or not 0 <= one < float("inf") for one in given):
        raise InputError(
            f"tolerance={tolerance!r} was given; expected how far the probabilities may move together, 0 or more, such"
            " as 0.05."
        )
    return sorted({float(one) for one in given})


def avoiding_maps(layer: LayerMaps, gradients: Tensor, merged: bool) -> Tensor:
    """The maps [head, query, key] with the least weight on each row's strongest key that change none of several numbers
    to first order: each row by a linear program of its own. gradients [number, head, query, key].

    merged: away from the strongest token, its copies included.
    """
    if merged:
        costs = (layer.copies == added_up(layer, layer.raw).argmax(-1)[..., None]).double()
    else:
        costs = torch.zeros_like(layer.raw).scatter_(2, layer.raw.argmax(-1, keepdim=True), 1.0)
    return _cheapest(layer, gradients, costs)


def _cheapest(layer: LayerMaps, gradients: Tensor, costs: Tensor) -> Tensor:
    allowed = layer.allowed.expand(layer.raw.shape).flatten(0, 1)
    found = kept_rows(layer.raw.flatten(0, 1), allowed, gradients.flatten(1, 2), costs.flatten(0, 1))
    return found.view(layer.raw.shape).to(layer.raw.device)


def added_up(layer: LayerMaps, maps: Tensor) -> Tensor:
    """Maps with copies of a key added up: [head, query, group]."""
    groups = int(layer.copies.max()) + 1
    return maps.new_zeros(*maps.shape[:2], groups).index_add_(2, layer.copies, maps)


def spread_out(layer: LayerMaps, weights: Tensor) -> Tensor:
    """Maps [head, query, key] from weights of groups [head, query, group], which copies share as they do in the raw
    ones, or evenly where these have none: no weight goes from one copy to another."""
    even = layer.allowed.double().expand(layer.raw.shape)
    whole = added_up(layer, layer.raw)[..., layer.copies]
    seen = added_up(layer, even)[..., layer.copies].clamp(min=1)
    return weights[..., layer.copies] * torch.where(
        whole > 0, layer.raw / torch.where(whole > 0, whole, 1), even / seen
    )


def distances(layer: LayerMaps, other: Tensor, merged: bool = False) -> Tensor:
    """Total variation [head, query] of other maps from the raw ones; merged: copies of a key added up."""
    change = other - layer.raw
    if not merged:
        return 0.5 * change.abs().sum(-1)
    return 0.5 * added_up(layer, change).abs().sum(-1)


@dataclass(frozen=True, eq=False)
class Aims:
    """Where rows are moved: maps by place of a layer, whether they keep numbers to first order, and whether they were
    drawn at random."""

    targets: Mapping[int, Tensor]
    first_order: bool
    random: bool


def aims_of(layers: Mapping[int, LayerMaps], gradients: Mapping[int, Tensor], merged: bool, seed: int) -> list[Aims]:
    """Away from the strongest key, or token, with numbers kept to first order and with none; and random ones, likewise:
    where all rows move alike what they do beyond the first order adds up, and random ones go farther."""
    none = {place: gradients[place][:0] for place in layers}
    own = {place: torch.Generator().manual_seed(_OF_SEARCH + seed + place) for place in layers}
    kept = {
        place: sum((_random_corners(one, gradients[place], merged, own[place]) for _ in range(_CORNERS)), 0 * one.raw)
        / _CORNERS
        for place, one in layers.items()
    }
    drawn = {}
    for place, one in layers.items():
        rows, allowed = _rows(one, merged)
        aims = random_aims(rows, allowed, own[place])
        drawn[place] = spread_out(one, aims) if merged else aims
    return [
        Aims({place: avoiding_maps(one, gradients[place], merged) for place, one in layers.items()}, True, False),
        Aims({place: avoiding_maps(one, none[place], merged) for place, one in layers.items()}, False, False),
        Aims(kept, True, True),
        Aims(drawn, False, True),
    ]


def _random_corners(layer: LayerMaps, gradients: Tensor, merged: bool, generator: torch.Generator) -> Tensor:
    """Rows of least random cost that change no number to first order; merged: copies cost the same."""
    costs = torch.rand(layer.raw.shape, generator=generator, dtype=torch.float64).to(layer.raw)
    return _cheapest(layer, gradients, costs[..., layer.copies] if merged else costs)


def _rows(layer: LayerMaps, merged: bool) -> tuple[Tensor, Tensor]:
    """Rows and what they may have weight on, by key, or by group of copies."""
    if not merged:
        return layer.raw, layer.allowed
    return added_up(layer, layer.raw), added_up(layer, layer.allowed[None].double())[0] > 0


@dataclass(frozen=True, eq=False)
class Way:
    """From raw maps to others, for the rows of some layers: by place of the layer the target [head, query, key], which
    rows move [head, query], and which of these move all the way, since nothing depends on them [query]."""

    layers: Sequence[LayerMaps]
    targets: Mapping[int, Tensor]
    moving: Mapping[int, Tensor]
    free: Mapping[int, Tensor]

    def at(self, place: int, steps: Tensor) -> Tensor:
        """The maps of a layer at some shares of the way [run]: [run, head, query, key]."""
        raw, moving = self.layers[place].raw, self.moving[place]
        share = torch.where(self.free[place], 1.0, steps.to(raw)[:, None, None]) * moving
        return raw + share[..., None] * (self.targets[place] - raw)

    def reach(self, step: float, merged: bool = False) -> tuple[float, float]:
        """How far the rows that move and see more than one key are from the raw ones at a share of the way: the mean
        total variation, and how many rows that is of."""
        total, count = 0.0, 0.0
        for place in self.targets:
            layer = self.layers[place]
            rows = self.moving[place] & layer.movable
            maps = self.at(place, torch.tensor([step]))[0]
            total += float((distances(layer, maps, merged) * rows).sum())
            count += float(rows.sum())
        return (total / count if count else 0.0), count


@dataclass(eq=False)
class Tried:
    """What runs at shares of a way came to: the outcome, by how much it moved, whether the choice is the same. At first
    with nothing moved."""

    value: list[float]
    steps: list[float] = field(default_factory=lambda: [0.0])
    moved: list[float] = field(default_factory=lambda: [0.0])
    same: list[bool] = field(default_factory=lambda: [True])

    def farthest(self, tolerance: float | None) -> int:
        """The place of the largest share that holds: within a tolerance, or, without one, with the same choice."""
        holds = [self._holds(place, tolerance) for place in range(len(self.steps))]
        return max((place for place, held in enumerate(holds) if held), key=lambda place: self.steps[place])

    def next_step(self, tolerance: float | None) -> float | None:
        """Between the largest share that holds and the next that does not, or the whole way: where a power of the share
        through the runs next to it comes up to the tolerance, or else half way. None if the whole way holds."""
        held = self.steps[self.farthest(tolerance)]
        beyond = min((step for step in self.steps if step > held), default=1.0)
        if held >= 1.0:
            return None
        moved = dict(zip(self.steps, self.moved, strict=True))
        near = [step for step in (held, *sorted(step for step in self.steps if step > held)) if moved[step] > 0][:2]
        if not tolerance or not near:
            return (held + beyond) / 2
        # Without a second run: what is kept to first order moves by the square, which is not trusted beyond half way.
        power = 2.0
        if len(near) > 1:
            power = math.log(moved[near[1]] / moved[near[0]]) / math.log(near[1] / near[0])
        at: float = near[0] * (_AIM * tolerance / moved[near[0]]) ** (1 / min(max(power, 1.0), 4.0))
        half, inside = (held + beyond) / 2, 0.05 * (beyond - held)
        if len(near) > 1:
            # A guess that is next to what fails says that no power of the share goes through both runs.
            return max(at, held + inside) if at < beyond - inside else half
        return min(max(at, held + inside), half)

    def _holds(self, place: int, tolerance: float | None) -> bool:
        return self.same[place] if tolerance is None else self.moved[place] <= tolerance


def draw_back(
    runs: AttentionRuns, way: Way, criteria: Sequence[float | None], refinements: int, start: Sequence[float],
    least: Sequence[float] | None = None,
) -> Tried:  # fmt: skip
    """Run the model along a way, and find for each criterion how far along it holds: what counts is what runs show.

    criteria: tolerances, and None for the same choice. least: the share for each criterion that must hold for more to
    be tried.
    """
    tried = Tried([float(runs.reference.value[0])])
    wanted = sorted(set(start))
    for round_ in range(refinements + 1):
        if round_:
            worth = [
                one for one, share in zip(criteria, least or [0.0] * len(criteria), strict=True)
                if tried.steps[tried.farthest(one)] >= share
            ]  # fmt: skip
            between = [tried.next_step(one) for one in worth]
            wanted = sorted({step for step in between if step is not None and step not in tried.steps})
        if not wanted:
            break
        answers = run_along(runs, way, wanted)
        tried.steps += wanted
        tried.value += answers.value.tolist()
        tried.moved += answers.variation(runs.reference).tolist()
        same = answers.same_choice(runs.reference)
        tried.same += [True] * len(wanted) if same is None else same.tolist()
    return tried


@dataclass(frozen=True, eq=False)
class Ways:
    """Ways that were run along, with what came of each; merged: what is exchanged between copies is not counted."""

    tried: Sequence[tuple[Way, Tried, Aims]]
    merged: bool

    def farthest(self, tolerance: float | None) -> tuple[Way, Tried, int, Aims]:
        """The way on which rows went farthest and it holds, its runs, which of these, and where it led."""
        reached = []
        for number, (way, tried, _) in enumerate(self.tried):
            best = tried.farthest(tolerance)
            reached.append((way.reach(tried.steps[best], self.merged)[0], -number, best))
        _, number, best = max(reached)
        way, tried, aims = self.tried[-number]
        return way, tried, best, aims

    def reach(self, tolerance: float | None) -> float:
        """How far that is."""
        way, tried, best, _ = self.farthest(tolerance)
        return way.reach(tried.steps[best], self.merged)[0]


def ways_back(
    runs: AttentionRuns, aims: Sequence[Aims], moving: Mapping[int, Tensor], free: Mapping[int, Tensor], merged: bool,
    criteria: Sequence[float | None], refinements: int, start: Sequence[float],
) -> Ways:  # fmt: skip
    """Draw back along the ways to some aims (`aims_of`), the first always; where all of it is within the largest
    tolerance, what is kept so holds the rows back, and not the outcome: then also along one that keeps none.

    Random ways begin as far away as the best that was found before them, for each criterion, and go on where they hold
    there: so no way of these is passed over that is better than what is given. merged: by what tokens have moved, with
    their copies.
    """
    largest = max(one for one in criteria if one is not None)
    ways = Ways([], merged)
    for number, one in enumerate(aims):
        way = Way(runs.layers, {place: one.targets[place] for place in moving}, moving, free)
        if one.random:
            # What is exactly free goes as far as it can on every way.
            way = Way(way.layers, _apart(way.targets, aims[1].targets, free), moving, free)
            none, whole = (way.reach(step, merged)[0] for step in (0.0, 1.0))
            if whole <= none:
                continue
            shares = [(ways.reach(criterion) - none) / (whole - none) for criterion in criteria]
            steps = [share for share in shares if 0 < share < 1] or [start[-1]]
            least = [max(share, 0.0) for share in shares]
            if all(share >= 1 for share in shares):
                continue
            # All layers at once are one way more in all, and how their changes add up is known least.
            tried = draw_back(runs, way, criteria, refinements + (len(moving) > 1), steps, least)
        elif number and ways.tried[0][1].steps[ways.tried[0][1].farthest(largest)] < 1.0:
            continue
        else:
            tried = draw_back(runs, way, criteria, refinements, start)
        ways = Ways([*ways.tried, (way, tried, one)], merged)
    return ways


def _apart(drawn: Mapping[int, Tensor], other: Mapping[int, Tensor], free: Mapping[int, Tensor]) -> dict[int, Tensor]:
    return {place: torch.where(free[place][:, None], other[place], maps) for place, maps in drawn.items()}


def run_along(runs: AttentionRuns, way: Way, steps: Sequence[float]) -> Answers:
    """What comes out at some shares of a way."""
    shares = torch.tensor(list(steps), dtype=torch.float64)
    changed = {place: (lambda numbers, place=place: way.at(place, shares[numbers])) for place in way.targets}
    return runs.answers(changed, len(shares))


def random_way(way: Way, step: float, seed: int, merged: bool) -> Way:
    """Random maps as far away, row by row, as those at a share of a way: what the size of a change alone does.

    merged: as far as tokens have moved with their copies, and nothing exchanged between these.
    """
    targets = {}
    for place in way.targets:
        layer = way.layers[place]
        distance = distances(layer, way.at(place, torch.tensor([step]))[0], merged)
        drawn = random_rows(*_rows(layer, merged), distance, seed + place)
        targets[place] = spread_out(layer, drawn) if merged else drawn
    return Way(way.layers, targets, way.moving, way.free)
