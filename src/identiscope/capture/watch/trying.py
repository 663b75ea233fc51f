"""Tools for trying what modules and hooks do: how tensors lie, what is returned first, a module in float64."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from identiscope.capture.twin import original


class Layout:
    """[batch, query, …] or [batch·query, …] as [batch, query, channels]."""

    def __init__(self, batch: int, queries: int) -> None:
        self.batch, self.queries = batch, queries

    def __call__(self, tensor: Tensor) -> Tensor:
        """The same numbers, [batch, query, channels]."""
        return tensor.reshape(self.batch, self.queries, -1)


class Swapped(Layout):
    """[query, batch, …] as [batch, query, channels]."""

    def __call__(self, tensor: Tensor) -> Tensor:
        """The same numbers, [batch, query, channels]."""
        return tensor.reshape(self.queries, self.batch, -1).transpose(0, 1)


class ChannelsFirst(Layout):
    """[batch, channel, query] as [batch, query, channel]."""

    def __call__(self, tensor: Tensor) -> Tensor:
        """The same numbers, [batch, query, channels]."""
        return tensor.reshape(self.batch, -1, self.queries).transpose(1, 2)


def first_tensor(output: Any) -> Tensor | None:
    """The tensor that a module returned, or the first of several."""
    if isinstance(output, (tuple, list)):
        output = output[0] if output else None
    elif isinstance(output, dict):
        output = next(iter(output.values()), None)
    return output if isinstance(output, Tensor) else None


def with_first_tensor(output: Any, tensor: Tensor) -> Any:
    """The same output with another tensor in the first's place."""
    if isinstance(output, Tensor):
        return tensor
    if isinstance(output, dict):
        made = copy.copy(output)
        made[next(iter(output))] = tensor
        return made
    return type(output)((tensor, *output[1:]))


def hooks_of_others(module: nn.Module) -> list[tuple[int, Any]]:
    """The forward hooks of a module that are not ours, by their key."""
    ours = __name__.rpartition(".")[0]
    return [
        (key, hook)
        for key, hook in module._forward_hooks.items()
        if not str(getattr(hook, "__module__", "")).startswith(ours)
    ]


def in_float64(module: nn.Module, run: Callable[[nn.Module, Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """`run` on a copy of the module in float64, so that half precision does not round what is tried.

    Hooks are the same in the copy, and see it. What cannot be copied (quantised weights) runs as it is.
    """
    shared = [
        one
        for inner in module.modules()
        for one in (original(inner), *inner._forward_hooks.values(), *inner._forward_pre_hooks.values())
        if one is not inner
    ]

    def wide(rows: Tensor) -> Tensor:
        try:
            return run(copy.deepcopy(module, {id(one): one for one in shared}).double(), rows)
        except Exception:
            own = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
            if own not in (torch.float32, torch.float64):
                raise
            return run(module, rows.to(own))

    return wide
