"""Families that compute their attention by hand: seen at their softmax and at the products around it.

One line of `FAMILIES` for each. A family needs a line because the factor on query·key cannot be seen from
outside; everything else can, and what was seen is verified against the block's output like any other.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from identiscope.capture.calls import Call, Watcher
from identiscope.capture.functions import arguments, matmul
from identiscope.capture.kernel import MASKED_BELOW, Bias, same_numbers


@dataclass(frozen=True)
class SoftmaxFamily:
    """How a hand-written attention module makes its logits: scale·query·key, plus a position bias or not."""

    scale: Callable[[Any], float]
    position_bias: bool
    causal: bool


# Key: the family's folder in transformers, and the class whose forward holds the softmax.
FAMILIES: Mapping[str, SoftmaxFamily] = {
    "bloom.BloomAttention": SoftmaxFamily(lambda module: float(module.inv_norm_factor), True, True),
    "codegen.CodeGenAttention": SoftmaxFamily(lambda module: 1 / float(module.scale_attn), False, True),
    # The factor is already in the key or the query when they are multiplied.
    "deberta.DisentangledSelfAttention": SoftmaxFamily(lambda module: 1.0, True, False),
    "deberta_v2.DisentangledSelfAttention": SoftmaxFamily(lambda module: 1.0, True, False),
    "gpt_neo.GPTNeoSelfAttention": SoftmaxFamily(lambda module: 1.0, False, True),
    "gptj.GPTJAttention": SoftmaxFamily(lambda module: 1 / float(module.scale_attn), False, True),
    "mpnet.MPNetSelfAttention": SoftmaxFamily(lambda module: module.attention_head_size**-0.5, True, False),
    "mpt.MptAttention": SoftmaxFamily(lambda module: float(module.softmax_scale), True, True),
    "openai.Attention": SoftmaxFamily(
        lambda module: (module.split_size // module.n_head) ** -0.5 if module.scale else 1.0, False, True
    ),
    "xlm.MultiHeadAttention": SoftmaxFamily(lambda module: 1.0, False, False),
    "xlnet.XLNetRelativeAttention": SoftmaxFamily(lambda module: float(module.scale), True, False),
}

# The einsum equations these families use, as a product of matrices [batch, head, ...].
_QUERY_KEY = "ibnd,jbnd->bnij"
_WEIGHTS_VALUE = "bnij,jbnd->ibnd"
_PROJECTION = "ibnd,hnd->ibh"


@dataclass
class _Frame:
    """One running attention module: what it has multiplied so far."""

    module: nn.Module
    name: str
    family: SoftmaxFamily
    query: Tensor | None = None
    key: Tensor | None = None
    logits: Tensor | None = None
    weights: Tensor | None = None


def family_key(module: nn.Module) -> str:
    """The key of a module in `FAMILIES`."""
    return f"{type(module).__module__.rpartition('.modeling_')[2]}.{type(module).__name__}"


def watch_softmax(watcher: Watcher, stack: ExitStack) -> bool:
    """Follow the modules that have a line in `FAMILIES`; whether there is any."""
    found = False
    for module, name in watcher.names.items():
        family = FAMILIES.get(family_key(module))
        if family is None:
            continue
        found = True

        def enter(module: nn.Module, args: Any, name: str = name, family: SoftmaxFamily = family) -> None:
            watcher.frames.append(_Frame(module, name, family))

        def leave(module: nn.Module, args: Any, output: Any) -> None:
            if watcher.frames and watcher.frames[-1].module is module:
                watcher.frames.pop()

        stack.callback(module.register_forward_pre_hook(enter).remove)
        stack.callback(module.register_forward_hook(leave, always_call=True).remove)
    return found


def _softmax(watcher: Watcher, func: Any, args: Any, kwargs: Any) -> Any:
    weights = func(*args, **kwargs)
    frame = watcher.frames[-1] if watcher.frames else None
    if frame is None or frame.query is None or frame.logits is not None or weights.dim() != 4:
        return weights
    changes = watcher.changed(watcher.count)
    if changes:
        weights = weights.clone()
        for head, change in changes.items():
            before = weights[:, head].double()
            weights[:, head] += (change(before).double() - before).to(weights.dtype)
    frame.logits, frame.weights = args[0], weights
    return weights


def _product(watcher: Watcher, func: Any, args: Any, kwargs: Any) -> Any:
    returned = matmul(watcher, func, args, kwargs)
    if watcher.frames:
        if func in (torch.baddbmm, Tensor.baddbmm):
            _, left, right = arguments(args, kwargs, ("input", "batch1", "batch2"))
        else:
            left, right = args[:2]
        _multiplied(watcher, left, right, returned)
    return returned


def _einsum(watcher: Watcher, func: Any, args: Any, kwargs: Any) -> Any:
    returned = func(*args, **kwargs)
    if watcher.frames:
        equation, *operands = args
        if equation == _QUERY_KEY:
            query, key = operands
            _multiplied(watcher, query.permute(1, 2, 0, 3), key.permute(1, 2, 3, 0), returned)
        elif equation == _WEIGHTS_VALUE:
            weights, value = operands
            _multiplied(watcher, weights, value.permute(1, 2, 0, 3), returned.permute(1, 2, 0, 3))
        elif equation == _PROJECTION:
            context, weight = operands
            rows = context.transpose(0, 1).flatten(2)
            projection = weight.detach().permute(1, 2, 0).flatten(0, 1)
            watcher.met_linear(rows, projection, None, returned.transpose(0, 1))
    return returned


def _multiplied(watcher: Watcher, left: Tensor, right: Tensor, returned: Tensor) -> None:
    frame = watcher.frames[-1]
    if frame.logits is None or frame.weights is None:
        # The first product of the module is query·key; the relative-position terms come after it.
        if frame.query is None and left.dim() >= 3:
            frame.query, frame.key = left, right.transpose(-1, -2)
        return
    weights, logits = frame.weights, frame.logits
    if left.numel() != weights.numel() or not same_numbers(left.reshape(weights.shape), weights.to(left.dtype)):
        return
    batch, heads, queries, keys = weights.shape
    assert frame.query is not None and frame.key is not None
    query = frame.query.reshape(batch, heads, queries, -1)
    key = frame.key.reshape(batch, heads, keys, -1)
    scale = frame.family.scale(frame.module)
    allowed = logits > MASKED_BELOW
    position = None
    if frame.family.position_bias:
        content = query.double() @ key.double().transpose(-1, -2) * scale
        position = torch.where(allowed, logits - content, 0.0).to(logits.dtype)
    call = Call(
        name=frame.name,
        query=query,
        key=key,
        value=right.reshape(batch, heads, keys, -1),
        bias=Bias(watcher.shared(allowed), False, position),
        scale=scale,
        softcap=None,
        sinks=None,
        context=returned.reshape(batch, heads, queries, -1),
        causal=frame.family.causal,
    )
    # A module may attend twice (XLNet's two streams): start anew.
    frame.query = frame.key = frame.logits = frame.weights = None
    watcher.began(call)


SOFTMAX_HANDLERS: Mapping[Any, Any] = {
    nn.functional.softmax: _softmax,
    torch.softmax: _softmax,
    Tensor.softmax: _softmax,
    torch.matmul: _product,
    Tensor.matmul: _product,
    Tensor.__matmul__: _product,
    torch.bmm: _product,
    Tensor.bmm: _product,
    torch.baddbmm: _product,
    Tensor.baddbmm: _product,
    torch.functional.einsum: _einsum,
    torch.einsum: _einsum,
}
