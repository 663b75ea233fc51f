"""Layer-wise relevance propagation as a gradient: the rules of attention-aware LRP put in place while a model runs.

Achtibat et al. 2024 (AttnLRP): with a few changed derivatives, input times gradient is the relevance of the input.
Activations pass relevance as it is (f(x)/x instead of f'(x)), products of two states share it out by halves, norms are
linear at their input (what they divide by is held), and softmax has its own derivative.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from identiscope.capture.watch.calls import Call, Rule
from identiscope.capture.watch.functions import arguments
from identiscope.capture.watch.kernel import attention_weights, repeat_heads
from identiscope.linalg.devices import wide

# f(x)/x near 0 is f'(0), which is taken there: the quotient of two small numbers is rounding.
_NEAR = 1e-6


@contextmanager
def relevance_rules(module: nn.Module) -> Iterator[Rule]:
    """While the block lasts, the module (a twin) runs with these rules; attention by the rule that is given."""
    changed: list[nn.Module] = []
    for inner in module.modules():
        if _is_activation(inner) and "forward" not in vars(inner):
            inner.forward = _identity_rule(inner.forward)
            changed.append(inner)
    try:
        with _Rules():
            yield Rule(context=_attend)
    finally:
        for inner in changed:
            del inner.forward


def _is_activation(module: nn.Module) -> bool:
    home = type(module).__module__
    if home == "torch.nn.modules.activation":
        return not isinstance(module, (nn.MultiheadAttention, nn.Softmax, nn.LogSoftmax))
    return home.startswith("transformers.activations") or type(module).__name__ == "BloomGelu"


class _Ruled(torch.autograd.Function):
    """A value whose derivative by x, element by element, is a ratio that is given."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Tensor, ratio: Tensor | float) -> Tensor:
        ctx.ratio = ratio
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None, None]:
        return slopes[0] * ctx.ratio, None, None


def _identity_rule(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The same function, element by element, with f(x)/x for a derivative."""

    def ruled(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        with torch._C.DisableTorchFunction():
            at = x.detach()
            with torch.no_grad():
                made = function(at, *args, **kwargs)
                ratio = made / at
            near = at.abs() < _NEAR
            if bool(near.any()):
                with torch.enable_grad():
                    small = torch.where(near, at, 0.0).requires_grad_()
                    (slope,) = torch.autograd.grad(function(small, *args, **kwargs).sum(), small)
                ratio = torch.where(near, slope, ratio)
            return _value_with_slope(x, made, ratio)

    return ruled


def _value_with_slope(x: Tensor, value: Tensor, ratio: Tensor | float) -> Tensor:
    made: Tensor = _Ruled.apply(x, value, ratio)  # type: ignore[no-untyped-call]
    return made


def _half(x: Tensor) -> Tensor:
    """x, with half its derivative."""
    return _value_with_slope(x, x.detach(), 0.5)


def _attend(call: Call) -> Tensor:
    """Attention with both products shared out by halves; a cap of its logits is an activation like others."""
    heads = call.query.shape[1]
    plain = call.softcap is None and call.sinks is None and call.bias.position is None and call.bias.allowed is None
    if plain and call.value.dtype in (torch.float32, torch.float64):
        key, value = (repeat_heads(one, heads) for one in (call.key, call.value))
        context = functional.scaled_dot_product_attention(
            _half(call.query), _half(key), value, is_causal=call.bias.causal, scale=call.scale
        )
    else:
        weights = attention_weights(
            _half(wide(call.query)),
            _half(repeat_heads(wide(call.key), heads)),
            call.bias,
            scale=call.scale,
            softcap=call.softcap,
            sinks=call.sinks,
            tanh=_identity_rule(torch.tanh),
        )
        context = (weights @ repeat_heads(wide(call.value), heads)).to(call.value)
    # Half of what comes back to a product is half for each of its two factors.
    return _half(context)


class _Rules(TorchFunctionMode):
    """What modules compute by functions of torch. (A base class of torch's, needed to be called.)"""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        handler = _HANDLERS.get(func)
        return func(*args, **kwargs) if handler is None else handler(func, args, kwargs)


def _held(func: Any, args: Any, kwargs: Any) -> Any:
    """1/√ is what a norm divides by."""
    return func(*args, **kwargs).detach()


def _layer_norm(func: Any, args: Any, kwargs: Any) -> Any:
    x, shape, weight, bias, eps = arguments(args, kwargs, ("input", "normalized_shape", "weight", "bias", "eps"))
    axes = tuple(range(-len(shape), 0))
    centred = x - x.mean(axes, keepdim=True)
    scale = (centred.detach().square().mean(axes, keepdim=True) + (1e-5 if eps is None else eps)).rsqrt()
    made = centred * scale
    made = made if weight is None else made * weight
    return made if bias is None else made + bias


def _rms_norm(func: Any, args: Any, kwargs: Any) -> Any:
    x, shape, weight, eps = arguments(args, kwargs, ("input", "normalized_shape", "weight", "eps"))
    axes = tuple(range(-len(shape), 0))
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    made = x * (x.detach().square().mean(axes, keepdim=True) + eps).rsqrt()
    return made if weight is None else made * weight


def _activation(func: Any, args: Any, kwargs: Any) -> Any:
    return _identity_rule(func)(*args, **kwargs)


def _product(func: Any, args: Any, kwargs: Any) -> Any:
    """A product of two states is shared out by halves; with a weight or a number it is linear."""
    first, second = args[:2]
    states = [isinstance(one, Tensor) and one.requires_grad and not one.is_leaf for one in (first, second)]
    if all(states) and first.shape == second.shape:
        return func(_half(first), _half(second), *args[2:], **kwargs)
    return func(*args, **kwargs)


_HANDLERS: Mapping[Any, Any] = {
    torch.rsqrt: _held,
    Tensor.rsqrt: _held,
    functional.layer_norm: _layer_norm,
    functional.rms_norm: _rms_norm,
    functional.gelu: _activation,
    functional.silu: _activation,
    functional.relu: _activation,
    torch.relu: _activation,
    torch.tanh: _activation,
    Tensor.tanh: _activation,
    functional.tanh: _activation,
    torch.sigmoid: _activation,
    torch.mul: _product,
    Tensor.mul: _product,
    Tensor.__mul__: _product,
}
