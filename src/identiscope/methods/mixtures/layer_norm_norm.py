"""Lengths of what each token brings to another, the stream and the norm behind it included."""

from collections.abc import Sequence

from torch import Tensor

from identiscope.linalg.parts import StreamParts
from identiscope.methods.mixtures.residual_norm import norm_steps
from identiscope.methods.mixtures.steps import Steps


def layer_norm_norm(
    attention: Sequence[Tensor], value: Sequence[Tensor], projection: Sequence[Tensor], parts: StreamParts
) -> Steps:
    """As `residual_norm`, behind the norm of the sum by its linear part at this input (Kobayashi et al. 2021, eq. 15).

    Where no norm stands behind the sum, as in GPT-2 and Llama, whose norms are in front and so in the values, it is the
    same as `residual_norm`.

    >>> from identiscope.linalg.parts import LayerParts, Step
    >>> x, half = torch.ones(2, 1), torch.full((1, 2, 2), 0.5)
    >>> parts = StreamParts((LayerParts((Step(0, x, x, 2 * x),), Step(-1, 2 * x, x, 3 * x)),))
    >>> layer_norm_norm([half], [x[None]], [torch.ones(1, 1, 1)], parts).rolled
    tensor([[[0.7500, 0.2500],
             [0.2500, 0.7500]]], dtype=torch.float64)
    """
    return norm_steps(attention, value, projection, parts, outer=True)
