"""What the hooks of others refer to: one that asks which module it was called for has to be told of the user's own."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial, wraps
from types import CodeType, FunctionType, MethodType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, ref

import torch
from torch import Tensor, nn

# How far what a hook holds is followed: its closure, what an object there holds, and what a table in that does.
_DEPTH = 5
# What holds more than this is not looked through at every pass, and taken to hold a module.
_MOST = 20_000
# What refers to no module, or to all the world.
_OPAQUE = (str, bytes, float, complex, bool, type(None), type, Tensor, torch.dtype, torch.device, type(torch))
_TABLES = (list, tuple, set, frozenset, WeakSet)


def refers_to_any(hook: object, modules: Mapping[int, nn.Module]) -> bool:
    """Whether a hook holds one of these modules, given by id, or the id of one: in its closure, its defaults, the names
    of the world around that it uses, the object it is a method of, or a table or function in one of these."""
    seen: set[int] = set()
    found = [(hook, 0)]
    while found:
        one, depth = found.pop()
        if id(one) in modules or (type(one) is int and one in modules) or len(found) + len(seen) > _MOST:
            return True
        if id(one) in seen or depth > _DEPTH or isinstance(one, (*_OPAQUE, int, nn.Module)):
            continue
        seen.add(id(one))
        found += [(held, depth + 1) for held in _held(one)]
    return False


def told_of(hook: Callable[..., Any], module: nn.Module) -> Callable[..., Any]:
    """The same hook, called for this module instead of the one that runs."""

    @wraps(hook, updated=())
    def told(running: nn.Module, *rest: Any, **more: Any) -> Any:
        return hook(module, *rest, **more)

    return told


def _held(one: Any) -> Iterator[Any]:
    if isinstance(one, FunctionType):
        yield from _in_cells(one)
        yield from (*(one.__defaults__ or ()), *(one.__kwdefaults__ or {}).values())
        yield from (one.__globals__[name] for name in _names(one.__code__) if name in one.__globals__)
    elif isinstance(one, MethodType):
        yield from (one.__func__, one.__self__)
    elif isinstance(one, partial):
        yield from (one.func, *one.args, *one.keywords.values())
    elif isinstance(one, ref):
        yield one()
    elif isinstance(one, (dict, WeakKeyDictionary)):
        # A copy, since another thread may fill it.
        entries = list(one.items())
        yield from (part for entry in entries for part in entry)
    elif isinstance(one, _TABLES):
        yield from list(one)
    elif hasattr(one, "__dict__"):
        yield from list(vars(one).values())
        call = getattr(type(one), "__call__", None)  # noqa: B004 – what runs when it is called, not whether it can be
        if isinstance(call, FunctionType):
            yield call


def _in_cells(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not filled yet
            continue


def _names(code: CodeType) -> Iterator[str]:
    """The names of the world around that a function, or one inside it, uses."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
