"""What options a method has, read from its file without importing it: names, types, defaults and help."""

import ast
import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from identiscope.methods.kinds import CHOICES, OF_FIELDS, RESUME
from identiscope.methods.registry import Method, of_kind


@dataclass(frozen=True)
class Option:
    """One option: its annotation and default as they are written (None: it has no default), and what is said of it."""

    name: str
    annotation: str
    default: str | None
    says: str


@dataclass(frozen=True)
class Signature:
    """The fields that a method asks for, its options, its documentation, and what it says that it returns."""

    fields: tuple[str, ...]
    options: tuple[Option, ...]
    documentation: str
    returns: str = ""


def choices_of(one: Method, fields: Iterable[str], own: Iterable[str] = ()) -> Mapping[str, tuple[str, object, str]]:
    """The options that a method has because of its kind; one that the function has itself is its own."""
    choices = dict(CHOICES[one.family.scope])
    if one.family.scope == "trace":
        choices = {name: choice for name, choice in choices.items() if name not in own}
    for field in fields:
        choices |= OF_FIELDS.get(field, {})
    if "resume" in own:
        choices["resume"] = RESUME
    return choices


def signature(one: Method) -> Signature:
    """Of a method: its own options and those of its kind."""
    own = _written(one)
    names = {option.name for option in own.options}
    common = [
        Option(name, annotation, None if default is ... else repr(default), says)
        for name, (annotation, default, says) in choices_of(one, own.fields, names).items()
    ]
    taken = {option.name for option in common}
    options = (*common, *(option for option in own.options if option.name not in taken))
    return replace(own, options=options)


def factored_maps() -> tuple[Method, ...]:
    """The maps that are given as two thin matrices, as their functions say."""
    return tuple(one for one in of_kind("map") if signature(one).returns == "FactoredAttention")


def _written(one: Method) -> Signature:
    if one.function is not None:
        return _read(inspect.cleandoc("\n" + inspect.getsource(one.function)), one.function.__name__)
    spec = find_spec(f"identiscope.methods.{one.family.folder}")
    assert spec is not None and spec.origin is not None
    return _of_file(str(Path(spec.origin).with_name(f"{one.name}.py")), one.name)


@cache
def _of_file(path: str, name: str) -> Signature:
    return _read(Path(path).read_text(encoding="utf-8"), name)


def _read(source: str, name: str) -> Signature:
    function = next(
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef) and node.name == name
    )
    documentation = ast.get_docstring(function) or ""
    given = function.args
    options = []
    for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        if argument.arg != "progress":
            annotation = "Any" if argument.annotation is None else ast.unparse(argument.annotation)
            written = None if default is None else ast.unparse(default)
            options.append(Option(argument.arg, annotation, written, said_of(argument.arg, documentation)))
    fields = tuple(argument.arg for argument in (*given.posonlyargs, *given.args))
    returns = "" if function.returns is None else ast.unparse(function.returns).strip("'")
    return Signature(fields, tuple(options), documentation, returns)


def said_of(name: str, documentation: str) -> str:
    """What a docstring says of an option: the text after `name:`, up to the next one or the end of the paragraph.

    >>> said_of("residual", "Roll out.\\n\\nresidual: the share of a token. seed: of what is drawn.")
    'the share of a token'
    """
    for paragraph in re.split(r"\n\s*\n", documentation):
        flat = " ".join(paragraph.split())
        match = re.search(rf"(?:^|[.;] ){re.escape(name)}: (.+?)(?=[.;] [a-z_]+(?:, [a-z_]+)*: |$)", flat)
        if match:
            return match[1].rstrip(".")
    return ""
