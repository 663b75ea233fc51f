"""Linear programs over all rows with the same output, by walking from corner to corner: plain loops, compiled.

The rows a ≥ 0 with a·points = row·points are a polytope. A corner of it has weight on at most as many keys as there are
constraints: the *basic* ones. The tableau [basic, free] says by how much each basic weight falls when a free one, zero
at the corner, grows by one. All programs of a row share tableau and corners, so one starts where the last ended, and
the cost of a single weight is read off its row of the tableau.
"""

import numpy as np
from numpy.typing import NDArray

from identiscope.linalg.compiling import Numbers, compiled

Places = NDArray[np.int64]

#: A cost falls along an edge if it falls by more than this for a unit of weight. What is left undone then is no more
#: than that, since the weights sum to one.
_FALLING = 1e-12
#: Entries of a tableau below this are rounding, and no weight is taken to zero by them.
_ENTRY = 1e-12
#: How far below zero a weight may be taken for the sake of a larger pivot, and what is zero up to rounding.
_BELOW, _ZERO = 1e-15, 5e-16
#: A corner solved anew may have weights this far below zero; one that has not been followed well has more.
_LOST = 1e-12
#: After so many steps of no length the first possible one is taken, by which no corner is met twice.
_STALLED = 60


@compiled
def first_basis(points: Numbers) -> Places:
    """As many keys as there are constraints whose points [key, constraint] are well apart from each other's span."""
    keys, constraints = points.shape
    left, norms, taken = points.copy(), np.empty(keys), np.zeros(keys, np.bool_)
    basic = np.empty(constraints, np.int64)
    for key in range(keys):
        norms[key] = _dot(left[key], left[key])
    direction = np.empty(constraints)
    for place in range(constraints):
        best = -1
        for key in range(keys):
            if not taken[key] and (best < 0 or norms[key] > norms[best]):
                best = key
        basic[place], taken[best] = best, True
        scale = 1.0 / np.sqrt(_dot(left[best], left[best]))
        for column in range(constraints):
            direction[column] = left[best, column] * scale
        for key in range(keys):
            if not taken[key]:
                along = _dot(left[key], direction)
                for column in range(constraints):
                    left[key, column] -= along * direction[column]
                norms[key] = _dot(left[key], left[key])
    return basic


@compiled
def free_keys(basic: Places, keys: int) -> Places:
    """All other keys."""
    taken = np.zeros(keys, np.bool_)
    for key in basic:
        taken[key] = True
    free = np.empty(keys - len(basic), np.int64)
    place = 0
    for key in range(keys):
        if not taken[key]:
            free[place] = key
            place += 1
    return free


@compiled
def tableau_of(points: Numbers, basic: Places, free: Places) -> Numbers:
    """[basic, free], solved from the points themselves."""
    return np.ascontiguousarray(np.linalg.solve(points[basic].T.copy(), points[free].T.copy()))


@compiled
def anew(points: Numbers, row: Numbers, basic: Places, free: Places, tableau: Numbers, weights: Numbers) -> float:
    """Solve tableau and basic weights from the points, without what many steps have rounded; the least weight."""
    matrix, others = points[basic].T.copy(), points[free].T.copy()
    tableau[:] = np.linalg.solve(matrix, others)
    # What the basic keys take over from the others; and once more, what is left of the equations.
    wanted = others @ row[free]
    change = np.linalg.solve(matrix, wanted)
    change += np.linalg.solve(matrix, wanted - matrix @ change)
    least = 0.0
    for place in range(len(basic)):
        weight = row[basic[place]] + change[place]
        least = min(least, weight)
        weights[place] = weight if weight > _ZERO else 0.0
    return least


