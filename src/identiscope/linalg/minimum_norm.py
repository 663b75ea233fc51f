"""The shortest non-negative row with given constraints, for many rows at once."""

from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.linalg.interior_point import interior_point_dual
from identiscope.linalg.tolerance import NEWTON_ACCEPTED, NEWTON_FINISHED, NEWTON_ROUGH, machine_epsilon
from identiscope.linalg.weighted_gram import WeightedGram, weighted_gram

#: Newton steps in float32, then in float64, then again from an interior point for the rows still open.
_ROUGH_STEPS, _STEPS, _STEPS_AGAIN = 7, 6, 40


@dataclass(frozen=True)
class MinimumNorm:
    """Dual variables [row, direction] with a = max(0, basis·dual), and the KKT residual [row].

    Non-negativity, stationarity and complementarity hold by construction; what can fail is a·basis = target,
    so the residual is ‖a·basis − target‖.
    """

    dual: Tensor
    residual: Tensor


def minimum_norm_rows(basis: Tensor, target: Tensor, inside: Tensor | None = None) -> MinimumNorm:
    """Minimise ‖a‖² over a ≥ 0 with a·basis = target, and a zero outside `inside` [row, key].

    The Lagrangian dual ½‖max(0, Bλ)‖² − target·λ is convex and piecewise quadratic. A semismooth Newton step
    solves the piece it is on; it is damped in proportion to the residual, so that rows with few non-zero
    weights (a singular piece) converge too, and its length minimises the dual along it. The way to the right
    piece is found in float32, the answer in float64. Rows that cross too many pieces (very peaked ones) are
    restarted from an interior-point solution, whose piece is right or nearly so. Rows still not solved keep
    the best answer and say so in their residual.

    >>> basis = torch.full((4, 1), 0.5, dtype=torch.float64)
    >>> found = minimum_norm_rows(basis, torch.tensor([[0.5]], dtype=torch.float64))
    >>> (basis @ found.dual[0]).clamp(min=0)
    tensor([0.2500, 0.2500, 0.2500, 0.2500], dtype=torch.float64)
    """
    scale = target.norm(dim=1).clamp(min=torch.finfo(torch.float64).tiny)
    target = target / scale[:, None]
    masks = None if inside is None else inside.double()
    gram, rough_gram = weighted_gram(basis), weighted_gram(basis.float())
    nothing = target.new_zeros(len(target))
    start = target if masks is None else _solve(gram(masks), target, nothing)
    rough_masks = None if masks is None else masks.float()
    rough, distance = _newton(rough_gram, target.float(), rough_masks, start.float(), _ROUGH_STEPS, NEWTON_ROUGH)
    dual, residual = rough.double(), torch.full_like(scale, torch.inf)
    # What each attempt starts from, how many steps it has, and which rows it is for.
    attempts = (
        ("rough", _STEPS, distance <= 10 * NEWTON_ROUGH),
        ("interior", _STEPS_AGAIN, None),
        ("best", 4 * _STEPS_AGAIN, None),
    )
    for origin, steps, chosen in attempts:
        wanted = residual > (NEWTON_ACCEPTED if origin == "best" else NEWTON_FINISHED)
        left = (wanted if chosen is None else wanted & chosen).nonzero()[:, 0]
        if not len(left):
            continue
        mask = None if masks is None else masks[left]
        start = interior_point_dual(gram, target[left], mask) if origin == "interior" else dual[left]
        again, remaining = _newton(gram, target[left], mask, start, steps, NEWTON_FINISHED)
        better = remaining < residual[left]
        dual[left[better]], residual[left[better]] = again[better], remaining[better]
    return MinimumNorm(dual * scale[:, None], residual * scale)


def _newton(
    gram: WeightedGram, target: Tensor, masks: Tensor | None, start: Tensor, steps: int, finished: float
) -> tuple[Tensor, Tensor]:
    """Best dual and its residual for each row after at most so many semismooth Newton steps."""
    basis, transposed = gram.basis, gram.transposed
    best, residual = start.clone(), torch.full_like(target[:, 0], torch.inf)
    rows, dual = torch.arange(len(target)), start
    for step in range(steps + 1):
        weights = dual @ transposed
        active = (weights > 0).to(weights.dtype)
        if masks is not None:
            active *= masks
        slope = torch.addmm(target, weights * active, basis, beta=-1)
        now = slope.norm(dim=1)
        better = now < residual[rows]
        improved = rows[better]
        best[improved], residual[improved] = dual[better], now[better]
        keep = now > finished
        count = int(keep.sum())
        if step == steps or not count:
            break
        # Finished rows ride along until there are enough of them to be worth the copying.
        if count < 0.8 * len(rows):
            rows, dual, target, slope, now, weights, active = (
                tensor[keep] for tensor in (rows, dual, target, slope, now, weights, active)
            )
            masks = None if masks is None else masks[keep]
        direction = -_solve(gram(active), slope, now)
        along = direction @ transposed
        if masks is not None:
            along *= masks
        length = _length(weights, along, -(target * direction).sum(1), (slope * direction).sum(1))
        dual = torch.addcmul(dual, length[:, None], direction)
    return best, residual


def _solve(curvature: Tensor, right: Tensor, residual: Tensor) -> Tensor:
    """Damped Newton step: the curvature of an orthonormal basis is at most one, so the damping is absolute."""
    damping = (residual * 1e-3).clamp(64 * machine_epsilon(right.dtype), 1e-3)
    curvature.diagonal(dim1=1, dim2=2).add_(damping[:, None])
    lower, failed = torch.linalg.cholesky_ex(curvature)
    if bool(failed.any()):
        curvature.diagonal(dim1=1, dim2=2).add_(torch.where(failed > 0, 1e-3, 0.0)[:, None])
        lower, _ = torch.linalg.cholesky_ex(curvature)
    return torch.cholesky_solve(right[..., None], lower)[..., 0]


def _length(weights: Tensor, along: Tensor, linear: Tensor, slope: Tensor) -> Tensor:
    """Minimiser of ½‖max(0, weights + t·along)‖² + t·linear: a safeguarded Newton iteration on its slope."""
    length = torch.ones_like(linear)
    low, high = torch.zeros_like(linear), torch.full_like(linear, torch.inf)
    # On the rough way a rough minimum will do; the last pieces are crossed with a good one.
    exact = linear.dtype == torch.float64
    small = (0.1 if exact else 0.3) * slope.abs()
    for _ in range(10 if exact else 4):
        moved = torch.addcmul(weights, length[:, None], along)
        rising = along * (moved > 0)
        now = torch.linalg.vecdot(rising, moved) + linear
        rough = now.abs() > small
        if not bool(rough.any()):
            break
        low, high = torch.where(now < 0, length, low), torch.where(now > 0, length, high)
        guess = length - now / torch.linalg.vecdot(rising, along).clamp(min=1e-30)
        middle = torch.where(torch.isfinite(high), (low + high) / 2, 4 * length)
        proposed = torch.where((guess > low) & (guess < torch.minimum(high, 10 * length)), guess, middle)
        length = torch.where(rough, proposed, length)
    return length
