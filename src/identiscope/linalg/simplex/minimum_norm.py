"""The shortest non-negative row with given constraints, for many rows at once."""

from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.linalg.devices import on_cpu
from identiscope.linalg.tolerance import NEWTON_FINISHED

#: Rows of trained heads take about ten steps; the most peaked ones, nearly one-hot, take hundreds.
_STEPS = 1000


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
    weights (a singular piece) converge too, and its length minimises the dual along it. Rows on which that
    circles (keys that are nearly equal) are tried again from an interior point. Rows cross very different
    numbers of pieces, so they are solved one by one, in code compiled for the CPU. A row that is not solved keeps
    its best answer and says so in its residual. The basis [key, direction] is orthonormal.

    >>> basis = torch.full((4, 1), 0.5, dtype=torch.float64)
    >>> found = minimum_norm_rows(basis, torch.tensor([[0.5]], dtype=torch.float64))
    >>> (basis @ found.dual[0]).clamp(min=0)
    tensor([0.2500, 0.2500, 0.2500, 0.2500], dtype=torch.float64)
    """
    from identiscope.linalg.simplex.minimum_norm_compiled import solve_rows

    device = target.device
    basis, target = on_cpu(basis), on_cpu(target)
    scale = target.norm(dim=1).clamp(min=torch.finfo(torch.float64).tiny)
    goal = target / scale[:, None]
    inside = torch.ones(len(target), len(basis), dtype=torch.bool) if inside is None else on_cpu(inside)
    dual = torch.zeros_like(goal)
    arrays = (tensor.contiguous().numpy() for tensor in (basis, goal, inside))
    solve_rows(*arrays, _STEPS, NEWTON_FINISHED, dual.numpy())
    weights = (dual @ basis.mT).clamp(min=0) * inside
    residual = (weights @ basis - goal).norm(dim=1)
    return MinimumNorm((dual * scale[:, None]).to(device), (residual * scale).to(device))
