"""The most that a row can be worth while its output moves by no more than a given length: compiled.

Over all rows x ≥ 0 with Σx = 1 and ‖(x − a)·P‖ ≤ 1 (points P [key, channel] in units of that length) the greatest
cost·x is a second-order cone program. It is solved by a primal–dual interior-point method with the scaling of Nesterov
and Todd and the correction of Mehrotra; a step needs one system as large as there are channels. Whatever the steps did,
two numbers are certain in the end: what a feasible row is worth, and, since (x − a)·P·y ≤ ‖y‖, for any y

    cost·x ≤ max_j (cost − P·y)_j + a·P·y + ‖y‖,

which no feasible row exceeds. Their difference is the gap.
"""

import numpy as np

from identiscope.linalg.compiling import Numbers, compiled
from identiscope.linalg.simplex.cone_support import on_support

#: Steps at most; how far a step goes towards the boundary; steps in a row that may bring nothing.
_STEPS, _SHORT, _STALLED = 100, 0.99, 12
#: The gap at which the steps end, relative to the range of the costs.
_FINISHED = 1e-11


@compiled
def cone_extremes(points: Numbers, rows: Numbers, radii: Numbers, costs: Numbers, best: Numbers, gaps: Numbers) -> None:
    """Write for each row [row, key] the best row found and its gap: costs [row, key], radii [row] above zero."""
    for place in range(len(rows)):
        gaps[place] = _cone_best(points / radii[place], rows[place], costs[place], best[place])


@compiled
def _cone_best(points: Numbers, row: Numbers, cost: Numbers, best: Numbers) -> float:
    """Write the best feasible row found, and return the gap."""
    keys, channels = points.shape
    best[:] = row
    size = cost.max() - cost.min()
    if size <= 0.0:
        return 0.0
    turned = np.ascontiguousarray(points.T)
    own = turned @ row
    # Begin well inside: towards equal weights, half of the way that the output allows.
    even = np.full(keys, 1.0 / keys)
    away = turned @ even - own
    share = min(0.5, 0.5 / max(np.sqrt(away @ away), 1e-300))
    x = row + share * (even - row)
    level = cost.max() + 0.5 * size
    z = level - cost
    v = np.zeros(channels + 1)
    v[0] = max(x @ z, 1e-3 * size)
    # How the output moves is followed by itself, beside x: formed from x it would be rounded out of its cone.
    u = np.empty(channels + 1)
    u[0], u[1:] = 1.0, turned @ x - own
    worth, bound, last, least, stalled = cost @ row, np.inf, np.inf, np.inf, 0
    for _ in range(_STEPS):
        # What is certain now: a row drawn back to where it is feasible, and the bound of the dual.
        worth = _drawn_back(turned @ x - own, x, row, cost, best, worth)
        pushed = points @ v[1:]
        bound = min(bound, (cost + pushed).max() - row @ pushed + np.sqrt(v[1:] @ v[1:]))
        gap = bound - worth
        if gap <= _FINISHED * size:
            break
        # A row that is nearly best itself keeps the gap where it is until x is better: complementarity falls meanwhile.
        apart = x @ z + u @ v
        stalled = 0 if gap < 0.9 * last or apart < 0.99 * least else stalled + 1
        last, least = min(last, gap), min(least, apart)
        inside_u, inside_v = _determinant(u), _determinant(v)
        if stalled > _STALLED or not (inside_u > 0.0 and inside_v > 0.0):
            break
        # The point at which both cones look alike: W·v = W⁻¹·u = both.
        length_u, length_v = np.sqrt(inside_u), np.sqrt(inside_v)
        eta = np.sqrt(length_u / length_v)
        gamma = np.sqrt(max(0.5 * (1.0 + (u @ v) / (length_u * length_v)), 1e-300))
        w = (u / length_u - v / length_v) / (2.0 * gamma)
        w[0] = (u[0] / length_u + v[0] / length_v) / (2.0 * gamma)
        both = _scaled(w, v) * eta
        # diag(z/x) + P·K·Pᵀ with K = η⁻²·(I + 2·w₁·w₁ᵀ), inverted by way of the smaller K⁻¹ + Pᵀ·diag(x/z)·P.
        ratio = x / z
        matrix = turned @ (points * ratio.reshape(-1, 1))
        tail = w[1:] @ w[1:]
        factor = eta * eta * 2.0 / (1.0 + 2.0 * tail)
        for line in range(channels):
            for column in range(channels):
                matrix[line, column] -= factor * w[line + 1] * w[column + 1]
            matrix[line, line] += eta * eta
        if not _cholesky(matrix):
            break
        ones, small_ones = _solved(turned, points, matrix, ratio, np.ones(keys))
        total = ones.sum()
        left, missing = level - cost - pushed - z, 1.0 - x.sum()
        product = x @ z
        mean = (product + u @ v) / (keys + 1.0)
        # Where complementarity would be zero; then, corrected by what that step shows, towards the middle.
        target, cone_target = -(x * z), -both
        change_x, change_z, change_v, change_u, change_level = _step(
            turned, points, matrix, ratio, ones, small_ones, total, x, w, eta, left, missing, target, cone_target
        )
        reach = min(1.0, _room(x, change_x), _room(z, change_z), _cone_room(u, change_u), _cone_room(v, change_v))
        after = (x + reach * change_x) @ (z + reach * change_z) + (u + reach * change_u) @ (v + reach * change_v)
        centre = min(1.0, max(0.0, after / (product + u @ v))) ** 3 * mean
        target = centre - x * z - change_x * change_z
        # λ∘q = μ·e − λ∘λ − (W⁻¹Δu)∘(WΔv), in the product of the cone.
        one, other = _unscaled(w, change_u) / eta, _scaled(w, change_v) * eta
        wanted = -(both[0] * both + both * both[0]) - (one[0] * other + other[0] * one)
        wanted[0] = centre - both @ both - one @ other
        cone_target = _divided(both, wanted)
        change_x, change_z, change_v, change_u, change_level = _step(
            turned, points, matrix, ratio, ones, small_ones, total, x, w, eta, left, missing, target, cone_target
        )
        reach = min(_room(x, change_x), _room(z, change_z), _cone_room(u, change_u), _cone_room(v, change_v))
        reach = min(1.0, _SHORT * reach)
        x, u, level = x + reach * change_x, u + reach * change_u, level + reach * change_level
        z, v = z + reach * change_z, v + reach * change_v
    if bound - worth > _FINISHED * size:
        dual = -v[1:]
        if on_support(points, own, cost, x, z, dual):
            worth = _drawn_back(turned @ x - own, x, row, cost, best, worth)
            pushed = points @ dual
            bound = min(bound, (cost - pushed).max() + row @ pushed + np.sqrt(dual @ dual))
    if bound <= worth:
        return 0.0
    left_over: float = bound - worth  # type: ignore[assignment]
    return left_over


