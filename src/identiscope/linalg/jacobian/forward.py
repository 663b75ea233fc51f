"""Push tangents through any function with forward-mode derivatives, all layers in one pass."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from identiscope.errors import InputError
from identiscope.linalg.jacobian.forward_mode import Function, push_each
from identiscope.linalg.jacobian.plan import Chunks, split_columns

# How many of the largest intermediate tensors are alive at once in a pushed forward pass, at most.
LIVE_TENSORS = 6


@dataclass(frozen=True, eq=False)
class ForwardJacobian:
    """The Jacobians of a function from [token, model] to states, each [token, model], at one input.

    finite: whether the states are.
    """

    function: Function
    inputs: Tensor
    shapes: list[tuple[int, int]]
    columns: int
    finite: bool

    @property
    def tokens(self) -> int:
        """How many input tokens."""
        return len(self.inputs)

    @property
    def width(self) -> int:
        """How many coordinates an input token has."""
        return self.inputs.shape[1]

    def chunks(self, directions: int) -> Chunks:
        """How many tokens and directions to push at a time."""
        return split_columns(self.columns, self.tokens, directions, keep_apart=False)

    def push(self, tokens: range, directions: Tensor, layers: Sequence[int]) -> Iterator[tuple[int, int, Tensor]]:
        """(layer, 0, tangents [token, model, own token, direction]) for each of `layers`, in order."""
        count = directions.shape[1]
        tangents = self.inputs.new_zeros(len(tokens), count, *self.inputs.shape)
        for place, token in enumerate(tokens):
            tangents[place, :, token] = directions.T
        tangents_of_layers = push_each(self.function, self.inputs, tangents.flatten(0, 1), layers)
        for layer, pushed in zip(layers, tangents_of_layers, strict=True):
            yield layer, 0, pushed.permute(1, 2, 0).unflatten(2, (len(tokens), count))


def forward_jacobian(function: Function, inputs: Tensor, *, memory: int) -> ForwardJacobian:
    """A function at `inputs` [token, model], with as many columns at a time as `memory` bytes hold."""
    largest = _LargestOutput()
    with torch.no_grad(), largest:
        states = function(inputs)
    shapes = []
    for state in states:
        if state.dim() != 2:
            raise InputError(f"a state of the replay has shape {tuple(state.shape)}, expected [token, model].")
        shapes.append((state.shape[0], state.shape[1]))
    column = sum(state.numel() * state.element_size() for state in states) * 2 + LIVE_TENSORS * largest.size
    columns = memory // max(column, 1)
    if columns < 1:
        raise InputError(
            f"one direction of {len(inputs)} tokens needs about {column / 2**20:.0f} MiB, and {memory / 2**20:.0f} MiB"
            " may be used; allow more memory, or give a shorter text."
        )
    # Asked of all at once: on another device each answer would be waited for.
    finite = bool(torch.stack([torch.isfinite(state).all() for state in states]).all())
    return ForwardJacobian(function, inputs, shapes, min(columns, 512), finite)


class _LargestOutput(TorchDispatchMode):
    """Notes the largest tensor that any operation makes; parameters are not made. (A base class of PyTorch's.)"""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.size = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, (tuple, list)) else (made,):
            if isinstance(tensor, Tensor) and not tensor._is_view():
                self.size = max(self.size, tensor.numel() * tensor.element_size())
        return made
