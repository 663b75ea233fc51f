"""`torch.nn.MultiheadAttention`: its arguments and parameters say all that its kernel was given."""

import inspect
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from identiscope.capture.watch.calls import Call, Change, Watcher, change_context
from identiscope.capture.watch.kernel import Bias, read_mask, repeat_heads
from identiscope.errors import CaptureError
from identiscope.linalg.devices import wide

_SIGNATURE = inspect.signature(nn.MultiheadAttention.forward)


def watch_multihead(watcher: Watcher, stack: ExitStack) -> None:
    """Follow every `nn.MultiheadAttention`.

    Torch's fused fast path, which calls no module, is not taken where a `TorchFunctionMode` looks on, as one does here.
    """
    for module in watcher.names:
        if not isinstance(module, nn.MultiheadAttention):
            continue

        def returned(module: nn.MultiheadAttention, args: Any, *rest: Any) -> Any:
            if not watcher.sees(module):
                # In another thread the hook may come or go between what torch looks up of it: not even kwargs are sure.
                return rest[-1]
            kwargs, output = rest
            if watcher.rule is not None:
                with watcher.paused():
                    return _ruled(watcher, module, args, kwargs, output)
            with watcher.paused():
                call, projected = _read(watcher, module, args, kwargs, output[0])
                changes = watcher.changed(watcher.count)
                if changes:
                    output = (_as_given(module, _changed(watcher, call, projected, changes), output[0]), *output[1:])
            watcher.began(call)
            return output

        # First of all hooks: what those of others make of the output is followed like any other change of it.
        stack.callback(module.register_forward_hook(returned, with_kwargs=True, prepend=True).remove)


def _read(
    watcher: Watcher, module: nn.MultiheadAttention, args: Any, kwargs: Any, output: Tensor, keep: bool = False
) -> tuple[Call, Tensor]:
    """keep: what leads to queries, keys and values, for derivatives."""
    name = watcher.name(module)
    assert name is not None
    given = _SIGNATURE.bind(module, *args, **kwargs)
    given.apply_defaults()
    if module.bias_k is not None or module.add_zero_attn:
        raise CaptureError(
            f"{name or 'the module'}: nn.MultiheadAttention with add_bias_kv or add_zero_attn adds keys that"
            " are no token; construct it without them, or give the arrays to identiscope.from_arrays."
        )
    inputs = [_batched(module, given.arguments[part]) for part in ("query", "key", "value")]
    if module._qkv_same_embed_dim:
        weights: Any = module.in_proj_weight.chunk(3)
    else:
        weights = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
    biases: Any = (None, None, None) if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    query, key, value = (
        nn.functional.linear(x, weight, bias).unflatten(-1, (module.num_heads, -1)).transpose(1, 2)
        for x, weight, bias in zip(inputs, weights, biases, strict=True)
    )
    if not keep:
        query, key, value = query.detach(), key.detach(), value.detach()
    projected = _batched(module, output)
    call = Call(
        name=name,
        query=query,
        key=key,
        value=value,
        bias=_masks(given.arguments, module.num_heads),
        scale=query.shape[-1] ** -0.5,
        softcap=None,
        sinks=None,
        context=query,
        causal=bool(given.arguments["is_causal"]),
        value_bias=_value_bias(biases[2], value),
        projection=module.out_proj.weight.detach().T.clone(),  # an adapter may take its part out again
        projection_bias=None if module.out_proj.bias is None else module.out_proj.bias.detach(),
        output=projected,
    )
    # The kernel's own output is not to be had here; the block's is, and is what gets compared.
    call.context = (call.weights() @ wide(repeat_heads(value, module.num_heads))).to(value)
    return call, projected


def _ruled(watcher: Watcher, module: nn.MultiheadAttention, args: Any, kwargs: Any, output: Any) -> Any:
    """The module's output by the watcher's rule."""
    call, _ = _read(watcher, module, args, kwargs, output[0], keep=True)
    watcher.follow_rule(call)
    made = module.out_proj(_joined(call.context))
    return (_as_given(module, made, output[0]), *output[1:])


def _changed(watcher: Watcher, call: Call, projected: Tensor, changes: Mapping[int, Change]) -> Tensor:
    """The module's output with changed maps, which is the call's from now on."""
    assert call.projection is not None
    changed = change_context(call, call.context, changes, whole=watcher.whole)
    if not watcher.whole:
        call.output = projected + (_joined(changed - call.context) @ call.projection).to(projected.dtype)
        return call.output
    call.output = _joined(changed) @ call.projection
    if call.projection_bias is not None:
        call.output = call.output + call.projection_bias
    return call.output


def _joined(context: Tensor) -> Tensor:
    """[batch, head, query, channel] as the output projection reads it."""
    return context.transpose(1, 2).flatten(2)


def _value_bias(bias: Tensor | None, value: Tensor) -> Tensor:
    heads, width = value.shape[1], value.shape[3]
    return value.new_zeros(heads, width) if bias is None else bias.detach().reshape(heads, width)


def _batched(module: nn.MultiheadAttention, tensor: Tensor) -> Tensor:
    """[n, d], [n, batch, d] or [batch, n, d] as [batch, n, d]."""
    if tensor.dim() == 2:
        return tensor[None]
    return tensor if module.batch_first else tensor.transpose(0, 1)


def _as_given(module: nn.MultiheadAttention, tensor: Tensor, like: Tensor) -> Tensor:
    if like.dim() == 2:
        return tensor[0]
    return tensor if module.batch_first else tensor.transpose(0, 1)


def _masks(arguments: Any, heads: int) -> Bias:
    """torch's masks say True for a key that must *not* be seen: turn them round, and join the two."""
    mask, padding = arguments["attn_mask"], arguments["key_padding_mask"]
    parts = []
    if mask is not None:
        parts.append(mask if mask.dim() == 2 else mask.unflatten(0, (-1, heads)))
    if padding is not None:
        parts.append(padding.reshape(-1, 1, 1, padding.shape[-1]))
    added: Tensor | None = None
    for part in parts:
        part = part if part.dim() == 4 else part[None, None]
        if part.dtype == torch.bool:
            part = torch.zeros(part.shape, device=part.device).masked_fill(part, -torch.inf)
        added = part if added is None else added + part
    return read_mask(added, None, False)
