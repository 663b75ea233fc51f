"""How far apart two attention rows are, and how far one may go in a direction."""

import torch
from torch import Tensor


def total_variation(first: Tensor, second: Tensor) -> Tensor:
    """½·Σ|a − b| over the last axis.

    >>> total_variation(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))
    tensor(1.)
    """
    return 0.5 * (first - second).abs().sum(-1)


def jensen_shannon(first: Tensor, second: Tensor) -> Tensor:
    """Jensen–Shannon divergence in nats over the last axis, at most log 2.

    Rows that sum to less than one (the rest on a sink) compare as they are: the sink's share is the same.

    >>> jensen_shannon(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))
    tensor(0.6931)
    """
    middle = 0.5 * (first + second)
    safe = torch.where(middle > 0, middle, torch.ones_like(middle))
    terms: Tensor = torch.special.xlogy(first, first / safe) + torch.special.xlogy(second, second / safe)
    return 0.5 * terms.sum(-1).clamp(min=0)


def largest_step(row: Tensor, direction: Tensor) -> Tensor:
    """λ_max of §3.3: the largest λ with row + λ·direction ≥ 0, over the last axis; infinite if nothing falls.

    >>> largest_step(torch.tensor([0.2, 0.8]), torch.tensor([-1.0, 1.0]))
    tensor(0.2000)
    """
    steps = torch.where(direction < 0, -row / direction, torch.inf)
    return steps.amin(-1).clamp(min=0)
