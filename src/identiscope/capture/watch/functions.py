"""See the torch functions a model calls: the linear layers, to find the output projection, and the attention
that a model computes by calling PyTorch's `scaled_dot_product_attention` itself.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from identiscope.capture.watch.calls import Call, Watcher, change_context


class Functions(TorchFunctionMode):
    """Every torch function the model calls passes here. (A base class of torch's, needed to be called.)"""

    def __init__(self, watcher: Watcher, handlers: Mapping[Any, Any]) -> None:
        super().__init__()
        self.watcher, self.handlers = watcher, handlers

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        handler = self.handlers.get(func)
        if handler is None or not self.watcher.looking:
            return func(*args, **kwargs)
        return handler(self.watcher, func, args, kwargs)


def _linear(watcher: Watcher, func: Any, args: Any, kwargs: Any) -> Any:
    returned = func(*args, **kwargs)
    given, weight, bias = arguments(args, kwargs, ("input", "weight", "bias"))
    if weight.dim() == 2:
        watcher.met_linear(given, weight.detach().T, None if bias is None else bias.detach(), returned)
    return returned


def _addmm(watcher: Watcher, func: Any, args: Any, kwargs: Any) -> Any:
    returned = func(*args, **kwargs)
    bias, given, weight = arguments(args, kwargs, ("input", "mat1", "mat2"))
    watcher.met_linear(given, weight.detach(), bias.detach(), returned)
    return returned


def matmul(watcher: Watcher, func: Any, args: Any, kwargs: Any) -> Any:
    """A product with a matrix is a linear layer without a bias."""
    returned = func(*args, **kwargs)
    if len(args) == 2 and args[1].dim() == 2:
        watcher.met_linear(args[0], args[1].detach(), None, returned)
    return returned


def _conv1d(watcher: Watcher, func: Any, args: Any, kwargs: Any) -> Any:
    """A convolution over one position is a linear layer, channels first."""
    returned = func(*args, **kwargs)
    given, weight, bias, *_ = arguments(args, kwargs, ("input", "weight", "bias"))
    if given.dim() == 3 and weight.shape[1:] == (given.shape[1], 1) and returned.shape[-1] == given.shape[-1]:
        detached = None if bias is None else bias.detach()
        watcher.met_linear(given.transpose(1, 2), weight.detach()[..., 0].T, detached, returned.transpose(1, 2))
    return returned


def _scaled_dot_product_attention(watcher: Watcher, func: Any, args: Any, kwargs: Any) -> Any:
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale")
    query, key, value, mask, _, causal, scale = arguments(args, kwargs, names)
    runs = watcher.runs_kernels or watcher.inside_kernel or query.dim() not in (3, 4)
    returned = func(*args, **kwargs) if runs else query
    if watcher.inside_kernel:
        return returned
    frame = watcher.attending or (watcher.frames[-1] if watcher.frames else None)
    if frame is not None:
        frame.softmaxes += 1
    if query.dim() not in (3, 4):
        return returned
    if query.dim() == 3:
        # One head without an axis of its own.
        query, key, value, context = (part[:, None] for part in (query, key, value, returned))
        mask = mask if mask is None or mask.dim() == 2 else mask[:, None]
    else:
        context = returned
    if mask is not None and mask.dim() == 2:
        mask = mask[None, None]
    call = Call(
        name=(frame.name if frame is not None else "") or f"scaled_dot_product_attention.{watcher.count}",
        query=query,
        key=key,
        value=value,
        bias=watcher.read_mask(mask, None, bool(causal)),
        scale=query.shape[-1] ** -0.5 if scale is None else float(scale),
        softcap=None,
        sinks=None,
        context=context,
        causal=bool(causal) or (None if frame is None else getattr(frame.module, "is_causal", None)),
    )
    if watcher.rule is not None:
        watcher.follow_rule(call)
        return call.context if args[0].dim() == 4 else call.context[:, 0]
    changes = watcher.changed(watcher.count)
    if changes:
        call.context = change_context(call, context, changes, whole=watcher.whole)
        returned = call.context.reshape(returned.shape)
    watcher.began(call)
    return returned


def _multi_head_attention_forward(watcher: Watcher, func: Any, args: Any, kwargs: Any) -> Any:
    """All of attention in one function: `nn.MultiheadAttention` is read by its hook, others are noticed."""
    if watcher.attending is not None:
        watcher.attending.softmaxes += 1
    return func(*args, **kwargs)


def arguments(args: Any, kwargs: Any, names: tuple[str, ...]) -> list[Any]:
    """The arguments of a call in the order of `names`, however they were passed."""
    return [*args, *(kwargs.get(name) for name in names[len(args) :])][: len(names)]


HANDLERS: Mapping[Any, Any] = {
    nn.functional.linear: _linear,
    nn.functional.conv1d: _conv1d,
    torch.addmm: _addmm,
    torch.matmul: matmul,
    Tensor.matmul: matmul,
    Tensor.__matmul__: matmul,
    nn.functional.multi_head_attention_forward: _multi_head_attention_forward,
    nn.functional.scaled_dot_product_attention: _scaled_dot_product_attention,
}
