"""Attention times its gradient, multiplied up."""

from collections.abc import Sequence

import torch
from torch import Tensor


def gradient_rollout(attention: Sequence[Tensor], attention_gradient: Sequence[Tensor]) -> Tensor:
    """R ← R + Ā·R with Ā = mean_h (A ⊙ ∂F/∂A)⁺, from R = I (Chefer et al. 2021b, eq. 5 and 6).

    The map of relevance after each layer: what hidden tokens carry of each input for this outcome. Rows do not sum to
    one. Only what speaks for the outcome counts: negative products are cut off in every head.

    >>> gradient_rollout([torch.tensor([[[0.5, 0.5], [0.0, 1.0]]])], [torch.tensor([[[2.0, -1.0], [0.0, 1.0]]])])
    tensor([[[2., 0.],
             [0., 2.]]], dtype=torch.float64)
    """
    relevance: Tensor | None = None
    relevances = []
    for weights, slope in zip(attention, attention_gradient, strict=True):
        step = (weights.double() * slope.double()).clamp(min=0).mean(0)
        if relevance is None:
            relevance = torch.eye(len(step), dtype=step.dtype, device=step.device)
        relevance = relevance + step @ relevance
        relevances.append(relevance)
    return torch.stack(relevances)