@compiled
def _step(
    turned: Numbers,
    points: Numbers,
    matrix: Numbers,
    ratio: Numbers,
    ones: Numbers,
    small_ones: Numbers,
    total: float,
    x: Numbers,
    w: Numbers,
    eta: float,
    left: Numbers,
    missing: float,
    target: Numbers,
    cone_target: Numbers,
) -> tuple[Numbers, Numbers, Numbers, Numbers, float]:
    """Newton's step for z·Δx + x·Δz = target and W·Δv + W⁻¹·Δu = cone_target: changes of x, z, v, u and the level."""
    given = _unscaled(w, cone_target) / eta
    solved, small = _solved(turned, points, matrix, ratio, target / x - left + points @ given[1:])
    level = (solved.sum() - missing) / total
    change_x = solved - level * ones
    # K·Pᵀ·Δx is what the small systems gave; formed anew from Δx it would be lost in rounding.
    pull = small - level * small_ones
    along, tail = w[1:] @ pull, w[1:] @ w[1:]
    change_u = np.zeros(len(w))
    change_u[1:] = eta * eta * (pull - w[1:] * (2.0 * along / (1.0 + 2.0 * tail)))
    change_v = given.copy()
    change_v[0] += 2.0 * w[0] * along / (1.0 + 2.0 * tail)
    change_v[1:] -= pull
    # Linear, so that the dual stays feasible whatever was rounded: its bound is as good as v is.
    change_z = level + left - points @ change_v[1:]
    return change_x, change_z, change_v, change_u, level


