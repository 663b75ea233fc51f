"""A model's twin: modules of its own with the same weights, for what is watched, replaced or run in evaluation mode.

Hooks, modes and replaced functions belong to a module, and so to every thread that runs it. The user's module may be
running in another thread, so nothing here is ever done to it: each capture and each replay makes a twin, works on that
and drops it. Making one copies a few dictionaries for each module, and no tensor.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MethodType
from typing import Any

import torch
from torch import nn

from identiscope.capture.hooks import refers_to_any, told_of
from identiscope.capture.models import Model
from identiscope.errors import ModelError

# Every module keeps its parameters, hooks and parts in these; each twin has its own, but for hooks of saving and
# loading, which a pass has nothing to do with.
_REGISTRIES = {
    name for name, value in vars(nn.Module()).items() if isinstance(value, (dict, set)) and "state_dict" not in name
}
_ORIGINAL = "_identiscope_original"
# Hooks that run in a pass forward, of one module and of all.
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
# What holds no module, as most attributes do not: a twin is made for every pass, of every module.
_PLAIN = frozenset({bool, int, float, str, type(None), torch.dtype, torch.device})


@dataclass(frozen=True, eq=False, repr=False)
class Twin(Model):
    """A model that shares weights, configuration and tokenizer with another; copies: from its modules to these."""

    copies: Mapping[nn.Module, nn.Module]


def twin(model: Model) -> Twin:
    """The model in evaluation mode with modules of its own: whatever is done to them, nobody else sees.

    Hooks that the user has registered are there too. One that refers to modules of the model, and so may ask which of
    them it was called for, is told of the user's own; all others are given the copy that runs. What torch.compile has
    made of a module is left out, since what is compiled cannot be watched. Parts that are reached by a closure of the
    user's, and not as a part of a module, stay the user's own.
    """
    copies = {part: _shell(part) for part in model.module.modules()}
    if any(part.training for part, shell in copies.items() if shell is part):
        raise ModelError(
            f"{model.name} holds TorchScript in training mode, which cannot be copied to run it in evaluation mode;"
            " call .eval() on the model first."
        )
    owned = {id(part): part for part in copies}
    _check_global_hooks(model, owned)
    for part, shell in copies.items():
        if shell is not part:
            vars(shell).update(_state(part, copies))
            _tell_hooks(shell, part, owned)
    return Twin(copies[model.module], model.tokenizer, model.name, copies, analysis_device=model.analysis_device)


def original(module: nn.Module) -> nn.Module:
    """The user's module that this one is a twin of; itself, if it is none."""
    own = vars(module).get(_ORIGINAL, module)
    assert isinstance(own, nn.Module)
    return own


def _tell_hooks(shell: nn.Module, part: nn.Module, owned: Mapping[int, nn.Module]) -> None:
    """Hooks that ask which of the user's modules they were called for are told of the user's."""
    for name in _HOOKS:
        hooks = vars(shell)[name]
        for key, hook in hooks.items():
            if refers_to_any(hook, owned):
                hooks[key] = told_of(hook, part)


def _check_global_hooks(model: Model, owned: Mapping[int, nn.Module]) -> None:
    """Refuse hooks on all modules of torch that ask for one of the model's: they would never meet it."""
    for name in _HOOKS:
        for hook in list(getattr(torch.nn.modules.module, name.replace("_", "_global_", 1)).values()):
            if refers_to_any(hook, owned):
                raise ModelError(
                    f"a hook on all modules of torch ({getattr(hook, '__qualname__', type(hook).__name__)}) refers to"
                    f" modules of {model.name}; what runs here are copies of these, which it would not know. Register"
                    " it on the modules that it is meant for."
                )


def _shell(part: nn.Module) -> nn.Module:
    """A module of the same class with nothing in it yet; TorchScript is not made of dictionaries, and stays itself."""
    if isinstance(part, torch.jit.ScriptModule):
        return part
    shell: nn.Module = object.__new__(type(part))
    return shell


def _state(part: nn.Module, copies: Mapping[nn.Module, nn.Module]) -> dict[str, Any]:
    state = {
        name: value.copy()
        if name in _REGISTRIES
        else (value if type(value) in _PLAIN or "state_dict" in name else _moved(value, copies))
        for name, value in vars(part).items()
        if name != "_compiled_call_impl"
    }
    parts = state["_modules"]
    for name, child in parts.items():
        if child is not None:
            parts[name] = _uncompiled(child, copies)
    # Not by eval(): a family's own may do more, such as to add an adapter to the weights that are shared.
    state["training"], state[_ORIGINAL] = False, part
    return state


def _uncompiled(child: nn.Module, copies: Mapping[nn.Module, nn.Module]) -> nn.Module:
    """The copy of a part; what torch.compile wraps, without the wrapper."""
    # What TorchScript keeps its parts in has no get().
    inner = child._modules["_orig_mod"] if "_orig_mod" in child._modules else child  # noqa: SIM401
    assert inner is not None
    return copies[inner]


def _moved(value: Any, copies: Mapping[nn.Module, nn.Module]) -> Any:
    """An attribute as the twin has it: modules, and methods bound to them, are those of the twin."""
    if type(value) in (list, tuple):
        # A list that holds no part is shared, as it was: who fills it reads it.
        return type(value)(_part(each, copies) for each in value) if any(map(_may_move, value)) else value
    if type(value) is dict:
        moves = any(map(_may_move, value.values()))
        return {key: _part(each, copies) for key, each in value.items()} if moves else value
    return _part(value, copies)


def _may_move(value: Any) -> bool:
    return isinstance(value, (nn.Module, MethodType, partial))


def _part(value: Any, copies: Mapping[nn.Module, nn.Module]) -> Any:
    if isinstance(value, nn.Module):
        return copies.get(value, value)
    if isinstance(value, MethodType):
        return MethodType(value.__func__, _part(value.__self__, copies))
    if isinstance(value, partial):
        # As accelerate hides a module's own forward.
        args = [_part(each, copies) for each in value.args]
        made = partial(
            _part(value.func, copies), *args, **{key: _part(each, copies) for key, each in value.keywords.items()}
        )
        vars(made).update({key: _part(each, copies) for key, each in vars(value).items()})
        return made
    return value
