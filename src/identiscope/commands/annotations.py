"""From an annotation, as it is written in a method's file, to what a command line can be given. Nothing is imported.

Names that stand for something else (`How = Literal[…]`, `DEFAULT_MEMORY = 2**30`) are looked up in that file, and in
those of this package that it imports them from.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import click

from identiscope.commands.options import ATTENTION, PLACE, SEED, Finite, Numbers
from identiscope.methods.registry import Method
from identiscope.methods.signatures import Option


class Listed(click.ParamType[list[Any]]):
    """Values between commas. (A base class of click's.)"""

    def __init__(self, each: click.ParamType[Any], name: str) -> None:
        self.each, self.name = each, name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[Any]:
        """The values."""
        if isinstance(value, list):
            return value
        return [self.each.convert(part.strip(), param, ctx) for part in str(value).split(",")]


class Pair(click.ParamType[tuple[int, int]]):
    """Two whole numbers, as `3:7`. (A base class of click's.)"""

    name = "number:number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        """The two."""
        if isinstance(value, tuple):
            return value
        first, _, second = str(value).partition(":")
        if not (first.isascii() and first.isdigit() and second.isascii() and second.isdigit()):
            self.fail(f"{value!r} is not a pair such as 3:7", param, ctx)
        return int(first), int(second)


class Number(click.ParamType[float]):
    """A number that is finite. (A base class of click's.)"""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number."""
        return Finite().convert(value, param, ctx)


#: What means the same in every command has the same type in every method.
COMMON: Mapping[str, click.ParamType[Any]] = {
    "layer": PLACE, "head": PLACE, "layers": Numbers(), "heads": Numbers(), "seed": SEED, "attention": ATTENTION,
}  # fmt: skip
_PLAIN: Mapping[str, click.ParamType[Any]] = {
    "bool": click.BOOL, "int": click.INT, "float": Number(), "str": click.STRING, "Path": click.Path(path_type=Path),
}  # fmt: skip
_SEQUENCES = ("Sequence", "list", "tuple", "Iterable", "Collection", "set", "frozenset")


def type_of(one: Method, option: Option) -> click.ParamType[Any] | None:
    """What an option is given as on a command line; None if it cannot be."""
    if option.name in COMMON:
        return COMMON[option.name]
    members = _members(ast.parse(option.annotation, mode="eval").body, _names(one))
    types = [known for member in members if (known := _type(member, _names(one))) is not None]
    choices = [choice for known in types if isinstance(known, click.Choice) for choice in known.choices]
    if choices and all(isinstance(known, click.Choice) for known in types):
        return click.Choice(choices)
    for wanted in (Listed, Numbers, Number):
        # `int | Sequence[int]` is a list that may have one number, and `int | float` a number.
        chosen = next((known for known in types if isinstance(known, wanted)), None)
        if chosen is not None:
            return chosen
    return types[0] if types else None


def default_of(one: Method, option: Option) -> str | None:
    """The default in words for the help; None if there is none to speak of."""
    if option.default is None:
        return None
    value = _value(ast.parse(option.default, mode="eval").body, _names(one))
    return None if value is None else str(value)


Names = Callable[[str], "ast.expr | None"]


def _members(node: ast.expr, names: Names, depth: int = 0) -> list[ast.expr]:
    """The parts of a union but None, with what names stand for."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _members(node.left, names, depth) + _members(node.right, names, depth)
    if isinstance(node, ast.Subscript) and _name(node.value) in ("Optional", "Union"):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return [member for part in parts for member in _members(part, names, depth)]
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _members(ast.parse(node.value, mode="eval").body, names, depth)
    if isinstance(node, ast.Constant) and node.value is None:
        return []
    if isinstance(node, ast.Name) and node.id not in _PLAIN and depth < 8 and (meant := names(node.id)) is not None:
        return _members(meant, names, depth + 1)
    return [node]


def _type(node: ast.expr, names: Names) -> click.ParamType[Any] | None:
    if isinstance(node, ast.Name):
        return _PLAIN.get(node.id)
    if not isinstance(node, ast.Subscript):
        return None
    outer = _name(node.value)
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if outer == "Literal":
        values = [part.value for part in parts if isinstance(part, ast.Constant)]
        return click.Choice([str(value) for value in values]) if all(isinstance(v, str) for v in values) else None
    if outer not in _SEQUENCES:
        return None
    if outer == "tuple" and [_name(part) for part in parts] == ["int", "int"]:
        return Pair()
    members = _members(parts[0], names)
    each = _type(members[0], names) if len(members) == 1 else None
    if each is click.INT:
        return Numbers()
    if each is None or each is click.BOOL or isinstance(each, (Listed, Numbers)):
        return None
    return Listed(each, f"{each.name},…")


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


_OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Pow: operator.pow,
    ast.Div: operator.truediv,
}  # fmt: skip


def _value(node: ast.expr | None, names: Names, depth: int = 0) -> Any:
    """A value that is written with numbers, text and names of such; None for any other."""
    if isinstance(node, ast.Name) and depth < 8:
        return _value(names(node.id), names, depth + 1)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _value(node.left, names, depth), _value(node.right, names, depth)
        numbers = all(isinstance(part, (int, float)) and abs(part) < 2**64 for part in (left, right))
        small = not isinstance(node.op, ast.Pow) or (numbers and abs(right) < 100)
        return _OPERATORS[type(node.op)](left, right) if numbers and small else None
    try:
        return None if node is None else ast.literal_eval(node)
    except ValueError:
        return None


def _names(one: Method) -> Names:
    """What the names in a method's file stand for."""
    if one.function is None:
        return lambda name: _meant(one.module, name)
    known = one.function.__globals__

    def of_function(name: str) -> ast.expr | None:
        # A method that is registered at run time has been imported already.
        value = known.get(name)
        if get_args(value) or isinstance(value, (int, float, str)):
            written = repr(value).replace("typing.", "").replace("collections.abc.", "")
            try:
                return ast.parse(written, mode="eval").body
            except SyntaxError:
                return None
        return None

    return of_function


def _meant(module: str, name: str, depth: int = 0) -> ast.expr | None:
    assigned, imported = _top(module)
    if name in assigned:
        return assigned[name]
    if name in imported and depth < 8:
        return _meant(*imported[name], depth + 1)
    return None


@cache
def _top(module: str) -> tuple[Mapping[str, ast.expr], Mapping[str, tuple[str, str]]]:
    """What a module of this package assigns at its top, and what it imports from others of it."""
    spec = find_spec("identiscope.methods")
    assert spec is not None and spec.origin is not None
    base = Path(spec.origin).parents[1].joinpath(*module.split(".")[1:])
    path = next((one for one in (base.with_suffix(".py"), base / "__init__.py") if one.is_file()), None)
    assigned: dict[str, ast.expr] = {}
    imported: dict[str, tuple[str, str]] = {}
    for node in [] if path is None else ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign):
            assigned |= {target.id: node.value for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            assigned[node.target.id] = node.value
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("identiscope."):
            imported |= {name.asname or name.name: (str(node.module), name.name) for name in node.names}
    return assigned, imported