@compiled
def _solved(
    turned: Numbers, points: Numbers, matrix: Numbers, ratio: Numbers, right: Numbers
) -> tuple[Numbers, Numbers]:
    """(diag(1/ratio) + P·K·Pᵀ)⁻¹·right, by the factor of the smaller system; and K·Pᵀ times that."""
    first = ratio * right
    small = turned @ first
    _substitute(matrix, small)
    return first - ratio * (points @ small), small


@compiled
def _drawn_back(moved: Numbers, x: Numbers, row: Numbers, cost: Numbers, best: Numbers, worth: float) -> float:
    """Write a row on the way to x that is feasible, if it is worth more than what is known; what is known then."""
    total = x.sum()
    # Scaled to sum one, and back along the way from the row, on which everything is feasible.
    length = np.sqrt(moved @ moved)
    share = 1.0 if length <= 1.0 else 1.0 / length
    share *= 1.0 - 1e-13
    value: float = share * (cost @ x) / total + (1.0 - share) * (cost @ row)
    if value > worth and abs(total - 1.0) < 1e-9:
        best[:] = share * x / total + (1.0 - share) * row
        return value
    return worth


@compiled
def _determinant(u: Numbers) -> float:
    """u₀² − ‖u₁‖², positive inside the cone."""
    length = np.sqrt(u[1:] @ u[1:])
    if u[0] <= length:
        return -1.0
    inside: float = (u[0] - length) * (u[0] + length)
    return inside


@compiled
def _scaled(w: Numbers, given: Numbers) -> Numbers:
    """W/η times a vector: [[w₀, w₁ᵀ], [w₁, I + w₁w₁ᵀ/(1 + w₀)]]."""
    along = w[1:] @ given[1:]
    made: Numbers = given + (given[0] + along / (1.0 + w[0])) * w
    made[0] = w[0] * given[0] + along
    return made


@compiled
def _unscaled(w: Numbers, given: Numbers) -> Numbers:
    """W⁻¹·η times a vector."""
    along = w[1:] @ given[1:]
    made: Numbers = given + (along / (1.0 + w[0]) - given[0]) * w
    made[0] = w[0] * given[0] - along
    return made


@compiled
def _divided(both: Numbers, wanted: Numbers) -> Numbers:
    """q with both∘q = wanted, in the product of the cone."""
    first = (both[0] * wanted[0] - both[1:] @ wanted[1:]) / max(_determinant(both), 1e-300)
    made: Numbers = (wanted - first * both) / both[0]
    made[0] = first
    return made


@compiled
def _room(x: Numbers, change: Numbers) -> float:
    """How far x may go until a number of it is zero."""
    reach = np.inf
    for place in range(len(x)):
        if change[place] < 0.0:
            reach = min(reach, -x[place] / change[place])
    return reach


@compiled
def _cone_room(u: Numbers, change: Numbers) -> float:
    """How far u may go until it leaves its cone."""
    square = change[0] * change[0] - change[1:] @ change[1:]
    half = u[0] * change[0] - u[1:] @ change[1:]
    inside = _determinant(u)
    reach = np.inf if change[0] >= 0.0 else -u[0] / change[0]
    # inside + 2·half·t + square·t² = 0, the least positive root, in the form that loses no digits.
    root = half * half - square * inside
    if root >= 0.0:
        below = -half + np.sqrt(root)
        if half < 0.0 and below > 0.0:
            reach = min(reach, inside / below)
        elif square < 0.0:
            reach = min(reach, (-half - np.sqrt(root)) / square)
    return reach


@compiled
def _cholesky(matrix: Numbers) -> bool:
    """Put the lower factor into the lower half; false where the matrix is not positive."""
    size = len(matrix)
    for line in range(size):
        for column in range(line + 1):
            total = matrix[line, column]
            for place in range(column):
                total -= matrix[line, place] * matrix[column, place]
            if line > column:
                matrix[line, column] = total / matrix[column, column]
            elif total > 0.0:
                matrix[line, line] = np.sqrt(total)
            else:
                return False
    return True


@compiled
def _substitute(factor: Numbers, right: Numbers) -> None:
    """Solve with the lower factor, in place."""
    size = len(factor)
    for line in range(size):
        total = right[line]
        for column in range(line):
            total -= factor[line, column] * right[column]
        right[line] = total / factor[line, line]
    for line in range(size - 1, -1, -1):
        right[line] /= factor[line, line]
        for column in range(line):
            right[column] -= factor[line, column] * right[line]
