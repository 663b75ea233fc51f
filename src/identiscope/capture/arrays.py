"""Attention that comes as arrays, from any program: the same Trace, without a model."""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from identiscope.capture.site import Site
from identiscope.capture.streams import ENCODER, MAIN, MEMORY
from identiscope.capture.trace import Stream, Trace
from identiscope.capture.watch.kernel import Bias
from identiscope.errors import InputError
from identiscope.linalg.devices import working_device
from identiscope.token_text import named_in_text


def from_arrays(
    attention: Any,
    value: Any,
    *,
    projection: Any = None,
    projection_bias: Any = None,
    value_bias: Any = None,
    mask: Any = None,
    output: Any = None,
    tokens: Sequence[str] | None = None,
) -> Trace:
    """A Trace of attention given as arrays (NumPy, torch, lists).

    attention [layer, head, query, key], value [layer, kv_head, key, d_v]; fewer axes stand for one head,
    or one layer. projection [layer, head, d_v, model] is each head's output map H; without it T = V.
    value_bias [layer, kv_head, d_v] is the bias inside the values. mask [query, key] is True where a key may
    be seen. output [layer, query, model], if known, is what the block returned, and lets `Trace.verify` compare:
    without it nothing is verified. With as many queries as keys they are taken for the same tokens. All of it goes to
    the device of the values.
    """
    weights = _axes(attention, 4, "attention", "[layer, head, query, key]")
    values = _axes(value, 4, "value", "[layer, kv_head, key, d_v]")
    device = working_device(values.device)
    weights, values = weights.to(device), values.to(device)
    layers, heads, queries, keys = weights.shape
    groups, width = values.shape[1], values.shape[3]
    if values.shape[0] != layers or values.shape[2] != keys or heads % groups:
        raise InputError(
            f"attention {tuple(weights.shape)} [layer, head, query, key] does not fit value {tuple(values.shape)}"
            " [layer, kv_head, key, d_v]: layers and keys must agree, and kv_heads divide heads."
        )
    if projection is None:
        maps = torch.eye(width, dtype=values.dtype, device=device).expand(layers, heads, width, width)
    else:
        maps = _axes(projection, 4, "projection", "[layer, head, d_v, model]").to(device)
        if maps.shape[:3] != (layers, heads, width):
            raise InputError(f"projection {tuple(maps.shape)} must be [{layers}, {heads}, {width}, model].")
    allowed = _allowed(mask, queries, keys, device)
    _check_weights(weights, allowed)
    names = tuple(str(place) for place in range(keys)) if tokens is None else named_in_text(tokens)
    if len(names) != keys:
        raise InputError(f"{len(names)} tokens were given for {keys} keys.")
    model = maps.shape[-1]
    outputs = _optional(output, (layers, queries, model), "output", "[layer, query, model]", device)
    bias = _optional(projection_bias, (layers, model), "projection_bias", "[layer, model]", device)
    inside = _optional(value_bias, (layers, groups, width), "value_bias", "[layer, kv_head, d_v]", device)
    key_stream = MAIN if queries == keys else MEMORY
    shared = tuple(head // (heads // groups) for head in range(heads))
    sites = tuple(
        Site(
            index=layer,
            kind=ENCODER,
            layer=layer,
            name=f"arrays.{layer}",
            query_stream=MAIN,
            key_stream=key_stream,
            heads=tuple(range(heads)),
            key_value_heads=shared,
            query=None,
            key=None,
            value=values[layer],
            bias=Bias(allowed),
            scale=1.0,
            softcap=None,
            sinks=None,
            context=(weights[layer].double() @ values[layer][list(shared)].double()).to(values.dtype),
            projection=maps[layer],
            projection_bias=None if bias is None else bias[layer],
            output=None if outputs is None else outputs[layer],
            value_bias=None if inside is None else inside[layer],
            given=weights[layer],
        )
        for layer in range(layers)
    )
    streams = {key_stream: Stream(key_stream, names, None, None, (False,) * keys, (), None)}
    if key_stream != MAIN:
        places = tuple(str(place) for place in range(queries))
        streams = {MAIN: Stream(MAIN, places, None, None, (False,) * queries, (), None)} | streams
    return Trace(None, MappingProxyType(streams), sites, None, layers, layers)


def _optional(array: Any, shape: tuple[int, ...], name: str, expected: str, device: torch.device) -> Tensor | None:
    if array is None:
        return None
    tensor = _axes(array, len(shape), name, expected)
    if tensor.shape != shape:
        raise InputError(f"{name} has shape {tuple(tensor.shape)}; expected {shape} {expected}.")
    return tensor.to(device)


def _tensor(array: Any, wanted: str) -> Tensor:
    try:
        tensor = torch.as_tensor(array).detach()
    except (TypeError, ValueError, RuntimeError, OverflowError, NotImplementedError) as error:
        raise InputError(f"{wanted}; {str(error) or type(error).__name__}.") from error
    if tensor.layout != torch.strided or tensor.is_meta:
        raise InputError(f"{wanted}; given a tensor that is {'meta' if tensor.is_meta else tensor.layout}.")
    return tensor


def _axes(array: Any, count: int, name: str, expected: str) -> Tensor:
    tensor = _tensor(array, f"{name} must be an array of floats {expected}")
    least = 2 if count > 3 else 1
    if not tensor.is_floating_point() or not least <= tensor.dim() <= count or not tensor.numel():
        raise InputError(
            f"{name} must be an array of floats {expected}; given {tuple(tensor.shape)} of {tensor.dtype}."
        )
    if not bool(torch.isfinite(tensor).all()):
        raise InputError(f"{name} has NaN or infinite entries.")
    return tensor[(None,) * (count - tensor.dim())]


def _allowed(mask: Any, queries: int, keys: int, device: torch.device) -> Tensor | None:
    if mask is None:
        return None
    allowed = _tensor(mask, f"mask must be booleans [{queries}, {keys}], True where a key may be seen").to(device)
    if allowed.dtype != torch.bool or allowed.shape != (queries, keys):
        raise InputError(
            f"mask must be booleans [{queries}, {keys}], True where a key may be seen; given {tuple(allowed.shape)} of"
            f" {allowed.dtype}."
        )
    return None if bool(allowed.all()) else allowed[None]


def _check_weights(weights: Tensor, allowed: Tensor | None) -> None:
    """Rows must be distributions (or less: a sink may take weight) over the keys that may be seen."""
    tolerance = 1e3 * torch.finfo(weights.dtype).eps
    if float(weights.min()) < 0:
        raise InputError(f"attention has a negative weight, {float(weights.min()):.3g}; give it after the softmax.")
    total = float(weights.sum(-1).max())
    if total > 1 + tolerance:
        raise InputError(f"a row of attention sums to {total:.6g}; give it after the softmax, keys on the last axis.")
    if allowed is not None and bool((weights[..., ~allowed[0]] != 0).any()):
        raise InputError("attention has weight on a key that the mask forbids.")
