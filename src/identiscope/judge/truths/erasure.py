"""What the outcome does when the tokens that a method calls relevant are erased."""

from collections.abc import Mapping
from math import ceil

import numpy as np

from identiscope.judge.case import Case, Judgement, Numbers
from identiscope.judge.truths.orderings import (
    Extremes,
    Order,
    all_tops,
    area,
    beam_extremes,
    exact_extremes,
    levels,
    orders_of,
    without_first,
)
from identiscope.judge.truths.perturbed import Kept, Perturbed, deleted, masked, resampled

#: Shares of the tokens that comprehensiveness and sufficiency are the means over (DeYoung et al. 2020).
SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)
#: Passes for one text where nothing is said.
BUDGET = 1500
#: Up to so many tokens every set of them is run.
EXACT = 10
#: Steps of a curve: at most, as many as a wider beam must leave, and at least.
_MOST, _ENOUGH, _LEAST = 12, 10, 4
#: Orders that are drawn where there is none: of equal scores, and of all tokens for chance.
_DRAWN = 4
#: Areas this close, relative to the outcomes, are the same but for rounding.
_SAME = 1e-6


def erasure(case: Case) -> Judgement:
    """Comprehensiveness and sufficiency, and the two erasure curves, normalised between best and worst order.

    Tokens are erased in the order of their scores, with their sign: what raises the outcome most goes first.
    `most_first` is (worst area − area) ÷ (worst − best), so that 1 is the fastest fall that any order has;
    `least_first` the same for the slowest. Up to ten tokens best and worst are exact; above, a beam finds them, whose
    candidates include all methods' own orders. Where best and worst are the same nothing is decided. Equal scores have
    the mean over orders: all of them, or some that are drawn.
    """
    count = int(case.players.sum())
    names = [*_NORMALISED, *(f"{way}{name}" for way in _WAYS for name in _RAW)]
    nothing = {name: np.full(len(case.names), np.nan) for name in names}
    if count < 2:
        return Judgement(nothing, undecided=f"{count} tokens have no order")
    text = _Text(case, masked(case))
    known = text.outcome.passes
    plan = _plan(count, sum(map(len, text.orders.values())), case.budget)
    if plan is None:
        return Judgement(nothing, undecided=f"a budget of {case.budget} passes is too small for {count} tokens")
    values, chance = dict(nothing), dict.fromkeys(names, float("nan"))
    ceiling = dict(chance)
    text.curves(*plan, values, chance, ceiling)
    others = {"": text.outcome, "deletion_": deleted(case), "resampled_": resampled(case)}
    for way, outcome in others.items():
        text.shares(way, outcome, values, chance)
    passes = sum(outcome.passes for outcome in others.values()) - known
    return Judgement(values, chance, ceiling, float(passes))


_NORMALISED = ("most_first", "least_first")
_RAW = ("comprehensiveness", "sufficiency")
_WAYS = ("", "deletion_", "resampled_")


def planned(tokens: int, methods: int, budget: int | None) -> int:
    """At most so many passes for a text, if no method gives many tokens the same score."""
    plan = _plan(tokens, methods, budget)
    if plan is None:
        return 0
    steps, width = plan
    return _shared(tokens, methods) + (2**tokens if steps is None else _curves(tokens, steps, methods, width))


def _plan(tokens: int, orders: int, budget: int | None) -> tuple[int | None, int] | None:
    """Steps of the curves (None: every set is run) and width of the beam; None where the budget does not do."""
    budget = BUDGET if budget is None else budget
    shared = _shared(tokens, orders)
    if tokens <= EXACT and 2**tokens + shared <= budget:
        return None, 0
    for width in (3, 2, 1, 0):
        for steps in range(min(_MOST, tokens), min(_ENOUGH if width else _LEAST, tokens) - 1, -1):
            if shared + _curves(tokens, steps, orders, width) <= budget:
                return steps, width
    return None


def _shared(tokens: int, orders: int) -> int:
    """Passes of comprehensiveness and sufficiency, by three replacements, chance included."""
    counts = len({ceil(share * tokens) for share in SHARES})
    return 3 * (2 * counts * (orders + _DRAWN) + 1)


def _curves(tokens: int, steps: int, orders: int, width: int) -> int:
    """Passes of both curves of every order, chance included, and of two beams over orders; and single tokens."""
    return (steps - 1) * 2 * (orders + _DRAWN + width * (orders + 1)) + 2 + tokens


