"""Run a model once on a batch and take its hidden states."""

import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from identiscope.capture import streams
from identiscope.capture.models import Model
from identiscope.errors import IdentiscopeError, InputError
from identiscope.linalg.free_memory import free_memory, in_words, is_out_of_memory

_OF_TEXTS = (streams.MAIN, "encoder", "decoder")
_PLAIN_LAYERS = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer, nn.RNNBase)


@dataclass(frozen=True)
class Forward:
    """What one forward pass returned: logits if the model has any, and the hidden states of each stream."""

    logits: Tensor | None
    hidden_states: Mapping[str, tuple[Tensor, ...]]


def forward(model: Model, arguments: Mapping[str, Tensor]) -> Forward:
    """Run the model on the given arguments. Give a twin: hooks stay behind when hidden states are first asked for.

    Arguments of a trace are where the model was then; it may have been moved since.
    """
    arguments = {name: value.to(model.device) for name, value in arguments.items()}
    if not model.is_transformers:
        return _plain(model.module, arguments)
    with _WideConstants() if model.dtype == torch.float64 else nullcontext():
        return _transformers(model, arguments)


def try_forward(model: Model, arguments: Mapping[str, Tensor]) -> Forward:
    """`forward`, with what the model itself raises said in terms of the input."""
    try:
        return forward(model, arguments)
    except IdentiscopeError:
        raise
    except (
        RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError, NotImplementedError, MemoryError
    ) as error:  # fmt: skip
        shapes = {name: tuple(value.shape) for name, value in arguments.items()}
        if is_out_of_memory(error):
            free = free_memory(model.device)
            there = "" if free is None else f", where {in_words(free)} are free"
            raise InputError(
                f"a pass of {model.name} on {shapes} needs more memory than there is on {model.device}{there}. It said:"
                f" {' '.join(str(error).split())[:200]} Give shorter texts, fewer at a time (batch_size), or load the"
                " model in half precision (dtype)."
            ) from error
        raise InputError(
            f"{model.name} ({type(model.module).__name__}) cannot run on {shapes}. It said: {str(error)[:300]}"
        ) from error


class _WideConstants(TorchFunctionMode):
    """Some families fill float32 tensors with the least float64 number, which torch refuses: fill in float32's least.

    Both are masks, and weigh nothing.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return func(*args, **(kwargs or {}))
        except RuntimeError as error:
            if func not in (torch.full, Tensor.fill_) or "without overflow" not in str(error) or len(args) < 2:
                raise
            least = torch.finfo(torch.float32).min
            return func(args[0], max(args[1], least), *args[2:], **(kwargs or {}))


@lru_cache(maxsize=64)
def _accepted(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a class's forward, by name: looked at once."""
    return inspect.signature(function).parameters


def _transformers(model: Model, arguments: Mapping[str, Tensor]) -> Forward:
    forward = model.inner.forward
    # One that was put in its place, as for sharded models, may hold the model: it is not kept.
    own = getattr(forward, "__func__", None)
    accepted = inspect.signature(forward).parameters if own is None else _accepted(own)
    options: dict[str, Any] = {"output_hidden_states": True, "return_dict": True}
    if "use_cache" in accepted:
        options["use_cache"] = False
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values()):
        options = {name: value for name, value in options.items() if name in accepted}
    optional = {"position_ids", "token_type_ids"}
    given = {name: value for name, value in arguments.items() if name in accepted or name not in optional}
    outputs = model.module(**given, **options)
    logits = getattr(outputs, "logits", None)
    states = streams.hidden_states(outputs)
    if "input_ids" in given:
        # Several copies of each token's state, in an axis before the texts, are none that could be told apart here.
        texts = len(given["input_ids"])
        states = {
            name: layers
            for name, layers in states.items()
            if name not in _OF_TEXTS or all(layer.dim() == 3 and len(layer) == texts for layer in layers)
        }
    return Forward(logits if isinstance(logits, Tensor) else None, states)


def _plain(module: nn.Module, arguments: Mapping[str, Tensor]) -> Forward:
    """A plain module: hidden states are what its encoder, decoder or recurrent layers read and return."""
    states: dict[str, list[Tensor]] = {}
    ordered = (inner for inner in module.modules() if isinstance(inner, (nn.MultiheadAttention, nn.RNNBase)))
    batch_first = bool(getattr(next(ordered, None), "batch_first", True))
    # With decoder layers there are two sequences; without, one. A recurrent layer decodes if its name says so.
    decoders = {
        inner
        for name, inner in module.named_modules()
        if isinstance(inner, nn.TransformerDecoderLayer) or (isinstance(inner, nn.RNNBase) and "decoder" in name)
    }

    def returned(layer: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        given = args[0] if args else next(iter(kwargs.values()))
        if isinstance(layer, nn.RNNBase):
            output = output[0]  # what follows is the state after the last position
        if isinstance(given, Tensor) and isinstance(output, Tensor):  # and not a packed sequence
            stream = ("decoder" if layer in decoders else "encoder") if decoders else streams.MAIN
            states.setdefault(stream, [given]).append(output)

    handles = [
        inner.register_forward_hook(returned, with_kwargs=True)
        for inner in module.modules()
        if isinstance(inner, _PLAIN_LAYERS)
    ]
    try:
        if set(arguments) == {"input"}:
            given = arguments["input"] if batch_first else arguments["input"].transpose(0, 1)
            copies = 3 if isinstance(module, nn.MultiheadAttention) else 1
            output = module(*[given] * copies)
            if isinstance(module, nn.MultiheadAttention):
                states = {streams.MAIN: [given, output[0]]}
        else:
            output = module(**arguments)
    finally:
        for handle in handles:
            handle.remove()
    last = output if isinstance(output, Tensor) else None
    is_stack = isinstance(module, (nn.TransformerEncoder, nn.TransformerDecoder, nn.Transformer))
    if states and is_stack and last is not None:
        # Behind the final norm, as transformers counts it.
        list(states.values())[-1][-1] = last
    batched = {
        stream: tuple(state if batch_first else state.transpose(0, 1) for state in layers)
        for stream, layers in states.items()
    }
    is_plain = is_stack or isinstance(module, (nn.MultiheadAttention, *_PLAIN_LAYERS))
    return Forward(None if is_plain else last, batched)