@compiled
def to_corner(row: Numbers, basic: Places, free: Places, tableau: Numbers, weights: Numbers) -> int:
    """Take the weight of free keys away, the smallest first, each as far as the others stay non-negative; steps taken.

    `basic`, `free` and `tableau` belong to any basis; `weights` [basic] becomes those of a corner of the polytope.
    """
    constraints, count = tableau.shape
    shares, costs, steps = row[free], np.zeros(count), 0
    for place in range(constraints):
        weights[place] = row[basic[place]]
    for column in np.argsort(shares):
        if shares[column] <= 0:
            continue
        step, pivot = shares[column], -1
        for place in range(constraints):
            rise = -tableau[place, column]
            if rise > _ENTRY and weights[place] < step * rise:
                step, pivot = weights[place] / rise, place
        for place in range(constraints):
            weights[place] = max(weights[place] + step * tableau[place, column], 0.0)
        if pivot >= 0:
            weights[pivot] = shares[column] - step
            _exchange(tableau, costs, basic, free, pivot, column)
            steps += 1
    return steps


@compiled
def descend(basic: Places, free: Places, tableau: Numbers, weights: Numbers, costs: Numbers, limit: int) -> int:
    """Walk to the corner of least cost: the steps taken; −1 and less (−1 − steps) where it was not reached in so many.

    `costs` [free]: what the cost of the corner grows by when a free weight does; changed like all else here.
    """
    constraints, count = tableau.shape
    steps = stalled = 0
    while True:
        column = -1
        if stalled < _STALLED:
            least = -_FALLING
            for place in range(count):
                if costs[place] < least:
                    least, column = costs[place], place
        else:
            for place in range(count):
                if costs[place] < -_FALLING and (column < 0 or free[place] < free[column]):
                    column = place
        if column < 0:
            return steps
        if steps >= limit:
            return -1 - steps
        # As far as every weight stays above zero but for rounding; of those that end it, by the largest entry.
        step = np.inf
        for place in range(constraints):
            fall = tableau[place, column]
            if fall > _ENTRY:
                step = min(step, (weights[place] + _BELOW) / fall)
        pivot = -1
        for place in range(constraints):
            fall = tableau[place, column]
            if fall > _ENTRY and weights[place] <= step * fall and (pivot < 0 or fall > tableau[pivot, column]):
                pivot = place
        if pivot < 0:
            return -1 - steps  # without end, which sums of one do not allow: rounding has taken over
        step = weights[pivot] / tableau[pivot, column]
        for place in range(constraints):
            weights[place] = max(weights[place] - step * tableau[place, column], 0.0)
        weights[pivot] = step
        _exchange(tableau, costs, basic, free, pivot, column)
        steps += 1
        stalled = stalled + 1 if step <= _ZERO else 0


@compiled
def costs_of(cost: Numbers, basic: Places, free: Places, tableau: Numbers, costs: Numbers) -> None:
    """What each free weight costs at this corner, for a cost [key] of all weights."""
    for place in range(len(free)):
        costs[place] = cost[free[place]]
    for place in range(len(basic)):
        own = cost[basic[place]]
        if own != 0.0:
            for column in range(len(free)):
                costs[column] -= own * tableau[place, column]


@compiled
def walk(
    points: Numbers,
    row: Numbers,
    cost: Numbers,
    basic: Places,
    free: Places,
    tableau: Numbers,
    weights: Numbers,
    since: int,
    period: int,
    limit: int,
) -> int:
    """To the corner of least cost [key]: how many steps since all was last solved anew, or −1 where the way was lost.

    since: that number before. Every `period` steps all is solved anew; the way is lost where a corner then turns out to
    be none, or after `limit` steps.
    """
    costs = np.empty(len(free))
    costs_of(cost, basic, free, tableau, costs)
    total = 0
    while total <= limit:
        taken: int = descend(basic, free, tableau, weights, costs, period - since)
        if taken >= 0:
            return since + taken
        total += -taken
        if anew(points, row, basic, free, tableau, weights) < -_LOST:
            return -1
        since = 0
        costs_of(cost, basic, free, tableau, costs)
    return -1


