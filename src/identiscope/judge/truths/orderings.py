"""Orders in which tokens are erased: the curve of each, and which are the best and the worst. Pure arrays.

A curve is read at some levels, the numbers of tokens that are gone, from none to all. Its area is that under the
outcome by the share that is gone. Erasing the least relevant first is the same with the order reversed, so that the
least and the largest area over all orders bound both curves.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Order = NDArray[np.intp]
#: From sets of tokens that are kept, [set, token], to outcomes [set].
Values = Callable[[NDArray[np.bool_]], Numbers]


def levels(tokens: int, most: int) -> list[int]:
    """Numbers of erased tokens at which a curve is read: every one, or so many steps of like size.

    >>> levels(5, 12), levels(10, 4)
    ([0, 1, 2, 3, 4, 5], [0, 2, 5, 8, 10])
    """
    return sorted({round(tokens * step / min(most, tokens)) for step in range(min(most, tokens) + 1)})


def area(values: Numbers, at: Sequence[int]) -> float:
    """Area under a curve [level] over the share of tokens that is gone, by trapezoids."""
    share = np.asarray(at, float) / at[-1]
    return float(np.sum(np.diff(share) * (values[1:] + values[:-1]) / 2))


def orders_of(scores: Numbers, generator: np.random.Generator, count: int) -> list[Order]:
    """Orders by falling score; where scores are equal, so many orders that are drawn, and else one."""
    if len(np.unique(scores)) == len(scores):
        return [np.argsort(-scores, kind="stable")]
    # Ties in a random order: shuffled first, then sorted without moving equals.
    orders = []
    for _ in range(count):
        shuffled = generator.permutation(len(scores))
        orders.append(shuffled[np.argsort(-scores[shuffled], kind="stable")])
    return orders


def without_first(orders: Sequence[Order], gone: int) -> NDArray[np.bool_]:
    """Sets [order, token] that are left when the first so many of each order are erased."""
    kept = np.ones((len(orders), len(orders[0])), bool)
    for row, order in zip(kept, orders, strict=True):
        row[order[:gone]] = False
    return kept


def all_tops(scores: Numbers, count: int) -> NDArray[np.bool_]:
    """Every set [set, token] that can be the first so many, over all orders of equal scores: each is as likely."""
    order = np.argsort(-scores, kind="stable")
    if count in (0, len(scores)):
        return np.full((1, len(scores)), count > 0)
    edge = scores[order[count - 1]]
    surely, tied = np.flatnonzero(scores > edge), np.flatnonzero(scores == edge)
    sets = list(combinations(tied.tolist(), count - len(surely)))
    tops = np.zeros((len(sets), len(scores)), bool)
    tops[:, surely] = True
    for row, chosen in zip(tops, sets, strict=True):
        row[list(chosen)] = True
    return tops


@dataclass(frozen=True, eq=False)
class Extremes:
    """The least and the largest area over orders, and an order that has each."""

    least: float
    most: float
    falling: Order
    rising: Order
    exact: bool


def every_set(tokens: int) -> NDArray[np.bool_]:
    """All sets of tokens [set, token], numbered by their bits."""
    whole: NDArray[np.bool_] = (np.arange(2**tokens)[:, None] >> np.arange(tokens)) % 2 == 1
    return whole


def exact_extremes(values: Values, tokens: int) -> Extremes:
    """By a dynamic program over all 2ⁿ sets: the best way to a set goes through the best way to one token more."""
    worth = values(every_set(tokens))
    sizes = every_set(tokens).sum(1)
    # Trapezoids: the ends count half.
    weighted = worth * np.where((sizes == 0) | (sizes == tokens), 0.5, 1.0) / tokens
    areas, orders = [], []
    for sign in (1.0, -1.0):
        best = np.full(2**tokens, np.inf)
        gone = np.zeros(2**tokens, np.intp)
        best[-1] = sign * weighted[-1]
        for number in range(2**tokens - 2, -1, -1):
            missing = [token for token in range(tokens) if not number >> token & 1]
            ways = [best[number | 1 << token] for token in missing]
            place = int(np.argmin(ways))
            best[number], gone[number] = ways[place] + sign * weighted[number], missing[place]
        areas.append(sign * best[0])
        order, number = [], 0
        while number < 2**tokens - 1:
            order.append(int(gone[number]))
            number |= 1 << int(gone[number])
        orders.append(np.array(order[::-1], np.intp))
    return Extremes(areas[0], areas[1], orders[0], orders[1], True)


def beam_extremes(
    values: Values, candidates: Sequence[Order], pool: Sequence[Order], at: Sequence[int], width: int
) -> Extremes:
    """The least and largest area that a beam finds: what is erased next is what some order of the pool has next.

    Every candidate, and its reverse, is a way of its own, so that none of them lies outside.
    """
    both = [*candidates, *(order[::-1] for order in candidates)]
    chains = [(area(_curve(values, order, at), at), order) for order in both]
    areas, orders = [], []
    for sign, some in ((1.0, list(pool)), (-1.0, [order[::-1] for order in pool])):
        ways = chains + [(sign * value, order) for value, order in _beam(values, some, at, width, sign)]
        best = min(ways, key=lambda one: sign * one[0])
        areas.append(best[0])
        orders.append(best[1])
    return Extremes(areas[0], areas[1], orders[0], orders[1], False)


def _curve(values: Values, order: Order, at: Sequence[int]) -> Numbers:
    return values(np.concatenate([without_first([order], gone) for gone in at]))


def _beam(
    values: Values, pool: Sequence[Order], at: Sequence[int], width: int, sign: float
) -> list[tuple[float, Order]]:
    """Ways from everything to nothing, with sign times their areas."""
    tokens = len(pool[0])
    start = sign * float(values(np.ones((1, tokens), bool))[0])
    states: list[tuple[float, float, tuple[int, ...]]] = [(0.0, start, ())]
    for before, after in pairwise(at) if width else ():
        ways: dict[frozenset[int], tuple[float, float, tuple[int, ...]]] = {}
        for total, last, gone in states:
            for order in pool:
                more = [int(token) for token in order if token not in gone][: after - before]
                key = frozenset((*gone, *more))
                if key not in ways or total < ways[key][0]:
                    ways[key] = (total, last, (*gone, *more))
        kept = np.ones((len(ways), tokens), bool)
        for row, key in zip(kept, ways, strict=True):
            row[list(key)] = False
        share = (after - before) / at[-1]
        reached = [
            (total + share * (last + sign * value) / 2, sign * value, order)
            for (total, last, order), value in zip(ways.values(), values(kept), strict=True)
        ]
        states = sorted(reached, key=lambda state: state[0])[:width]
    return [(total, np.array(order, np.intp)) for total, _, order in states] if width else []