class _Text:
    """One text: its methods' scores of the players, the orders that they give, and outcomes that are asked again."""

    def __init__(self, case: Case, outcome: Perturbed) -> None:
        self.scores = case.scores[:, case.players]
        self.outcome = outcome
        self.count = self.scores.shape[1]
        # The same draws for all: equal scores are judged equally.
        self.orders = {
            int(row): orders_of(self.scores[row], np.random.default_rng((case.seed, _ORDERS)), _DRAWN)
            for row in np.flatnonzero(case.heard)
        }
        generator = np.random.default_rng((case.seed, _ORDERS, 1))
        self.drawn = [generator.permutation(self.count) for _ in range(_DRAWN)]

    def curves(
        self,
        steps: int | None,
        width: int,
        values: dict[str, Numbers],
        chance: dict[str, float],
        ceiling: dict[str, float],
    ) -> None:
        """Both curves of each method, between the best and the worst there is. steps: None where every set is run."""
        at = levels(self.count, self.count if steps is None else steps)
        extremes = exact_extremes(self.outcome, self.count) if steps is None else self._searched(at, width)
        ends = self.outcome(np.stack([np.ones(self.count, bool), np.zeros(self.count, bool)]))
        if extremes.most - extremes.least <= _SAME * max(float(np.abs(ends).max()), np.finfo(float).tiny):
            return
        for row, orders in self.orders.items():
            areas = self._areas(self.scores[row], orders, at, extremes.exact)
            for name, value in _normalised(areas, extremes).items():
                values[name][row] = value
        chance |= _normalised(self._areas(np.zeros(self.count), self.drawn, at, extremes.exact), extremes)
        # By the way of all methods: scores that fall along the best order of each curve.
        best = np.argsort(extremes.falling), np.argsort(extremes.rising[::-1])
        for name, place in zip(_NORMALISED, best, strict=True):
            scores = -place.astype(float)
            order = [np.argsort(-scores, kind="stable")]
            ceiling[name] = _normalised(self._areas(scores, order, at, extremes.exact), extremes)[name]

    def _searched(self, at: list[int], width: int) -> Extremes:
        """Best and worst order by a beam; what single tokens do is in its pool."""
        candidates = [order for some in self.orders.values() for order in some] + self.drawn
        pool = [some[0] for some in self.orders.values()]
        if width:
            alone = self.outcome(~np.eye(self.count, dtype=bool))
            pool.append(np.argsort(alone, kind="stable"))
        return beam_extremes(self.outcome, candidates, pool, at, width)

    def _areas(self, scores: Numbers, orders: list[Order], at: list[int], exact: bool) -> tuple[float, float]:
        """Of the curve with the most relevant first, and with the least; the mean over orders of equal scores."""
        if exact:
            tops = [all_tops(scores, gone) for gone in at]
            most = np.array([self.outcome(~top).mean() for top in tops])
            # What is left when the least relevant are gone is what is first in the order.
            least = np.array([self.outcome(top).mean() for top in tops[::-1]])
            return area(most, at), area(least, at)
        both = []
        for some in (orders, [order[::-1] for order in orders]):
            curve = [self.outcome(without_first(some, gone)).mean() for gone in at]
            both.append(area(np.array(curve), at))
        return both[0], both[1]

    def shares(self, way: str, outcome: Perturbed, values: dict[str, Numbers], chance: dict[str, float]) -> None:
        """Comprehensiveness and sufficiency of each method, as they are."""
        counts = [ceil(share * self.count) for share in SHARES]
        whole = float(outcome(np.ones((1, self.count), bool))[0])
        left = {row: [without_first(orders, count) for count in counts] for row, orders in self.orders.items()}
        by_chance = [without_first(self.drawn, count) for count in counts]
        # All at once: batches are full, and each text runs once.
        outcome(np.concatenate([sets for some in (*left.values(), by_chance) for one in some for sets in (one, ~one)]))

        def means(sets: list[Kept]) -> dict[str, float]:
            both = sets, [~kept for kept in sets]
            lost = [float(np.mean([whole - outcome(kept).mean() for kept in some])) for some in both]
            return dict(zip((f"{way}{name}" for name in _RAW), lost, strict=True))

        chance |= means(by_chance)
        for row, sets in left.items():
            for name, value in means(sets).items():
                values[name][row] = value


_ORDERS = 2


def _normalised(areas: tuple[float, float], extremes: Extremes) -> Mapping[str, float]:
    """1 for the best order of a curve, 0 for the worst: the first is to fall fast, the second slowly."""
    span = extremes.most - extremes.least
    scores = ((extremes.most - areas[0]) / span, (areas[1] - extremes.least) / span)
    return dict(zip(_NORMALISED, scores, strict=True))
