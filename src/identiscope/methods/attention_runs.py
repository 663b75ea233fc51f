"""Attention put into the running model: what comes out with other maps, and derivatives by those that are there."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from identiscope.errors import CaptureError, InputError, MathError
from identiscope.linalg.agreement import explained_by
from identiscope.methods.fields import LayerFields
from identiscope.methods.heads.epsilon_freedom import layer_widths
from identiscope.methods.outcome_runs import OutcomeRuns

#: From the numbers of some runs to the maps of a layer in each: [run] → [run, head, query, key].
Maps = Callable[[Tensor], Tensor]
#: The most derivatives that are kept for the next method that asks.
_MOST_KEPT = 2**26
#: How large random numbers are that stand for anything at all in the rows of an attention map.
_NOISE = 10.0


@dataclass(frozen=True, eq=False)
class LayerMaps:
    """Of a layer: its number, its heads, their maps [head, query, key], which cells there are [query, key], and which
    keys are copies of each other [key]."""

    layer: int
    heads: tuple[int, ...]
    raw: Tensor
    allowed: Tensor
    copies: Tensor

    @property
    def movable(self) -> Tensor:
        """Queries [query] whose rows can be anything but what they are: those that see more than one key."""
        return self.allowed.sum(-1) > 1


@dataclass(frozen=True, eq=False)
class Answers:
    """What runs came to: the outcome [run], and the probabilities of all choices [run, choice] where there are any."""

    value: Tensor
    distribution: Tensor | None

    def variation(self, reference: "Answers") -> Tensor:
        """How far each run is from one other, [run]: total variation of the probabilities, or else of the outcome
        itself."""
        if self.distribution is None or reference.distribution is None:
            return (self.value - reference.value).abs()
        return 0.5 * (self.distribution - reference.distribution).abs().sum(-1)

    def same_choice(self, reference: "Answers") -> Tensor | None:
        """Whether the most likely choice of each run is that of the other, [run]; None where there are no choices."""
        if self.distribution is None or reference.distribution is None:
            return None
        return self.distribution.argmax(-1) == reference.distribution.argmax(-1)


class AttentionRuns:
    """The maps of a stream's own attention, and what the outcome is with others in their place.

    read [token]: how much the outcome reads of each last state. Maps that are put in take the place of all of a call's
    own, in float64, and so do the raw ones in what they are compared with.
    """

    def __init__(self, runs: OutcomeRuns, fields: Sequence[LayerFields], outcome: Any) -> None:
        self._runs, self._fields, self._outcome = runs, list(fields), outcome
        self._running_on: dict[int, bool] = {}
        self._slopes: dict[int, tuple[Tensor, list[Tensor]]] = {}

    @property
    def passes(self) -> float:
        """How many passes were made so far."""
        return self._runs.passes

    @property
    def read(self) -> Tensor:
        """How much the outcome reads of each last state, [token]."""
        read: Tensor = self._outcome.read
        return read

    @cached_property
    def layers(self) -> list[LayerMaps]:
        """Of every layer."""
        return [
            LayerMaps(
                one.layer,
                one.heads,
                one.attention.double(),
                one.site.allowed_keys(one.heads[0]),
                one.copies.to(one.value.device),
            )
            for one in self._fields
        ]

    @cached_property
    def reference(self) -> Answers:
        """The outcome with the raw maps, computed in the way in which that of others is."""
        return self.answers({}, 1)

    def widths(self, place: int, epsilon: float, most_rows: int) -> tuple[float, float]:
        """How far the strongest tokens of a layer's rows may go, a mean: with the same output, and with one that moves
        by a share ε of the layer's."""
        found = layer_widths(self._fields[place], [epsilon], most_rows)
        return float(found["merged_exact_width"].mean()), float(found["merged_width"].mean())

    def answers(self, changed: Mapping[int, Maps], count: int) -> Answers:
        """So many runs with other maps: changed: place of a layer among `layers` → what gives its maps in each run."""
        return self._checked(self._answers(changed, count))

    def _answers(self, changed: Mapping[int, Maps], count: int) -> Answers:
        """The same, whatever comes out."""
        runner = self._runs.runner
        parts: list[tuple[Tensor, Tensor | None]] = []
        place = next(iter(changed)) if len(changed) == 1 else None
        with torch.no_grad():
            for numbers in torch.arange(count).split(runner.at_a_time):
                if place is not None and self._can_run_on(place):
                    parts.append(self._ran_on(place, changed[place](numbers)))
                else:
                    parts.append(self._ran(len(numbers), runner.rule(self._put(changed, numbers))))
        distributions = [part for _, part in parts if part is not None]
        return Answers(torch.cat([value for value, _ in parts]), torch.cat(distributions) if distributions else None)

    def _can_run_on(self, place: int) -> bool:
        """Whether the model can be run on from a layer, what is below it being as it was: so it can if its own maps
        give there what they give from the start."""
        if place not in self._running_on:
            try:
                self._running_on[place] = self._unmoved(Answers(*self._ran_on(place, self.layers[place].raw[None])))
            except CaptureError:
                self._running_on[place] = False
        return self._running_on[place]

    def _unmoved(self, answers: Answers) -> bool:
        """Whether runs came to what the raw maps give, but for rounding."""
        moved = float(answers.variation(self.reference).max())
        size = 1.0 if answers.distribution is not None else max(1.0, float(self.reference.value.abs()))
        return explained_by(moved / size, self._fields[0].value.dtype)

    @cached_property
    def free_rows(self) -> list[Tensor]:
        """For each layer the queries [query] on which the outcome does not depend, exactly: their rows can be anything.

        No path of allowed cells leads from them to what the outcome reads. That is known from its derivative, which
        does not see a token that is below a maximum; and layers that were not captured may hold paths. So the model is
        run with random numbers in all these rows, and with no numbers in those of the last layer, above which no token
        looks at another: where any of that is seen, no row is called free.
        """
        free = [~rows for rows in rows_that_matter(self.layers, self.read.to(self.layers[0].raw.device))]
        if any(bool(rows.any()) for rows in free) and not self._unseen(free):
            return [torch.zeros_like(rows) for rows in free]
        return free

    def _unseen(self, rows: Sequence[Tensor]) -> bool:
        generator, last = torch.Generator().manual_seed(0), len(rows) - 1

        def noise(place: int, numbers: Tensor) -> Tensor:
            raw = self.layers[place].raw
            drawn = _NOISE * torch.randn(len(numbers), *raw.shape, generator=generator, dtype=torch.float64)
            return torch.where(rows[place][:, None], drawn.to(raw), raw)

        try:
            random = self._answers({place: partial(noise, place) for place in range(len(rows))}, 2)
            none = torch.where(rows[last][:, None], torch.nan, self.layers[last].raw)
            return self._unmoved(random) and self._unmoved(self._answers({last: lambda _: none[None]}, 1))
        except CaptureError:
            return False

    def _ran_on(self, place: int, maps: Tensor) -> tuple[Tensor, Tensor | None]:
        """The same from one layer on, with maps [run, head, query, key] there."""
        one = self._fields[place]
        contexts = one.site.context.expand(len(maps), *one.site.context.shape).clone()
        values = torch.stack([one.site.value_of(head).double() for head in one.heads])
        contexts[:, list(one.heads)] = (maps.to(values) @ values).to(contexts)
        return _known(self._runs.runner.answers_with_contexts(self._outcome, one.site.index, contexts))

    def _put(self, changed: Mapping[int, Maps], numbers: Tensor) -> Callable[[int, Tensor], Tensor]:
        by_call = {self._fields[place].site.index: (self._fields[place].heads, made) for place, made in changed.items()}

        def put(index: int, maps: Tensor) -> Tensor:
            if index not in by_call:
                return maps
            heads, made = by_call[index]
            new = maps.clone()
            new[:, list(heads)] = made(numbers).to(maps)
            return new

        return put

    def _ran(self, count: int, rule: Any) -> tuple[Tensor, Tensor | None]:
        runs = self._runs
        embeddings = runs.split(runs.embeddings.expand(count, -1, -1))
        return _known(runs.runner.answers(self._outcome, embeddings, rule=rule, summed=runs.summed))

    def _checked(self, answers: Answers) -> Answers:
        known = answers.value if answers.distribution is None else answers.distribution
        if not bool(torch.isfinite(known).all()) or not bool(torch.isfinite(answers.value).all()):
            raise MathError(
                f"the outcome ({self._outcome.name}) is infinite or no number with other attention put into the model;"
                " give the model in float32 or float64."
            )
        return answers

    def gradients(self, most: int) -> tuple[Tensor, list[Tensor]]:
        """Numbers that say what comes out [number], and their derivatives by the maps of each layer
        [number, head, query, key]: the probabilities of the most likely choices, or the outcome itself.

        most: how many choices at most. One pass forwards, and one backwards for each.
        """
        if most < 1:
            raise InputError(f"outcomes={most} was given; expected at least 1.")
        if most not in self._slopes:
            made = self._gradients(most)
            if sum(part.numel() for part in made[1]) > _MOST_KEPT:
                return made
            self._slopes[most] = made
        return self._slopes[most]

    def _gradients(self, most: int) -> tuple[Tensor, list[Tensor]]:
        added: dict[int, Tensor] = {}

        def keep(index: int, maps: Tensor) -> Tensor:
            added[index] = torch.zeros_like(maps, requires_grad=True)
            return maps + added[index]

        with torch.enable_grad():
            made = self._checked(Answers(*self._ran(1, self._runs.runner.rule(keep))))
            choices = None if made.distribution is None else made.distribution[0]
            numbers = made.value if choices is None else choices.topk(min(most, len(choices))).values
            wanted = [added[one.site.index] for one in self._fields]
            slopes = [
                torch.autograd.grad(number, wanted, allow_unused=True, retain_graph=True) for number in numbers.unbind()
            ]
        self._runs.runner.passes += 2 * len(slopes)
        by_layer = []
        for place, one in enumerate(self._fields):
            parts = [slope[place] for slope in slopes]
            cells = torch.stack([torch.zeros_like(wanted[place]) if part is None else part for part in parts])
            if not bool(torch.isfinite(cells).all()):
                raise MathError(
                    "the derivative of the outcome by attention is infinite or no number: give the model in float32 or"
                    " float64."
                )
            by_layer.append(cells[:, 0, list(one.heads)].double().detach())
        return numbers.detach(), by_layer


