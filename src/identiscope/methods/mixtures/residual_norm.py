"""Lengths of what each token brings to another, the stream itself included."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from identiscope.linalg.decomposition import Moved, mixing_ratio, moved, part_sizes, rolled_out, shares
from identiscope.linalg.parts import StreamParts, linear_part
from identiscope.methods.mixtures.steps import Steps, check_one_stream


def residual_norm(
    attention: Sequence[Tensor], value: Sequence[Tensor], projection: Sequence[Tensor], parts: StreamParts
) -> Steps:
    """‖Σ_h α_ij·f_h(x_j) + [i = j]·x_i‖, rows normalised, multiplied up (Kobayashi et al. 2021, with the residual).

    `step` is that of one layer alone. `mixing_ratio` is the length of what comes from other tokens, as a share of that
    and the length of what comes from the token's own place.

    >>> from identiscope.linalg.parts import LayerParts, Step
    >>> x, half = torch.ones(2, 1), torch.full((1, 2, 2), 0.5)
    >>> parts = StreamParts((LayerParts((Step(0, x, x, 2 * x),), Step(-1, 2 * x, x, 3 * x)),))
    >>> residual_norm([half], [x[None]], [torch.ones(1, 1, 1)], parts).rolled
    tensor([[[0.7500, 0.2500],
             [0.2500, 0.7500]]], dtype=torch.float64)
    """
    return norm_steps(attention, value, projection, parts, outer=False)


def norm_steps(
    attention: Sequence[Tensor],
    value: Sequence[Tensor],
    projection: Sequence[Tensor],
    parts: StreamParts,
    *,
    outer: bool,
    feed_norm: bool = False,
) -> Steps:
    """Lengths of parts in every layer: before the norm of the sum, behind it, or behind that of the second sum too."""
    check_one_stream(parts)

    def pieces() -> Iterator[Moved]:
        for weights, values, maps, layer in zip(attention, value, projection, parts.layers, strict=True):
            last = linear_part(layer.feeds.outer, layer.feeds.sum) if feed_norm else None
            after = [] if last is None else [last]
            yield moved(weights, values, maps, layer.attends[0], outer=outer, after=after)

    steps = [shares(part_sizes(layer)) for layer in pieces()]
    # The layers once more, and only if the ratio is wanted: what a layer is made of is too large to be kept for all.
    return Steps(rolled_out(steps), torch.stack(steps), lambda: torch.stack([mixing_ratio(one) for one in pieces()]))