@compiled
def bounds(
    points: Numbers,
    rows: Numbers,
    groups: Places,
    order: Places,
    period: int,
    lower: Numbers,
    upper: Numbers,
) -> None:
    """Write the least and the most [row, group] that the keys of a group weigh together, for rows [row, key].

    `groups` [key] numbers the group of each key, `order` the groups in the order in which they are asked for. A row
    whose way was lost is left as it was given.
    """
    keys, constraints = points.shape
    limit = 50 * keys
    start = first_basis(points)
    start_free = free_keys(start, keys)
    start_tableau = tableau_of(points, start, start_free)
    weights, cost, together = np.empty(constraints), np.empty(keys), np.empty(len(order))
    for place in range(len(rows)):
        basic, free, tableau = start.copy(), start_free.copy(), start_tableau.copy()
        since = to_corner(rows[place], basic, free, tableau, weights)
        least, most = np.full(len(order), np.nan), np.full(len(order), np.nan)
        for side in range(2):
            for group in order:
                if since < 0 or (side == 1 and least[group] == 0.0):
                    continue
                for key in range(keys):
                    cost[key] = 0.0 if groups[key] != group else (1.0 if side else -1.0)
                since = walk(points, rows[place], cost, basic, free, tableau, weights, since, period, limit)
                together[:] = 0.0
                for line in range(constraints):
                    together[groups[basic[line]]] += weights[line]
                # A corner with no weight on a group proves that it can go without.
                for other in range(len(order)):
                    if together[other] == 0.0:
                        least[other] = 0.0
                if side:
                    least[group] = together[group]
                else:
                    most[group] = together[group]
        if since >= 0 and anew(points, rows[place], basic, free, tableau, weights) >= -_LOST:
            lower[place], upper[place] = least, most


@compiled
def extremes(points: Numbers, rows: Numbers, costs: Numbers, period: int, least: Numbers, most: Numbers) -> None:
    """Write the least and the most [row] of a cost [row, key] of its own for each of some rows [row, key].

    A row whose way was lost is left as it was given.
    """
    keys, constraints = points.shape
    limit = 50 * keys
    start = first_basis(points)
    start_free = free_keys(start, keys)
    start_tableau = tableau_of(points, start, start_free)
    weights, ends = np.empty(constraints), np.empty(2)
    for place in range(len(rows)):
        basic, free, tableau = start.copy(), start_free.copy(), start_tableau.copy()
        since = to_corner(rows[place], basic, free, tableau, weights)
        for side in range(2):
            if since >= 0:
                cost = costs[place] if side == 0 else -costs[place]
                since = walk(points, rows[place], cost, basic, free, tableau, weights, since, period, limit)
                total = 0.0
                for line in range(constraints):
                    total += costs[place, basic[line]] * weights[line]
                ends[side] = total
        if since >= 0 and anew(points, rows[place], basic, free, tableau, weights) >= -_LOST:
            least[place], most[place] = ends[0], ends[1]


@compiled
def chain(points: Numbers) -> Places:
    """All keys, each followed by the nearest that is left: programs of keys that are alike end at corners that are."""
    keys = len(points)
    order, left = np.arange(keys), np.ones(keys, np.bool_)
    for place in range(1, keys):
        last = order[place - 1]
        left[last] = False
        nearest, least = -1, np.inf
        for key in range(keys):
            if left[key]:
                distance = 0.0
                for column in range(points.shape[1]):
                    distance += (points[key, column] - points[last, column]) ** 2
                if distance < least:
                    nearest, least = key, distance
        order[place] = nearest
    return order


@compiled
def _exchange(tableau: Numbers, costs: Numbers, basic: Places, free: Places, pivot: int, column: int) -> None:
    """A basic key becomes free and a free one basic."""
    constraints, count = tableau.shape
    inverse = 1.0 / tableau[pivot, column]
    own = tableau[pivot]
    for place in range(count):
        own[place] *= inverse
    own[column] = inverse
    for line in range(constraints):
        if line != pivot:
            _subtract(tableau[line], own, column, inverse)
    _subtract(costs, own, column, inverse)
    basic[pivot], free[column] = free[column], basic[pivot]


@compiled
def _subtract(line: Numbers, own: Numbers, column: int, inverse: float) -> None:
    factor = line[column]
    if factor != 0.0:
        for place in range(len(line)):
            line[place] -= factor * own[place]
        line[column] = -factor * inverse


@compiled
def _dot(one: Numbers, other: Numbers) -> float:
    total = 0.0
    for place in range(len(one)):
        total += one[place] * other[place]
    return total
