"""Newton's iteration for the shortest non-negative row, compiled: rows one by one, each for as long as it takes.

Everything here is plain loops over arrays. numba compiles them when they are first called and keeps the result
on disk. Importing numba takes half a second, so this module is imported where it is used.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

#: Damping of a step: this share of the residual, and no more than the most. The curvature of an orthonormal
#: basis is at most one, so these are absolute.
_DAMPING_SHARE, _MOST_DAMPING = 1e-2, 1e-3
#: The least damping: small for ill-conditioned pieces of the dual, large for singular ones (fewer positive
#: weights than directions), where a small one makes steps of rounding. Which of them a row needs shows when
#: its residual has not fallen for so many steps; the other is tried then.
_SMALL_DAMPING, _LARGE_DAMPING, _PATIENCE = 1e-12, 1e-8, 15
#: A step is long enough when the slope along it has fallen to this share, or after so many lengths tried.
_SLOPE_LEFT, _LENGTHS = 0.1, 30
#: The dual is rounded to this share of its size, and no residual can be much below that.
_ROUNDING = float(np.finfo(np.float64).eps / 2)


def _compiled(function: Any) -> Any:
    # Sums may be reordered and products fused, so that loops run on vectors; infinity and NaN keep their meaning.
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "arcp"}}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # no folder to keep compiled code in
        return njit(**options)(function)


@_compiled
def newton_rows(
    basis: Numbers, targets: Numbers, inside: NDArray[np.bool_], steps: int, finished: float, duals: Numbers
) -> None:
    """Write into `duals` [row, direction] the best minimiser of ½‖max(0, Bλ)‖² − target·λ found for each row.

    `basis` [key, direction] has orthonormal columns, `targets` have norm one, and only the keys `inside`
    [row, key] count. A step minimises the quadratic piece of the dual it is on; only keys whose weight changes
    its sign change the curvature of the next one.
    """
    keys, directions = basis.shape
    shape = (directions, directions)
    whole, first, curvature, upper = np.zeros(shape), np.zeros(shape), np.zeros(shape), np.zeros(shape)
    allowed, active = np.zeros(keys, np.bool_), np.zeros(keys, np.bool_)
    weights, along = np.zeros(keys), np.zeros(keys)
    dual, slope, step = np.zeros(directions), np.zeros(directions), np.zeros(directions)
    for row in range(len(targets)):
        target = targets[row]
        # The first step is from zero on the piece of all allowed keys, which neighbouring rows mostly share.
        changed = False
        for key in range(keys):
            if inside[row, key] != allowed[key]:
                changed, allowed[key] = True, inside[row, key]
                _add_outer(whole, basis[key], 1.0 if allowed[key] else -1.0)
            active[key], weights[key] = allowed[key], 0.0
        if changed and not _factorise(whole, _SMALL_DAMPING, first):
            _factorise(whole, _MOST_DAMPING, first)
        for i in range(directions):
            dual[i], slope[i] = 0.0, target[i]
            for j in range(directions):
                curvature[i, j] = whole[i, j]
        _solve(first, slope, step)
        best, waited, least = np.inf, 0, _SMALL_DAMPING
        for _ in range(steps):
            for key in range(keys):
                along[key] = _dot(basis[key], step) if allowed[key] else 0.0
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
                    duals[row, i] = dual[i]
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


@_compiled
def _dot(first: Numbers, second: Numbers) -> float:
    total = 0.0
    for i in range(len(first)):
        total += first[i] * second[i]
    return total


@_compiled
def _add_outer(curvature: Numbers, vector: Numbers, sign: float) -> None:
    """Add sign·vector·vectorᵀ."""
    for i in range(len(vector)):
        factor = sign * vector[i]
        for j in range(len(vector)):
            curvature[i, j] += factor * vector[j]


@_compiled
def _steepest(basis: Numbers, weights: Numbers, target: Numbers, slope: Numbers) -> None:
    """Write target − max(0, weights)·basis: the direction of steepest descent of the dual."""
    for i in range(len(target)):
        slope[i] = target[i]
    for key in range(len(weights)):
        weight = weights[key]
        if weight > 0:
            for i in range(len(target)):
                slope[i] -= weight * basis[key, i]


@_compiled
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


@_compiled
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


@_compiled
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
