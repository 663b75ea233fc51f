"""The shortest non-negative row by Newton's method or from an interior point, compiled: rows one by one.

Everything here is plain loops over arrays (`compiling.py`).
"""

import numpy as np
from numpy.typing import NDArray

from identiscope.linalg.compiling import Numbers, compiled

#: Damping of a step: this share of the residual, and no more than the most. The curvature of an orthonormal
#: basis is at most one, so these are absolute.
_DAMPING_SHARE, _MOST_DAMPING = 1e-2, 1e-3
#: The least damping: small for ill-conditioned pieces of the dual, large for singular ones (fewer positive
#: weights than directions), where a small one makes steps of rounding. Which of them a row needs shows when
#: its residual has not fallen for so many steps; the other is tried then.
_SMALL_DAMPING, _LARGE_DAMPING, _PATIENCE = 1e-12, 1e-8, 15
#: A step is long enough when the slope along it has fallen to this share, or after so many lengths tried.
_SLOPE_LEFT, _LENGTHS = 0.1, 30
#: An interior point is near enough to the right piece at this mean of weight times bound. A step stays this far inside.
_INTERIOR_GAP, _INTERIOR_STEPS, _BACK_OFF = 1e-11, 60, 0.995
#: The dual is rounded to this share of its size, and no residual can be much below that.
_ROUNDING = float(np.finfo(np.float64).eps / 2)


@compiled
def solve_rows(
    basis: Numbers,
    targets: Numbers,
    inside: NDArray[np.bool_],
    steps: int,
    finished: float,
    duals: Numbers,
) -> None:
    """Write into `duals` [row, direction] the best minimiser of ½‖max(0, Bλ)‖² − target·λ found for each row.

    `basis` [key, direction] has orthonormal columns, `targets` have norm one, and only the keys `inside`
    [row, key] count. A row that Newton's method does not finish is tried again from an interior point.
    """
    keys, directions = basis.shape
    whole, upper = np.zeros((directions, directions)), np.zeros((directions, directions))
    allowed = np.zeros(keys, np.bool_)
    start, second = np.zeros(directions), np.zeros(directions)
    for row in range(len(targets)):
        # The first start is the minimum on the piece of all allowed keys, which neighbouring rows mostly share.
        changed = False
        for key in range(keys):
            if inside[row, key] != allowed[key]:
                changed, allowed[key] = True, inside[row, key]
                _add_outer(whole, basis[key], 1.0 if allowed[key] else -1.0)
        if changed and not _factorise(whole, _SMALL_DAMPING, upper):
            _factorise(whole, _MOST_DAMPING, upper)
        _solve(upper, targets[row], start)
        residual = _newton(basis, targets[row], allowed, whole, start, steps, finished, duals[row])
        if residual > finished:
            _interior_point(basis, targets[row], allowed, start)
            if _newton(basis, targets[row], allowed, whole, start, steps, finished, second) < residual:
                duals[row] = second


@compiled
def _newton(
    basis: Numbers,
    target: Numbers,
    allowed: NDArray[np.bool_],
    whole: Numbers,
    start: Numbers,
    steps: int,
    finished: float,
    best_dual: Numbers,
) -> float:
    """Descend from a dual, write the best one met, and give its residual.

    A step minimises the quadratic piece of the dual it is on; only keys whose weight changes its sign change
    the curvature of the next one. `whole` is the curvature where all allowed keys have weight.
    """
    keys, directions = basis.shape
    dual, curvature, upper = np.zeros(directions), whole.copy(), np.zeros((directions, directions))
    active, weights, along = allowed.copy(), np.zeros(keys), np.zeros(keys)
    slope, step, length = target.copy(), start.copy(), 1.0
    best, waited, least = np.inf, 0, _SMALL_DAMPING
    for _ in range(steps):
        for key in range(keys):
            along[key] = _dot(basis[key], step) if allowed[key] else 0.0
        if best < np.inf:
            length = _length(weights, along, _dot(target, step), _dot(slope, step))
        for i in range(directions):
            dual[i] += length * step[i]
        settled = True
        for key in range(keys):
            weights[key] += length * along[key]
            positive = weights[key] > 0
            if positive != active[key]:
                settled, active[key] = False, positive
                _add_outer(curvature, basis[key], 1.0 if positive else -1.0)
        _steepest(basis, weights, target, slope)
        residual = np.sqrt(_dot(slope, slope))
        waited += 1
        if residual < best:
            best, waited = residual, 0
            for i in range(directions):
                best_dual[i] = dual[i]
        # Written so that NaN ends it too.
        if not residual > max(finished, _ROUNDING * np.sqrt(_dot(dual, dual))):
            break
        if waited == _PATIENCE:
            waited, least = 0, _SMALL_DAMPING + _LARGE_DAMPING - least
        # On the same piece as before, what damping left of the way to its minimum is gone at once without.
        damping = least if settled else min(max(_DAMPING_SHARE * residual, least), _MOST_DAMPING)
        if not _factorise(curvature, damping, upper) and not _factorise(curvature, _MOST_DAMPING, upper):
            break
        _solve(upper, slope, step)
    return best


