"""The declared shapes as JSDoc: `python -m identiscope.views.page.typedefs` writes them into `static/data.js`."""

import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from identiscope.files import write_file
from identiscope.views.page.shapes import SHAPES, Header

DATA = Path(__file__).parents[1] / "static" / "data.js"
BEGIN = "// Written by views/page/typedefs.py from views/page/shapes.py, from here on"
END = "// to here."

_PLAIN = {int: "number", float: "number", str: "string", bool: "boolean", type(None): "null"}


def typedefs() -> str:
    """All shapes that a page is made of, those that others are made of first."""
    parts = ["/**"]
    for shape in _in_order(Header, []):
        parts.append(f" * @typedef {{object}} {shape.__name__}  {_described(shape)}")
        for name, hint in get_type_hints(shape, include_extras=True).items():
            left_out, kind, said = _taken_apart(hint)
            field = f"[{name}]" if left_out else name
            parts.append(f" * @property {{{javascript(kind)}}} {field}{f'  {said}' if said else ''}")
        parts.append(" *")
    kinds = ", ".join(f"{kind}: {shape.__name__}" for kind, shape in SHAPES.items())
    return "\n".join([*parts, f" * @typedef {{{{{kinds}}}}} Shapes  by kind of section", " */"])


def javascript(hint: Any) -> str:
    """A type of Python as JSDoc has it.

    >>> javascript(list[float | None])
    '(number|null)[]'
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return "|".join(dict.fromkeys(javascript(one) for one in inner))
    if origin is Literal:
        return "|".join(f'"{one}"' for one in inner)
    if origin is list:
        one = javascript(inner[0])
        return f"({one})[]" if "|" in one else f"{one}[]"
    if origin is dict:
        return f"Object<{javascript(inner[0])}, {javascript(inner[1])}>"
    return str(hint.__name__) if is_typeddict(hint) else _PLAIN[hint]


def write() -> None:
    """Put the shapes of today into `static/data.js`."""
    text = DATA.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    write_file(DATA, f"{before}{BEGIN}\n{typedefs()}\n{END}{after}".encode())


def _described(shape: Any) -> str:
    words = " ".join((shape.__doc__ or "").split()).rstrip(".")
    # A single letter at the beginning is a symbol, but for the article.
    return words[:1].lower() + words[1:] if words[1:2].islower() or words.startswith("A ") else words


def _taken_apart(hint: Any) -> tuple[bool, Any, str]:
    """Whether it may be left out, its type, and what is said of it."""
    left_out = get_origin(hint) is NotRequired
    hint = get_args(hint)[0] if left_out else hint
    if get_origin(hint) is Annotated:
        kind, said = get_args(hint)
        return left_out, kind, said
    return left_out, hint, ""


def _in_order(shape: Any, seen: list[Any]) -> list[Any]:
    for hint in get_type_hints(shape).values():
        for inner in _shapes_in(hint):
            if inner not in seen:
                _in_order(inner, seen)
    if shape not in seen:
        seen.append(shape)
    return seen


def _shapes_in(hint: Any) -> Iterator[Any]:
    if is_typeddict(hint):
        yield hint
    for one in typing.get_args(hint):
        yield from _shapes_in(one)


if __name__ == "__main__":
    write()
