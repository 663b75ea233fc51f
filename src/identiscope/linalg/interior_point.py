"""A batched primal-dual interior-point method for the shortest non-negative row, used where Newton is slow."""

import torch
from torch import Tensor

from identiscope.linalg.weighted_gram import WeightedGram

_ITERATIONS = 60
#: Mean of weight times multiplier at which the active weights are known; Newton's method takes it from there.
_FINISHED = 1e-11
_BACK_OFF = 0.995


def interior_point_dual(gram: WeightedGram, target: Tensor, masks: Tensor | None = None) -> Tensor:
    """Dual [row, direction] of: minimise ½‖a‖² over a ≥ 0, a·basis = target (Mehrotra's predictor-corrector).

    The multipliers z ≥ 0 of a ≥ 0 satisfy a − Bλ − z = 0; every step solves Bᵀ·(1 + z/a)⁻¹·B. Targets are
    expected to have norm one. Rows leave as they finish.
    """
    basis, transposed = gram.basis, gram.transposed
    inside = target.new_ones(len(target), len(basis)) if masks is None else masks
    # Large and equal: far from the bounds, a start that peaked rows leave in few steps.
    weights, bound, dual = inside.clone(), inside.clone(), torch.zeros_like(target)
    rows, answer = torch.arange(len(target)), torch.zeros_like(target)
    for _ in range(_ITERATIONS):
        count = inside.sum(1)
        gap = torch.linalg.vecdot(weights, bound) / count
        open_rows = gap > _FINISHED
        if not bool(open_rows.all()):
            answer[rows] = dual
            if not bool(open_rows.any()):
                break
            rows, weights, bound, dual, target, inside, gap, count = (
                tensor[open_rows] for tensor in (rows, weights, bound, dual, target, inside, gap, count)
            )
        step = _step(gram, target, inside, transposed, weights, bound, dual, gap, count)
        if step is None:
            break
        dual, weights, bound = step
    answer[rows] = dual
    return answer


def _step(
    gram: WeightedGram, target: Tensor, inside: Tensor, transposed: Tensor, weights: Tensor, bound: Tensor,
    dual: Tensor, gap: Tensor, count: Tensor,
) -> tuple[Tensor, Tensor, Tensor] | None:  # fmt: skip
    """One predictor-corrector step; None where the system can no longer be factorised."""
    basis = gram.basis
    # Outside the allowed keys weights and bounds are zero; one there keeps the quotients finite.
    divisor = weights + (1 - inside)
    ratio = bound / divisor
    inverse = inside / (1 + ratio)
    curvature = gram(inverse)
    trace = curvature.diagonal(dim1=1, dim2=2).sum(1)
    curvature.diagonal(dim1=1, dim2=2).add_((1e-15 * trace)[:, None])
    lower, failed = torch.linalg.cholesky_ex(curvature)
    if bool(failed.any()):
        curvature.diagonal(dim1=1, dim2=2).add_((torch.where(failed > 0, 1e-11, 0.0) * trace)[:, None])
        lower, failed = torch.linalg.cholesky_ex(curvature)
        if bool(failed.any()):
            return None
    primal = target - weights @ basis
    stationary = (dual @ transposed + bound - weights) * inside

    def direction(product: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Solve the linearised conditions for a·z = product."""
        pull = product / divisor
        total = stationary + pull
        right = primal - (inverse * total) @ basis
        change = torch.cholesky_solve(right[..., None], lower)[..., 0]
        in_weights = inverse * (change @ transposed + total)
        return change, in_weights, pull - ratio * in_weights

    product = -weights * bound
    _, in_weights, in_bound = direction(product)
    reach = torch.minimum(_reach(weights, in_weights), _reach(bound, in_bound))[:, None]
    ahead = torch.linalg.vecdot(weights + reach * in_weights, bound + reach * in_bound) / count
    centre = (ahead / gap) ** 3 * gap
    change, in_weights, in_bound = direction(product - in_weights * in_bound + centre[:, None] * inside)
    reach = torch.minimum(_reach(weights, in_weights), _reach(bound, in_bound))
    reach = (_BACK_OFF * reach).clamp(max=1)[:, None]
    return dual + reach * change, weights + reach * in_weights, bound + reach * in_bound


def _reach(values: Tensor, change: Tensor) -> Tensor:
    """Longest step that keeps every value non-negative, at most slightly more than one."""
    # The most negative change per value: one quotient and one minimum, and no division by zero where it is zero.
    falling = (change / values.clamp(min=1e-300)).amin(1)
    return (-1 / falling.clamp(max=-1e-300)).clamp(max=1 / _BACK_OFF)
