"""A page held against the shapes that are declared for it, value by value."""

import types
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from identiscope.views.page.data import Page
from identiscope.views.page.shapes import SHAPES, Header


def heads(page: Any) -> Any:
    """The data of the first section that has heads, of a page or a header."""
    return _first(page, "attention")


def plain(page: Any) -> Any:
    """The data of the first section with a picture and tables."""
    return _first(page, "plain")


def _first(page: Any, kind: str) -> Any:
    header = page.header if isinstance(page, Page) else page
    return next(section["data"] for section in header["sections"] if section["kind"] == kind)


def check_page(page: Page) -> None:
    """Every value is of its declared shape; sections have names, and chunks, of their own."""
    check(page.header, Header, "header")
    sections = page.header["sections"]
    for section in sections:
        check(section["data"], SHAPES[section["kind"]], section["name"])
        assert set(named_chunks(section["data"])) == set(section["chunks"]), section["name"]
    assert len(set(page.names)) == len(sections)
    assert {f"{section['name']}.{chunk}" for section in sections for chunk in section["chunks"]} == set(page.chunks)


def named_chunks(data: Any) -> list[str]:
    if isinstance(data, dict):
        own = [data["chunk"]] if isinstance(data.get("chunk"), str) else []
        return own + [chunk for value in data.values() for chunk in named_chunks(value)]
    return [chunk for one in data for chunk in named_chunks(one)] if isinstance(data, list) else []


def check(value: Any, hint: Any, where: str) -> None:
    said = mismatch(value, hint, where)
    assert said is None, said


def mismatch(value: Any, hint: Any, where: str) -> str | None:
    """What is not as declared; None if everything is."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Annotated, NotRequired):
        return mismatch(value, inner[0], where)
    if origin in (Union, types.UnionType):
        found = [mismatch(value, one, where) for one in inner]
        return None if None in found else found[0]
    if origin is Literal:
        return None if value in inner else f"{where} is {value!r}, not one of {inner}"
    if origin is list:
        if type(value) is not list:
            return f"{where} is no list"
        return next(filter(None, (mismatch(one, inner[0], f"{where}[{at}]") for at, one in enumerate(value))), None)
    if origin is dict:
        if type(value) is not dict:
            return f"{where} is no object"
        return next(filter(None, (mismatch(one, inner[1], f"{where}.{name}") for name, one in value.items())), None)
    if is_typeddict(hint):
        return _mismatch_of_object(value, hint, where)
    # JavaScript has one kind of number; a truth value is none.
    expected = (int, float) if hint is float else hint
    right = isinstance(value, expected) and (hint is bool or not isinstance(value, bool))
    return None if right else f"{where} is {value!r:.60}, not {hint.__name__}"


def _mismatch_of_object(value: Any, hint: Any, where: str) -> str | None:
    if type(value) is not dict:
        return f"{where} is no object"
    hints = get_type_hints(hint, include_extras=True)
    needed = {name for name, one in hints.items() if get_origin(one) is not NotRequired}
    if not needed <= set(value) <= set(hints):
        return f"{where} has {sorted(value)}, expected {sorted(hints)}"
    return next(filter(None, (mismatch(one, hints[name], f"{where}.{name}") for name, one in value.items())), None)
