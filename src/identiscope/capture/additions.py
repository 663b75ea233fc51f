"""What others have put around the weights of a model, in words: states of adapters, hooks, replaced forwards.

Two models with the same weights compute other numbers if one has its adapter switched off, or a hook. What is told of a
hook is its code and what it holds that it does not write itself: what it only collects would make it another at every
pass.
"""

import dis
import hashlib
from collections.abc import Iterator
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

# Whose hooks and forwards move, show or record numbers, and change none.
_HARMLESS = frozenset({"accelerate", "transformers", "identiscope"})
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_PLAIN = (bool, int, float, str, bytes, type(None), torch.dtype, torch.device)
# What rebinds a name that a function holds, and an attribute of what it is a method of.
_WRITES = frozenset({"STORE_DEREF", "STORE_ATTR", "DELETE_ATTR"})
_DEPTH = 4


def additions(module: nn.Module) -> list[str]:
    """What is around the weights of a model, one line each; nothing for a model as its class made it."""
    names = {id(part): name for name, part in module.named_modules()}
    return [f"{name} {line}" for name, part in module.named_modules() for line in _around(part, names)] + [
        f"all modules {name} {_told(hook, names)}"
        for name in _HOOKS
        for hook in list(getattr(torch.nn.modules.module, name.replace("_", "_global_", 1)).values())
        if not _is_harmless(hook)
    ]


def _around(part: nn.Module, names: dict[int, str]) -> Iterator[str]:
    if type(part).__module__.startswith("peft.") and hasattr(part, "merged_adapters"):
        yield f"{type(part).__qualname__} {_adapters(part, names)}"
    for kind in _HOOKS:
        yield from (f"{kind} {_told(hook, names)}" for hook in vars(part)[kind].values() if not _is_harmless(hook))
    forward = vars(part).get("forward")
    if forward is not None and not _is_harmless(forward):
        yield f"forward {_told(forward, names)}"


def _adapters(part: Any, names: dict[int, str]) -> str:
    """What an adapter's layer says of itself beside its weights: which adapters are used, how they are scaled."""
    own = {name: value for name, value in vars(part).items() if not name.startswith("_") and name != "training"}
    used = {name: getattr(part, name, None) for name in ("active_adapters", "disable_adapters", "merged_adapters")}
    return _told(own | used, names, tables=True)


def _is_harmless(hook: Any) -> bool:
    while isinstance(hook, partial):
        hook = hook.func
    where = getattr(hook, "__module__", None) or type(hook).__module__
    return str(where).partition(".")[0] in _HARMLESS


def _told(one: Any, names: dict[int, str], depth: int = 0, tables: bool = False) -> str:
    """A value in words that are the same for the same value; tables: lists and dictionaries by what they hold."""
    if isinstance(one, _PLAIN):
        return repr(one)
    if isinstance(one, Tensor):
        content = one.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data
        return f"{one.dtype} {tuple(one.shape)} {hashlib.sha256(content).hexdigest()}"
    kind = f"{type(one).__module__}.{type(one).__qualname__}"
    if isinstance(one, nn.Module):
        own = names.get(id(one))
        weights = () if own is not None or depth > _DEPTH else sorted(one.state_dict().items())
        return f"{kind} {own} {[(name, _told(weight, names)) for name, weight in weights]}"
    if depth > _DEPTH:
        return kind
    if isinstance(one, partial):
        held = [one.func, *one.args, *(part for pair in sorted(one.keywords.items()) for part in pair)]
    elif isinstance(one, MethodType):
        held = [one.__func__, *_object(one.__self__, one.__func__)]
    elif isinstance(one, FunctionType):
        held = _function(one)
    elif isinstance(one, (tuple, frozenset)) or (tables and isinstance(one, (list, set))):
        held = sorted(one, key=repr) if isinstance(one, (set, frozenset)) else list(one)
    elif tables and isinstance(one, dict):
        held = [part for name in sorted(one, key=repr) for part in (name, one[name])]
    elif callable(one) and not isinstance(one, type):
        held = _object(one, getattr(type(one), "__call__", None))  # noqa: B004 – what runs, not whether it can
    else:
        return kind
    return f"{kind} [{', '.join(_told(part, names, depth + 1, tables) for part in held)}]"


def _object(one: Any, called: Any) -> list[Any]:
    """An object that something is a method of: its attributes but for those that the method writes."""
    if isinstance(one, nn.Module):
        return [one]
    code = getattr(called, "__code__", None)
    written = set() if code is None else _written(code)
    own = sorted(getattr(one, "__dict__", {}).items())
    return [type(one).__qualname__, *(part for name, value in own if name not in written for part in (name, value))]


def _function(function: FunctionType) -> list[Any]:
    """A function: its code, its defaults, and what it holds but for what it writes."""
    code = function.__code__
    written = _written(code)
    cells: list[Any] = []
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            cells += [] if name in written else [name, cell.cell_contents]
        except ValueError:  # not filled yet
            cells.append(name)
    defaults = (*(function.__defaults__ or ()), *sorted((function.__kwdefaults__ or {}).items()))
    return [function.__module__, function.__qualname__, *_code(code), defaults, *cells]


def _code(code: CodeType) -> list[Any]:
    constants = tuple(part for one in code.co_consts for part in (_code(one) if isinstance(one, CodeType) else [one]))
    return [code.co_code, code.co_names, *constants]


def _written(code: CodeType) -> set[str]:
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    own = {str(step.argval) for step in dis.get_instructions(code) if step.opname in _WRITES}
    return own.union(*map(_written, inner))
