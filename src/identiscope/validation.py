"""What a public function is given, checked against its own type hints before it begins.

One place knows which names are public (`identiscope.__getattr__`), and hands them out checked; what identiscope calls
within itself is not checked. A hint that says nothing (Any, or a name that is not known when it is read) lets
everything pass.
"""

import builtins
import inspect
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, update_wrapper
from importlib import import_module
from numbers import Integral, Real
from pathlib import Path
from reprlib import Repr
from types import FunctionType, NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin

from identiscope.errors import ArgumentError

Function = TypeVar("Function", bound=Callable[..., Any])

_SHORT = Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 2, 60, 60
REFUSED = object()
_MOST = 2**63
#: Parameters that had another name, which is understood for one release more.
RENAMED = {"kind": "attention"}
#: How to come by what is often not there yet.
_MADE_BY = {"Trace": "identiscope.trace(model, text)"}
_SHOWN_AS_WRITTEN = (str, bytes, int, float, complex, NoneType, list, tuple, dict, set, frozenset, range, os.PathLike)


@dataclass(frozen=True)
class Expected:
    """What an argument may be: what is made of a value, `REFUSED` if it is none such; and in words, of one and several.

    Numbers of NumPy become Python's, and arrays lists, where these were expected.
    """

    take: Callable[[Any], Any]
    words: str
    plural: str


def checked(function: Function, public: str | None = None) -> Function:
    """The same function, with an error that says what was given and what was expected where the two differ.

    public: the name by which identiscope itself hands it out, so that it can be pickled.

    >>> checked(lambda head: head)(hat=5)
    ArgumentError: <lambda>() takes no argument `hat`; did you mean `head`?
    """
    parameters = inspect.signature(function).parameters
    kinds = {name: one.kind for name, one in parameters.items()}
    by_position = [name for name, kind in kinds.items() if kind <= inspect.Parameter.POSITIONAL_OR_KEYWORD]
    needed = {name for name, one in parameters.items() if one.default is one.empty and kinds[name] not in (2, 4)}
    takes_more = inspect.Parameter.VAR_POSITIONAL in kinds.values()
    takes_any = inspect.Parameter.VAR_KEYWORD in kinds.values()
    # By position alone so many are enough, as in most calls, of which some are made for every head of every text.
    enough = len(needed) if needed <= set(by_position) else len(by_position) + 1

    def taken(name: str, value: Any) -> Any:
        # When first called: the hints may name what is costly to import.
        return _taken(rules_of(function), name, value)

    def call(*args: Any, **kwargs: Any) -> Any:
        if not kwargs and enough <= len(args) <= len(by_position):
            rules = rules_of(function)
            return function(*[_taken(rules, name, value) for name, value in zip(by_position, args, strict=False)])
        for old, new in RENAMED.items():
            if old in kwargs and new in parameters and old not in parameters and new not in kwargs:
                warnings.warn(
                    f"`{old}` is called `{new}` now; `{old}` will be gone in 0.2.", FutureWarning, stacklevel=2
                )
                kwargs[new] = kwargs.pop(old)
        given = by_position[: len(args)]
        if (
            (len(args) > len(by_position) and not takes_more)
            or (not takes_any and not kwargs.keys() <= parameters.keys())
            or not kwargs.keys().isdisjoint(given)
            or not needed <= kwargs.keys() | set(given)
        ):
            if len(args) > len(by_position):
                # What stands where something else belongs says more than that there is too much.
                for name, value in zip(given, args, strict=False):
                    taken(name, value)
            raise ArgumentError(_misfit(function, args, kwargs))
        further = args[len(given) :]
        args = tuple(taken(name, value) for name, value in zip(given, args, strict=False))
        return function(*args, *further, **{name: taken(name, value) for name, value in kwargs.items()})

    made: Any = update_wrapper(call, function)
    if public is not None:
        made.__module__, made.__name__, made.__qualname__ = "identiscope", public, public
    return cast(Function, made)


@cache
def rules_of(function: Callable[..., Any]) -> dict[str, Expected]:
    """What each argument of a function may be, by its hint; without those that let everything pass."""
    parameters = inspect.signature(function).parameters.values()
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    rules = {one.name: expected(resolved(one.annotation, function)) for one in parameters if one.kind not in several}
    return {name: _not_negative(one) if name == "seed" else one for name, one in rules.items() if one is not None}


def _not_negative(rule: Expected) -> Expected:
    """What a rule takes, but for numbers below zero: not every generator can be given such a seed."""

    def take(value: Any) -> Any:
        found = rule.take(value)
        return REFUSED if isinstance(found, int) and found < 0 else found

    return Expected(take, f"{rule.words}, at least 0", rule.plural)


