"""Attention rollout."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from identiscope.errors import InputError


def rollout(attention: Sequence[Tensor], *, residual: float = 0.5) -> Tensor:
    """R_l = Ā_l·R_{l−1} with Ā = r·I + (1 − r)·mean_h A, rows normalised (Abnar & Zuidema 2020, §3).

    residual: r, the share of a token's own stream in each layer; ½ is the paper's convention, not a measurement.

    >>> rollout([torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])])
    tensor([[[1.0000, 0.0000],
             [0.5000, 0.5000]]], dtype=torch.float64)
    """
    rolled: list[Tensor] = []
    for mixed in mixed_attention(attention, residual):
        rolled.append(mixed @ rolled[-1] if rolled else mixed)
    return torch.stack(rolled)


def mixed_attention(attention: Sequence[Tensor], residual: float) -> Iterator[Tensor]:
    """Ā of every layer, [output, input]: the mean over heads, mixed with the stream itself, rows normalised."""
    if not 0 <= residual <= 1:
        raise InputError(f"residual={residual} was given; expected a share between 0 and 1, such as 0.5.")
    for layer in attention:
        mean = layer.double().mean(0)
        own = torch.eye(len(mean), dtype=mean.dtype, device=mean.device)
        mixed = residual * own + (1 - residual) * mean
        # Rows sum to one already, but for heads with sinks of their own, whose rows sum to less.
        yield mixed / mixed.sum(-1, keepdim=True)
