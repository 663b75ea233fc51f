"""Run a model once on a batch and take its hidden states, leaving the model as it was found."""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from identiscope.capture import streams
from identiscope.capture.models import Model

_PLAIN_LAYERS = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)


@dataclass(frozen=True)
class Forward:
    """What one forward pass returned: logits if the model has any, and the hidden states of each stream."""

    logits: Tensor | None
    hidden_states: Mapping[str, tuple[Tensor, ...]]


@contextmanager
def left_as_found(module: nn.Module) -> Iterator[None]:
    """Evaluation mode inside; afterwards every mode, hook and flag is as before.

    transformers installs hooks for good when hidden states are first asked for; here they go again.
    """
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
    """A plain module: hidden states are what its encoder or decoder layers read and return."""
    states: list[Tensor] = []
    batch_first = next(
        (inner.batch_first for inner in module.modules() if isinstance(inner, nn.MultiheadAttention)), True
    )

    def returned(layer: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if not states:
            states.append(args[0] if args else next(iter(kwargs.values())))
        states.append(output)

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
                states = [given, output[0]]
        else:
            output = module(**arguments)
    finally:
        for handle in handles:
            handle.remove()
    batched = tuple(state if batch_first else state.transpose(0, 1) for state in states)
    last = output if isinstance(output, Tensor) else None
    if batched and last is not None and isinstance(module, nn.TransformerEncoder) and module.norm is not None:
        batched = (*batched[:-1], last if batch_first else last.transpose(0, 1))
    return Forward(
        None if isinstance(module, (nn.TransformerEncoder, nn.MultiheadAttention, *_PLAIN_LAYERS)) else last,
        {streams.MAIN: batched} if batched else {},
    )
