"""From maps that keep an outcome to first order to maps that keep it in the running model: back along the way."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.random_rows import random_rows
from identiscope.linalg.simplex.kept_rows import kept_rows
from identiscope.methods.attention_runs import Answers, AttentionRuns, LayerMaps

#: Shares of the way that are tried first, all in one batch.
FIRST_STEPS = (1.0, 0.5, 0.25, 0.125)
#: The same where all layers move together, whose changes add up.
TOGETHER_STEPS = (0.5, 0.125, 0.03125, 0.0078125)


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
    heads, queries, keys = layer.raw.shape
    if merged:
        count = int(layer.copies.max()) + 1
        weights = layer.raw.new_zeros(heads, queries, count).index_add_(2, layer.copies, layer.raw)
        costs = (layer.copies == weights.argmax(-1)[..., None]).double()
    else:
        costs = torch.zeros_like(layer.raw).scatter_(2, layer.raw.argmax(-1, keepdim=True), 1.0)
    allowed = layer.allowed.expand(heads, queries, keys).flatten(0, 1)
    found = kept_rows(layer.raw.flatten(0, 1), allowed, gradients.flatten(1, 2), costs.flatten(0, 1))
    return found.view(heads, queries, keys).to(layer.raw.device)


def distances(layer: LayerMaps, other: Tensor, merged: bool = False) -> Tensor:
    """Total variation [head, query] of other maps from the raw ones; merged: copies of a key added up."""
    change = other - layer.raw
    if not merged:
        return 0.5 * change.abs().sum(-1)
    count = int(layer.copies.max()) + 1
    return 0.5 * change.new_zeros(*change.shape[:2], count).index_add_(2, layer.copies, change).abs().sum(-1)


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
        """Half way between the largest share that holds and the next that does not; None if the whole way holds."""
        held = self.steps[self.farthest(tolerance)]
        beyond = [step for step in self.steps if step > held]
        return (held + min(beyond)) / 2 if beyond else None

    def _holds(self, place: int, tolerance: float | None) -> bool:
        return self.same[place] if tolerance is None else self.moved[place] <= tolerance


def draw_back(
    runs: AttentionRuns, way: Way, criteria: Sequence[float | None], refinements: int, start: Sequence[float]
) -> Tried:
    """Run the model along a way, and find for each criterion how far along it holds: what counts is what runs show.

    criteria: tolerances, and None for the same choice.
    """
    tried = Tried([float(runs.reference.value[0])])
    wanted = list(start)
    for round_ in range(refinements + 1):
        if round_:
            halves = [tried.next_step(one) for one in criteria]
            wanted = sorted({step for step in halves if step is not None and step not in tried.steps})
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
    """Ways that were run along, with what came of each: the first keeps numbers to first order, a second one none."""

    tried: Sequence[tuple[Way, Tried]]

    def farthest(self, tolerance: float | None) -> tuple[Way, Tried, int]:
        """The way on which rows went farthest and it holds, its runs, and which of these."""
        reached = []
        for number, (way, tried) in enumerate(self.tried):
            best = tried.farthest(tolerance)
            reached.append((way.reach(tried.steps[best])[0], -number, best))
        _, number, best = max(reached)
        return *self.tried[-number], best


def ways_back(
    runs: AttentionRuns, way: Way, merged: bool, criteria: Sequence[float | None], refinements: int,
    start: Sequence[float],
) -> Ways:  # fmt: skip
    """Draw back along a way that keeps numbers to first order; where all of it is within the largest tolerance, what is
    kept so holds the rows back, and not the outcome: then also along one that keeps none.

    merged: away from the strongest token with all its copies.
    """
    tried = draw_back(runs, way, criteria, refinements, start)
    largest = max(one for one in criteria if one is not None)
    if tried.steps[tried.farthest(largest)] < 1.0:
        return Ways([(way, tried)])
    none = {place: way.layers[place].raw.new_zeros(0, *way.layers[place].raw.shape) for place in way.targets}
    other = replace(way, targets={place: avoiding_maps(way.layers[place], none[place], merged) for place in none})
    return Ways([(way, tried), (other, draw_back(runs, other, criteria, refinements, start))])


def run_along(runs: AttentionRuns, way: Way, steps: Sequence[float]) -> Answers:
    """What comes out at some shares of a way."""
    shares = torch.tensor(list(steps), dtype=torch.float64)
    changed = {place: (lambda numbers, place=place: way.at(place, shares[numbers])) for place in way.targets}
    return runs.answers(changed, len(shares))


def random_way(way: Way, step: float, seed: int) -> Way:
    """Random maps as far away, row by row, as those at a share of a way: what the size of a change alone does."""
    targets = {}
    for place in way.targets:
        layer = way.layers[place]
        distance = distances(layer, way.at(place, torch.tensor([step]))[0])
        targets[place] = random_rows(layer.raw, layer.allowed, distance, seed + place)
    return Way(way.layers, targets, way.moving, way.free)
