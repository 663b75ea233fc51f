"""One text's part of an attention call that ran on a batch."""

from collections.abc import Sequence

import torch
from torch import Tensor

from identiscope.capture.site import Site
from identiscope.capture.streams import Place
from identiscope.capture.watch.calls import Call
from identiscope.capture.watch.kernel import Bias


def site_of(
    call: Call,
    text: int,
    *,
    place: Place,
    positions: tuple[Tensor | None, Tensor | None],
    heads: Sequence[int] | None,
    passing: bool = False,
) -> Site:
    """One text's part of a call: padding dropped, the chosen heads kept.

    passing: it is dropped before the model's weights can change, and so may share them."""
    assert call.projection is not None and call.output is not None
    count = call.query.shape[1]
    groups = count // call.key.shape[1]
    at_query, at_key = (None if places is None else places.to(call.query.device) for places in positions)
    chosen = tuple(range(count)) if heads is None else tuple(heads)
    shared = sorted({head // groups for head in chosen})
    query, key, value = call.query[text], call.key[text], call.value[text]
    if heads is not None:
        # Copies of the chosen heads alone, so that the rest can be freed.
        query, key, value = query[list(chosen)], key[shared], value[shared]
    allowed, position = (_one(part, text, heads) for part in (call.bias.allowed, call.bias.position))
    bias = _settle(Bias(_cells(allowed, at_query, at_key), call.bias.causal, _cells(position, at_query, at_key)))
    width = call.projection.shape[0] // count
    projection, added = call.projection.reshape(count, width, -1), call.projection_bias
    if not passing:
        # What the model's weights become later is not what this pass computed with.
        projection, added = projection.clone(), None if added is None else added.clone()
    return Site(
        index=call.index,
        kind=place.kind,
        layer=place.layer,
        name=call.name,
        query_stream=place.query_stream,
        key_stream=place.key_stream,
        heads=chosen,
        key_value_heads=tuple(shared.index(head // groups) for head in chosen),
        query=_rows(query, at_query).detach(),
        key=_rows(key, at_key).detach(),
        value=_rows(value, at_key).detach(),
        bias=bias,
        scale=call.scale,
        softcap=call.softcap,
        sinks=None if call.sinks is None else call.sinks[list(chosen)],
        context=_rows(call.context[text], at_query).detach(),
        projection=projection,
        projection_bias=added,
        output=_rows(call.output[text], at_query).detach(),
        value_bias=None if call.value_bias is None else call.value_bias[shared],
        returned_by=call.returned_by,
    )


def _one(tensor: Tensor | None, text: int, heads: Sequence[int] | None) -> Tensor | None:
    if tensor is None:
        return None
    tensor = tensor[text if tensor.shape[0] > 1 else 0].detach()
    return tensor[list(heads)] if heads is not None and tensor.shape[0] > 1 else tensor


def _rows(tensor: Tensor, positions: Tensor | None) -> Tensor:
    return tensor if positions is None else tensor[..., positions, :]


def _cells(tensor: Tensor | None, at_query: Tensor | None, at_key: Tensor | None) -> Tensor | None:
    if tensor is None:
        return None
    if at_query is not None and tensor.shape[-2] > 1:
        tensor = tensor[..., at_query, :]
    return tensor if at_key is None else tensor[..., at_key]


def _settle(bias: Bias) -> Bias:
    """Say `all` and `causal` in a word where the cells that are left say just that."""
    allowed = bias.allowed
    if allowed is None:
        return bias
    if bool(allowed.all()):
        return Bias(None, bias.causal, bias.position)
    if allowed.shape[-2] == allowed.shape[-1]:
        triangle = torch.ones(allowed.shape[-2:], dtype=torch.bool, device=allowed.device).tril()
        if torch.equal(allowed, triangle.expand_as(allowed)):
            return Bias(None, True, bias.position)
    return bias
