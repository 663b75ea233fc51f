"""What a layer makes of a token without the value of another."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from identiscope.errors import InputError
from identiscope.linalg.decomposition import Moved, rolled_out, shares
from identiscope.linalg.jacobian.blocks import Norm
from identiscope.linalg.parts import LayerParts, StreamParts
from identiscope.methods.mixtures.steps import Steps, check_one_stream

#: Numbers that are held at a time while vectors of pairs are made.
_NUMBERS = 2**20


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
    """1 − cos of every pair, [query, key].

    In the precision of the pass: what it rounds off is far below what a whole value changes.
    """
    step, last = layer.attends[0], layer.feeds
    kind = torch.promote_types(last.before.dtype, torch.float32)
    weights = attention.to(kind)
    bare = Moved(attention, value, projection, None, (), 1.0, None)
    moves = torch.stack([bare.of_head(head).to(kind) for head in range(len(projection))], 1)
    written, fed = last.after.to(kind), last.addition.to(kind)
    before, addition = step.before.to(kind), step.addition.to(kind)
    changes = torch.zeros(len(written), attention.shape[2], dtype=torch.float64, device=attention.device)
    with torch.no_grad():
        for some in torch.arange(len(written), device=attention.device).split(max(1, _NUMBERS // moves[:, 0].numel())):
            # A pair that no head attends to loses nothing, exactly.
            query, key = (attention[:, some] > 0).any(0).nonzero(as_tuple=True)
            rows = some[query]
            # [key, query, head] × [key, head, model]: what each query loses with each key.
            lost = (weights[:, some].permute(2, 1, 0) @ moves)[key, query]
            total = before[rows] + step.factor * _normalised(step.inner, addition[rows] - lost)
            state = _normalised(step.outer, total)
            added = fed[rows] if layer.parallel else feed(state.to(last.before.dtype)).to(kind)
            new = _normalised(last.outer, state + last.factor * _normalised(last.inner, added))
            changes[rows, key] = _turned(new, written[rows])
    return changes.clamp(min=0)


def _normalised(norm: Norm | None, x: Tensor) -> Tensor:
    """The norm applied to [pair, model], in one go: there are many pairs."""
    if norm is None:
        return x
    weight, bias = (None if part is None else part.to(x) for part in (norm.weight, norm.bias))
    if norm.centred:
        return functional.layer_norm(x, x.shape[-1:], weight, bias, norm.epsilon)
    unit = functional.rms_norm(x, x.shape[-1:], weight, norm.epsilon)
    return unit if bias is None else unit + bias


def _turned(new: Tensor, old: Tensor) -> Tensor:
    """1 − cos of rows, as half the square of what lies between them at the same length: no digits cancel."""
    first, second = (new * new).sum(-1, dtype=torch.float64), (old * old).sum(-1, dtype=torch.float64)
    between = new * (second / first).sqrt().to(new.dtype)[:, None] - old
    turned: Tensor = (between * between).sum(-1, dtype=torch.float64) / (2 * second)
    return turned
