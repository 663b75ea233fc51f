"""Tools for trying what modules and hooks do: how tensors lie, what is returned first, a module in float64."""

import copy
from collections.abc import Callable
from inspect import isfunction
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


def hooks_of_others(module: nn.Module, *, before: bool = False) -> list[tuple[int, Any]]:
    """The forward hooks of a module that are not ours, by their key; before: those that run before its forward."""
    ours = __name__.rpartition(".")[0]
    return [
        (key, hook)
        for key, hook in (module._forward_pre_hooks if before else module._forward_hooks).items()
        if not str(getattr(hook, "__module__", "")).startswith(ours)
    ]


def may_be_changed(module: nn.Module, own: frozenset[str]) -> bool:
    """Whether others than the packages `own` may have a hand in what a module returns: by hooks, by its class or its
    forward, or by what stands in a container of torch's, which says nothing of whose architecture it is."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or "forward" in vars(module)
        or isinstance(module, nn.Sequential)
        or type(module).__module__.partition(".")[0] not in own
        or torch.nn.modules.module._global_forward_hooks
        or torch.nn.modules.module._global_forward_pre_hooks
    )


def runs_own_forward(module: nn.Module, own: frozenset[str]) -> bool:
    """Whether what runs is the forward that the packages `own` gave the module's class, and nothing around it.

    Replaced, for one module or for its class, it may do anything with what the modules inside return; so may hooks on
    all modules, which torch runs before those of one. Accelerate's, which moves weights and numbers, changes neither.
    """
    package = type(module).forward.__globals__.get("__name__", "") if isfunction(type(module).forward) else ""
    forward = vars(module).get("forward")
    if _is_accelerate_s(module):
        forward = None if getattr(module._old_forward, "__func__", None) is type(module).forward else forward
    return forward is None and package.partition(".")[0] in own and not torch.nn.modules.module._global_forward_hooks


def _is_accelerate_s(module: nn.Module) -> bool:
    """Whether a module's forward was replaced by accelerate, for hooks that are all accelerate's own."""
    hook = vars(module).get("_hf_hook")
    forward = getattr(vars(module).get("forward"), "func", None)
    return getattr(forward, "__module__", "") == "accelerate.hooks" and all(
        type(one).__module__ == "accelerate.hooks" for one in getattr(hook, "hooks", [hook])
    )


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


def version(tensor: Tensor) -> int | None:
    """How often a tensor was written to; None where torch does not count."""
    return None if tensor.is_inference() else tensor._version