@compiled
def _interior_point(basis: Numbers, target: Numbers, allowed: NDArray[np.bool_], dual: Numbers) -> None:
    """Write the dual of ½‖a‖² over a ≥ 0, a·basis = target, by Mehrotra's predictor and corrector.

    The bounds z ≥ 0 of a ≥ 0 satisfy a − Bλ − z = 0. Every step solves Bᵀ·(1 + z/a)⁻¹·B, in which every key
    has some weight: no piece is singular, however peaked the row and however alike its keys.
    """
    keys, directions = basis.shape
    weights, bounds = np.zeros(keys), np.zeros(keys)
    damped, wanted, in_weights, in_bounds = np.zeros(keys), np.zeros(keys), np.zeros(keys), np.zeros(keys)
    curvature, upper = np.zeros((directions, directions)), np.zeros((directions, directions))
    right, change = np.zeros(directions), np.zeros(directions)
    count = 0
    for i in range(directions):
        dual[i] = 0.0
    for key in range(keys):
        if allowed[key]:
            # Large and equal: far from the bounds, a start that peaked rows leave in few steps.
            weights[key], bounds[key] = 1.0, 1.0
            count += 1
    for _ in range(_INTERIOR_STEPS):
        gap = _dot(weights, bounds) / count
        if not gap > _INTERIOR_GAP:
            break
        curvature[:] = 0.0
        for key in range(keys):
            if allowed[key]:
                damped[key] = weights[key] / (weights[key] + bounds[key])
                _add_outer(curvature, basis[key], damped[key])
        trace = 0.0
        for i in range(directions):
            trace += curvature[i, i]
        if not _factorise(curvature, 1e-15 * trace, upper) and not _factorise(curvature, 1e-11 * trace, upper):
            break
        centre = 0.0
        for corrector in range(2):
            # Solve the linearised conditions, first for a·z = 0, then for the centre with what that step was off.
            for i in range(directions):
                right[i] = target[i]
            for key in range(keys):
                if allowed[key]:
                    product = centre - weights[key] * bounds[key]
                    if corrector:
                        product -= in_weights[key] * in_bounds[key]
                    wanted[key] = product / weights[key]
                    total = _dot(basis[key], dual) + bounds[key] - weights[key] + wanted[key]
                    in_weights[key] = total  # finished below, when the change of the dual is known
                    factor = weights[key] + damped[key] * total
                    for i in range(directions):
                        right[i] -= factor * basis[key, i]
            _solve(upper, right, change)
            reach = 1.0 / _BACK_OFF
            for key in range(keys):
                if allowed[key]:
                    in_weights[key] = damped[key] * (_dot(basis[key], change) + in_weights[key])
                    in_bounds[key] = wanted[key] - bounds[key] / weights[key] * in_weights[key]
                    if in_weights[key] < 0:
                        reach = min(reach, -weights[key] / in_weights[key])
                    if in_bounds[key] < 0:
                        reach = min(reach, -bounds[key] / in_bounds[key])
            if not corrector:
                ahead = 0.0
                for key in range(keys):
                    ahead += (weights[key] + reach * in_weights[key]) * (bounds[key] + reach * in_bounds[key])
                centre = (ahead / count / gap) ** 3 * gap
        reach = min(_BACK_OFF * reach, 1.0)
        for i in range(directions):
            dual[i] += reach * change[i]
        for key in range(keys):
            if allowed[key]:
                weights[key] += reach * in_weights[key]
                bounds[key] += reach * in_bounds[key]


