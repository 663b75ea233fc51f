"""Run a model once on a batch and take its hidden states, leaving the model as it was found."""

import inspect
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from identiscope.capture import streams
from identiscope.capture.models import Model
from identiscope.errors import IdentiscopeError, InputError

_PLAIN_LAYERS = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer, nn.RNNBase)


@dataclass(frozen=True)
class Forward:
    """What one forward pass returned: logits if the model has any, and the hidden states of each stream."""

    logits: Tensor | None
    hidden_states: Mapping[str, tuple[Tensor, ...]]


_LOCKS: WeakKeyDictionary[nn.Module, threading.RLock] = WeakKeyDictionary()
_LOCKS_LOCK = threading.Lock()


@contextmanager
def left_as_found(module: nn.Module) -> Iterator[None]:
    """Evaluation mode inside; afterwards every mode, hook and flag is as before.

    transformers installs hooks for good when hidden states are first asked for; here they go again. One thread at a
    time: two that restore each other's changes would leave the model in neither's state. A compiled model runs
    uncompiled meanwhile, since what is compiled cannot be watched.
    """
    with _LOCKS_LOCK:
        lock = _LOCKS.setdefault(module, threading.RLock())
    with lock, torch.compiler.set_stance("force_eager"):
        yield from _left_as_found(module)


def _left_as_found(module: nn.Module) -> Iterator[None]:
    modules = list(module.modules())
    modes = [inner.training for inner in modules]
    hooks = [set(inner._forward_hooks) for inner in modules]
    flags = [set(vars(inner)) for inner in modules]
    module.eval()
    try:
        yield
    finally:
        for inner, mode, known, attributes in zip(modules, modes, hooks, flags, strict=True):
            inner.training = mode
            for key in set(inner._forward_hooks) - known:
                del inner._forward_hooks[key]
            for name in set(vars(inner)) - attributes:
                if name.startswith("_output_capturing"):
                    delattr(inner, name)


def forward(model: Model, arguments: Mapping[str, Tensor]) -> Forward:
    """Run the model on the given arguments. Call inside `left_as_found`."""
    if model.is_transformers:
        return _transformers(model.module, arguments)
    return _plain(model.module, arguments)


def try_forward(model: Model, arguments: Mapping[str, Tensor]) -> Forward:
    """`forward`, with what the model itself raises said in terms of the input."""
    try:
        return forward(model, arguments)
    except IdentiscopeError:
        raise
    except (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError, NotImplementedError) as error:
        shapes = {name: tuple(value.shape) for name, value in arguments.items()}
        raise InputError(
            f"{model.name} ({type(model.module).__name__}) cannot run on {shapes}. It said: {str(error)[:300]}"
        ) from error


def _transformers(module: nn.Module, arguments: Mapping[str, Tensor]) -> Forward:
    accepted = inspect.signature(module.forward).parameters
    options: dict[str, Any] = {"output_hidden_states": True, "return_dict": True}
    if "use_cache" in accepted:
        options["use_cache"] = False
    optional = {"position_ids", "token_type_ids"}
    given = {name: value for name, value in arguments.items() if name in accepted or name not in optional}
    outputs = module(**given, **options)
    logits = getattr(outputs, "logits", None)
    return Forward(logits if isinstance(logits, Tensor) else None, streams.hidden_states(outputs))


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