def _known(answer: tuple[Tensor, Tensor | None]) -> tuple[Tensor, Tensor | None]:
    """What a run came to; a single choice is none."""
    value, distribution = answer
    return value, None if distribution is None or distribution.shape[-1] < 2 else distribution


def chosen_places(name: str, given: Sequence[int] | None, known: Sequence[int]) -> list[int]:
    """Where among what there is, such as layers, those are that were asked for; all without."""
    if given is None:
        return list(range(len(known)))
    missing = [one for one in given if one not in known]
    if missing or not len(given):
        raise InputError(f"{name} {list(given)} were asked for; there are {known[0]} to {known[-1]}.")
    return [list(known).index(one) for one in given]


def free_share(layer: LayerMaps, free: Tensor, rows: Tensor | None = None) -> float:
    """The share of a layer's movable rows, or of some of them [head, query], that are free [query]."""
    able = layer.movable.expand(layer.raw.shape[:2]) if rows is None else layer.movable & rows
    return float((able & free).sum()) / max(float(able.sum()), 1.0)


def rows_that_matter(layers: Sequence[LayerMaps], read: Tensor) -> list[Tensor]:
    """For each layer the queries [query] from which a path of allowed cells leads to where the outcome is read.

    In the last layer these are the tokens that are read; below it also whatever they may look at, and so on down. The
    rows of all other queries are free, if that is all: no number that the outcome depends on depends on them.
    """
    matter = read > 0
    found = []
    for one in reversed(layers):
        found.append(matter)
        matter = matter | one.allowed[matter].any(0)
    return found[::-1]