@compiled
def _dot(first: Numbers, second: Numbers) -> float:
    total = 0.0
    for i in range(len(first)):
        total += first[i] * second[i]
    return total


@compiled
def _add_outer(curvature: Numbers, vector: Numbers, sign: float) -> None:
    """Add sign·vector·vectorᵀ."""
    for i in range(len(vector)):
        factor = sign * vector[i]
        for j in range(len(vector)):
            curvature[i, j] += factor * vector[j]


@compiled
def _steepest(basis: Numbers, weights: Numbers, target: Numbers, slope: Numbers) -> None:
    """Write target − max(0, weights)·basis: the direction of steepest descent of the dual."""
    for i in range(len(target)):
        slope[i] = target[i]
    for key in range(len(weights)):
        weight = weights[key]
        if weight > 0:
            for i in range(len(target)):
                slope[i] -= weight * basis[key, i]


@compiled
def _factorise(curvature: Numbers, damping: float, upper: Numbers) -> bool:
    """Write U with UᵀU = curvature + damping; False if there is none."""
    # An unsigned index cannot count from the end, and a loop that may not do so runs on vectors.
    count, four = np.uintp(len(curvature)), np.uintp(4)
    for i in range(count):
        row = upper[i]
        for j in range(i, count):
            row[j] = curvature[i, j]
        row[i] += damping
        # Four earlier rows at a time, so that this one is read and written a quarter as often.
        fours = i - i % four
        for k in range(np.uintp(0), fours, four):
            first, second, third, fourth = (
                upper[k],
                upper[k + np.uintp(1)],
                upper[k + np.uintp(2)],
                upper[k + np.uintp(3)],
            )
            a, b, c, d = first[i], second[i], third[i], fourth[i]
            for j in range(i, count):
                row[j] -= a * first[j] + b * second[j] + c * third[j] + d * fourth[j]
        for k in range(fours, i):
            first = upper[k]
            a = first[i]
            for j in range(i, count):
                row[j] -= a * first[j]
        if not row[i] > 0:
            return False
        scale = 1 / np.sqrt(row[i])
        for j in range(i, count):
            row[j] *= scale
    return True


@compiled
def _solve(upper: Numbers, right: Numbers, solution: Numbers) -> None:
    """Write the solution of UᵀU·x = right."""
    count, one = np.uintp(len(right)), np.uintp(1)
    for i in range(count):
        solution[i] = right[i]
    for i in range(count):
        row = upper[i]
        value = solution[i] / row[i]
        solution[i] = value
        for j in range(i + one, count):
            solution[j] -= value * row[j]
    for done in range(count):
        last = count - one - done
        row = upper[last]
        value = solution[last]
        for j in range(last + one, count):
            value -= row[j] * solution[j]
        solution[last] = value / row[last]


@compiled
def _length(weights: Numbers, along: Numbers, gain: float, steepness: float) -> float:
    """Minimiser of ½‖max(0, weights + t·along)‖² − t·gain: a safeguarded Newton iteration on its slope."""
    length, low, high = 1.0, 0.0, np.inf
    for _ in range(_LENGTHS):
        slope, bend = -gain, 0.0
        for key in range(len(weights)):
            moved = weights[key] + length * along[key]
            rising = along[key] if moved > 0 else 0.0
            slope += rising * moved
            bend += rising * along[key]
        if abs(slope) <= _SLOPE_LEFT * steepness:
            break
        if slope < 0:
            low = length
        else:
            high = length
        guess = length - slope / bend if bend > 0 else np.inf
        if low < guess < high:
            length = guess
        elif high < np.inf:
            length = (low + high) / 2
        else:
            length *= 4
    return length
