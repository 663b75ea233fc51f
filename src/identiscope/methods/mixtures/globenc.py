"""Whole-layer norms rolled out, without the feed-forward part."""

from collections.abc import Sequence

from torch import Tensor

from identiscope.linalg.parts import StreamParts
from identiscope.methods.mixtures.residual_norm import norm_steps
from identiscope.methods.mixtures.steps import Steps


def globenc(
    attention: Sequence[Tensor], value: Sequence[Tensor], projection: Sequence[Tensor], parts: StreamParts
) -> Steps:
    """As `layer_norm_norm`, behind the second norm of the layer too (Modarressi et al. 2022, N_ENC), multiplied up.

    The feed-forward part is taken to leave each token's mixture as it is; its norm is linear at its true input, which
    the feed-forward part is in.

    >>> from identiscope.linalg.parts import LayerParts, Step
    >>> x, half = torch.ones(2, 1), torch.full((1, 2, 2), 0.5)
    >>> parts = StreamParts((LayerParts((Step(0, x, x, 2 * x),), Step(-1, 2 * x, x, 3 * x)),))
    >>> globenc([half], [x[None]], [torch.ones(1, 1, 1)], parts).rolled
    tensor([[[0.7500, 0.2500],
             [0.2500, 0.7500]]], dtype=torch.float64)
    """
    return norm_steps(attention, value, projection, parts, outer=True, feed_norm=True)
