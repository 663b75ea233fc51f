"""The most even row with given constraints: a softmax of scores linear in the constraints."""

from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.linalg.tolerance import NEWTON_FINISHED

_STEPS = 400
_LEAST_DAMPING, _MOST_DAMPING = 1e-14, 1e12
#: Most that a score may change in one step.
_MOST_CHANGE = 3.0
#: Numbers of centred points held at once (32 MB).
_CHUNK_NUMBERS = 2**22


@dataclass(frozen=True)
class MaximumEntropy:
    """Dual variables [row, direction] with a = total·softmax(basis·dual), the rows, and ‖a·basis − target‖."""

    dual: Tensor
    rows: Tensor
    residual: Tensor


def maximum_entropy_rows(basis: Tensor, target: Tensor, total: Tensor, inside: Tensor | None = None) -> MaximumEntropy:
    """Maximise the entropy over rows that sum to `total` with a·basis = target, zero outside `inside`.

    The dual total·logsumexp(Bλ) − target·λ is smooth and convex: Newton, damped row by row. The solution is
    positive on every allowed key, and its scores are linear in the basis.

    >>> found = maximum_entropy_rows(torch.zeros(4, 1).double(), torch.zeros(1, 1).double(), torch.ones(1).double())
    >>> found.rows
    tensor([[0.2500, 0.2500, 0.2500, 0.2500]], dtype=torch.float64)
    """
    outside = None if inside is None else ~inside
    scale = total.clamp(min=torch.finfo(torch.float64).tiny)
    goal = target / scale[:, None]
    dual = torch.zeros_like(goal)
    weights, value = _weights(basis, goal, outside, dual)
    damping = goal.new_full((len(goal),), _LEAST_DAMPING)
    open_rows = torch.arange(len(goal), device=goal.device)
    for _ in range(_STEPS):
        slope = weights[open_rows] @ basis - goal[open_rows]
        open_rows = open_rows[(slope.norm(dim=1) > NEWTON_FINISHED) & (damping[open_rows] < _MOST_DAMPING)]
        if not len(open_rows):
            break
        size = max(1, _CHUNK_NUMBERS // basis.numel())
        for begin in range(0, len(open_rows), size):
            rows = open_rows[begin : begin + size]
            part = None if outside is None else outside[rows]
            slope = weights[rows] @ basis - goal[rows]
            step = _step(basis, weights[rows], slope, damping[rows])
            new, new_value = _weights(basis, goal[rows], part, dual[rows] + step)
            new_slope, promised = new @ basis - goal[rows], (slope * step).sum(1)
            enough = (new_value <= value[rows] + 1e-4 * promised) & (promised < 0)
            # A step too far saturates the softmax where it is flat, and nothing leads back from there.
            enough &= (new_slope * step).sum(1) <= 0.5 * promised.abs()
            # Close to the solution the dual no longer changes in float64 while the residual still falls.
            level = new_value <= value[rows] + NEWTON_FINISHED * (1 + value[rows].abs())
            good = enough | (level & (new_slope.norm(dim=1) < 0.5 * slope.norm(dim=1)))
            taken = rows[good]
            dual[taken], weights[taken], value[taken] = (dual[rows] + step)[good], new[good], new_value[good]
            damping[taken] = (damping[taken] / 10).clamp(min=_LEAST_DAMPING)
            damping[rows[~good]] *= 10
    residual = (weights @ basis - goal).norm(dim=1) * scale
    return MaximumEntropy(dual, weights * scale[:, None], residual)


def _weights(basis: Tensor, goal: Tensor, outside: Tensor | None, dual: Tensor) -> tuple[Tensor, Tensor]:
    scores = dual @ basis.mT
    if outside is not None:
        scores = scores.masked_fill(outside, -torch.inf)
    return scores.softmax(1), scores.logsumexp(1) - (dual * goal).sum(1)


def _step(basis: Tensor, weights: Tensor, slope: Tensor, damping: Tensor) -> Tensor:
    """Damped Newton step; the covariance is formed from centred points, since peaked rows would cancel it."""
    centred = weights.sqrt()[..., None] * (basis - (weights @ basis)[:, None])
    curvature = centred.mT @ centred
    diagonal = curvature.diagonal(dim1=1, dim2=2)
    added = damping[:, None] * diagonal.sum(1, keepdim=True).clamp(min=1e-200)
    diagonal.add_(added)
    lower, failed = torch.linalg.cholesky_ex(curvature)
    step = -torch.cholesky_solve(slope[..., None], lower)[..., 0]
    usable = (failed == 0) & torch.isfinite(step).all(1)
    # No step for a row whose curvature cannot be factorised: it comes back with more damping.
    step = torch.where(usable[:, None], step, 0)
    # The quadratic model of a softmax holds while scores change by little; farther on it saturates.
    change = (step @ basis.mT).abs().amax(1, keepdim=True)
    return step * (_MOST_CHANGE / change.clamp(min=_MOST_CHANGE))