def checked_values(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by name as `checked` would hand them on, or its error, without calling the function.

    >>> checked_values(lambda head: head, {"head": 3})
    {'head': 3}
    """
    rules = rules_of(function)
    return {name: _taken(rules, name, value) for name, value in given.items()}


def _taken(rules: Mapping[str, Expected], name: str, value: Any) -> Any:
    rule = rules.get(name)
    converted = value if rule is None else rule.take(value)
    if rule is not None and converted is REFUSED:
        raise ArgumentError(f"{_said(name, value)} was given; expected {rule.words}.")
    return converted


def check_methods(cls: type) -> None:
    """Check what the public methods of a class, and its constructor, are given. Once is enough."""
    if "_identiscope_checked" in vars(cls) or issubclass(cls, BaseException):
        return
    for name, attribute in list(vars(cls).items()):
        # The forward of a torch module is compiled and scripted, which a function around it would be in the way of.
        if (name.startswith("_") and name not in ("__init__", "__call__")) or name == "forward":
            continue
        if isinstance(attribute, FunctionType):
            setattr(cls, name, checked(attribute))
        elif isinstance(attribute, staticmethod):
            setattr(cls, name, staticmethod(checked(attribute.__func__)))
    cls._identiscope_checked = True  # type: ignore[attr-defined]


def resolved(annotation: Any, function: Callable[..., Any]) -> Any:
    """An annotation that is written as text, read; Any where it cannot be."""
    if not isinstance(annotation, str):
        return Any if annotation is inspect.Parameter.empty else annotation
    own = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return eval(annotation, own, _Names(own))
    except (NameError, TypeError, AttributeError, SyntaxError):
        return Any


class _Names(dict[str, Any]):
    """What a hint may name though its module imports it for type checkers alone: the public names of identiscope."""

    def __init__(self, own: Mapping[str, Any]) -> None:
        super().__init__()
        self.own = own

    def __missing__(self, name: str) -> Any:
        public = import_module("identiscope")
        if name in self.own or hasattr(builtins, name) or name not in public.__all__:
            raise KeyError(name)
        return getattr(public, name)


def expected(hint: Any) -> Expected | None:
    """What a hint asks for; None if it lets everything pass.

    >>> expected(int | None).words
    'a whole number or None'
    """
    if hint is None or hint is NoneType:
        return Expected(lambda value: None if value is None else REFUSED, "None", "None")
    if isinstance(hint, type) and hint in _PLAIN:
        return _PLAIN[hint]
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _either([expected(arg) for arg in args])
    if origin is Literal:
        words = _listed([repr(arg) for arg in args])
        return _where(lambda value: any(type(value) is type(arg) and value == arg for arg in args), words, words)
    if origin is Callable or hint is Callable:
        return _where(callable, "a function", "functions")
    if origin is tuple:
        return _tuple(args)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(*args)
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return _several(origin, args[0])
    kind = origin or hint
    if kind is Any or kind is object or not isinstance(kind, type):
        return None
    return _where(lambda value: isinstance(value, kind), *_class_words(kind))


def _where(test: Callable[[Any], bool], words: str, plural: str) -> Expected:
    return Expected(lambda value: value if test(value) else REFUSED, words, plural)


def _whole(value: Any) -> Any:
    if type(value) is not int:
        if isinstance(value, bool) or not isinstance(value, Integral):
            return REFUSED
        value = int(value)
    # What has more than 64 bits counts nothing here, and cannot even be written in an error.
    return value if -_MOST <= value < _MOST else REFUSED


def _number(value: Any) -> Any:
    if isinstance(value, Integral):
        return _whole(value)
    return float(value) if isinstance(value, Real) else REFUSED


def _truth(value: Any) -> Any:
    # NumPy's truth values are a class of their own, which need not be imported to be known.
    is_numpy = type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_")
    return bool(value) if isinstance(value, bool) or is_numpy else REFUSED


_PLAIN = {
    bool: Expected(_truth, "True or False", "truth values"),
    int: Expected(_whole, "a whole number", "whole numbers"),
    float: Expected(_number, "a number", "numbers"),
    str: _where(lambda value: isinstance(value, str), "a string", "strings"),
    Path: _where(lambda value: isinstance(value, os.PathLike), "a path", "paths"),
}


def _either(parts: Sequence[Expected | None]) -> Expected | None:
    some = [part for part in parts if part is not None]
    if len(some) < len(parts):
        return None

    def take(value: Any) -> Any:
        return next((converted for part in some if (converted := part.take(value)) is not REFUSED), REFUSED)

    words, plurals = (list(dict.fromkeys(each)) for each in zip(*((p.words, p.plural) for p in some), strict=True))
    return Expected(take, _listed(words), _listed(plurals))


def _each(part: Expected | None, values: Any) -> Any:
    """What is made of each of several: the same object where nothing has to be changed."""
    if part is None:
        return values
    converted = []
    for value in values:
        converted.append(part.take(value))
        if converted[-1] is REFUSED:
            return REFUSED
    same = all(one is other for one, other in zip(converted, values, strict=True))
    return values if same else tuple(converted) if isinstance(values, tuple) else converted


def _as_read(part: Expected, values: Iterable[Any]) -> Iterator[Any]:
    for number, value in enumerate(values):
        converted = part.take(value)
        if converted is REFUSED:
            raise ArgumentError(f"{_said(f'number {number} of several', value)} was given; expected {part.words}.")
        yield converted


def _tuple(args: tuple[Any, ...]) -> Expected:
    """Any length of one kind, or so many of each; a list does as well."""
    if len(args) == 2 and args[1] is Ellipsis:
        return _several(Sequence, args[0])
    parts = [expected(arg) for arg in args]

    def take(value: Any) -> Any:
        if not isinstance(value, (tuple, list)) or len(value) != len(parts):
            return REFUSED
        converted = tuple(one if part is None else part.take(one) for part, one in zip(parts, value, strict=True))
        return REFUSED if any(one is REFUSED for one in converted) else converted

    words = [part.words if part is not None else "anything" for part in parts]
    alike = len(set(words)) == 1 and parts[0] is not None
    inside = f"{len(parts)} {parts[0].plural}" if alike and parts[0] is not None else ", ".join(words)
    return Expected(take, f"a tuple of {inside}", f"tuples of {inside}")


def _several(origin: type, arg: Any) -> Expected:
    """Several of a kind, in a list, a tuple, a range or an array; a text is none, though it has characters."""
    part = expected(arg)
    wanted = next(kind for kind in (Sequence, Set, Iterable) if issubclass(origin, kind))

    def take(value: Any) -> Any:
        # A tensor would be iterable, but what comes out is tensors again.
        if isinstance(value, (str, bytes, Mapping)) or hasattr(value, "detach"):
            return REFUSED
        if hasattr(value, "__array_interface__") and hasattr(value, "tolist"):
            value = value.tolist()
        if not isinstance(value, wanted):
            return REFUSED
        # What is not there all at once (a generator) is looked at as it is read.
        return _each(part, value) if isinstance(value, Collection) or part is None else _as_read(part, value)

    of = "" if part is None else f" of {part.plural}"
    return Expected(take, f"a list{of}", f"lists{of}")


def _mapping(key: Any = Any, value: Any = Any) -> Expected:
    keys, values = expected(key), expected(value)

    def take(given: Any) -> Any:
        if not isinstance(given, Mapping):
            return REFUSED
        parts = _each(keys, list(given)), _each(values, list(given.values()))
        return REFUSED if any(part is REFUSED for part in parts) else given

    words = [part.words if part is not None else "anything" for part in (keys, values)]
    return Expected(take, f"a mapping from {words[0]} to {words[1]}", f"mappings from {words[0]} to {words[1]}")


def _class_words(kind: type) -> tuple[str, str]:
    """A class by its name, with the package it comes from if that is another one."""
    package = kind.__module__.partition(".")[0]
    name = kind.__name__ if package in ("identiscope", "builtins") else f"{package}.{kind.__name__}"
    made = f", as {_MADE_BY[name]} gives" if name in _MADE_BY else ""
    return f"{'an' if name[0] in 'aeioAEIOx' else 'a'} {name}{made}", f"{name}s"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _said(name: str, value: Any) -> str:
    """`head='5'`; of what is long or says little in writing, what it is: `trace: a Dataset`."""
    if isinstance(value, int) and not -_MOST <= value < _MOST:
        return f"{name}: a whole number of {value.bit_length()} bits, more than 64,"
    if isinstance(value, _SHOWN_AS_WRITTEN) and not hasattr(value, "shape"):
        # Whatever somebody else's value does when it is to be written.
        with suppress(Exception):
            return f"{name}={_SHORT.repr(value)}"
    shape = getattr(value, "shape", None)
    words = _class_words(value if isinstance(value, type) else type(value))[0]
    if isinstance(value, type):
        words = f"the class {words.partition(' ')[2]}"
    return f"{name}: {words}" + (f" of shape {tuple(shape)}" if isinstance(shape, tuple) else "")


def _misfit(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Why a function cannot be called so."""
    parameters = {name: one for name, one in inspect.signature(function).parameters.items() if name != "self"}
    called = function.__qualname__.removesuffix(".__init__") + "()"
    names = [name for name, one in parameters.items() if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    places = [name for name in names if parameters[name].kind != inspect.Parameter.KEYWORD_ONLY]
    given = len(args) - ("self" in inspect.signature(function).parameters)
    takes_any = any(one.kind == one.VAR_KEYWORD for one in parameters.values())
    listed = ", ".join(names) or "nothing"
    if given > len(places):
        by_name = f"; the others by name: {', '.join(names[len(places) :])}" if names[len(places) :] else ""
        return f"{called} takes {len(places)} arguments by position, and {given} were given{by_name}."
    for name in kwargs:
        if name not in names and not takes_any:
            close = get_close_matches(name, names, 1)
            hint = f"did you mean `{close[0]}`?" if close else f"it takes: {listed}."
            return f"{called} takes no argument `{name}`; {hint}"
        if name in places[:given]:
            return f"{called} was given `{name}` twice, by position and by name."
    missing = [
        name for name in names if parameters[name].default is inspect.Parameter.empty
        and name not in kwargs and name not in places[:given]
    ]  # fmt: skip
    return f"{called} needs {_listed_all(missing)}; it takes: {listed}."


def _listed_all(names: Sequence[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
