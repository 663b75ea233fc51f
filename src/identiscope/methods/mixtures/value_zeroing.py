"""What a layer makes of a token without the value of another."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.decomposition import Moved, pair_blocks, rolled_out, shares
from identiscope.linalg.jacobian.blocks import normalise
from identiscope.linalg.parts import LayerParts, StreamParts
from identiscope.methods.mixtures.steps import Steps, check_one_stream

# Pairs whose attention is so far below that of the strongest that no float64 number of the output changes.
_NOTHING = 0.0


def value_zeroing(
    attention: Sequence[Tensor], value: Sequence[Tensor], projection: Sequence[Tensor], parts: StreamParts
) -> Steps:
    """1 − cos(z_i, z_i without v_j), rows normalised, multiplied up (Mohebbi et al. 2023, eq. 2 to 4).

    z_i is what the layer writes for token i, and z_i without v_j what it would write if the value of j were zero in all
    heads. What attention loses is known for all pairs; norms and feed-forward part see every pair that attends at all,
    and nothing else of the layer is computed again.

    >>> from identiscope.linalg.parts import LayerParts, Step
    >>> x, own = torch.eye(2), torch.eye(2).expand(1, 2, 2)
    >>> layer = LayerParts((Step(0, x, x, 2 * x),), Step(-1, 2 * x, 0 * x, 2 * x), lambda state: 0 * state)
    >>> value_zeroing([own], [x[None]], [torch.eye(2)[None]], StreamParts((layer,))).step
    tensor([[[0., 0.],
             [0., 0.]]], dtype=torch.float64)
    """
    check_one_stream(parts)
    steps = []
    for weights, values, maps, layer in zip(attention, value, projection, parts.layers, strict=True):
        if layer.feed is None:
            raise InputError(
                "the feed-forward part of a layer could not be found as modules that can be run by itself."
            )
        steps.append(shares(_changes(weights, values, maps, layer, layer.feed)))
    return Steps(rolled_out(steps), torch.stack(steps))


def _changes(
    attention: Tensor, value: Tensor, projection: Tensor, layer: LayerParts, feed: Callable[[Tensor], Tensor]
) -> Tensor:
    """1 − cos of every pair, [query, key]."""
    step, last = layer.attends[0], layer.feeds
    bare = Moved(attention.double(), value, projection, None, (), 1.0, None)
    written = last.after.double()
    found = torch.zeros(len(written), attention.shape[2], dtype=torch.float64, device=attention.device)
    fed = last.addition.double()
    with torch.no_grad():
        for some, vectors in pair_blocks(bare):
            # A pair that no head attends to loses nothing, exactly.
            attends = (attention[:, some] > _NOTHING).any(0)
            query, key = attends.nonzero(as_tuple=True)
            rows = some.to(query.device)[query]
            left = step.addition.double()[rows] - vectors[query, key]
            total = step.before.double()[rows] + step.factor * normalise(step.inner, left)
            state = normalise(step.outer, total)
            added = fed[rows] if layer.parallel else feed(state.to(last.before.dtype)).double()
            new = normalise(last.outer, state + last.factor * normalise(last.inner, added))
            found[rows, key] = 1 - torch.cosine_similarity(new, written[rows], dim=-1)
    return found.clamp(min=0)
