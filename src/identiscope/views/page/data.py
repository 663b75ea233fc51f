"""A page: a header that says what there is, section by section, and chunks with the numbers."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any

import numpy as np
import xarray as xr

from identiscope.views.page.shapes import Header, Label, SectionData, SectionHeader, SectionKind

FORMAT = "identiscope-page-2"

#: What no section may be called: elements of the page itself have these names.
TAKEN = ("header", "viewer", "serve", "verdict")


@dataclass(frozen=True)
class Section:
    """A part of a page: what draws it, what it is called and says, and its data with their chunks (gzip) by name.

    `name` is a wish: on a page that has it already another number is added to it.
    """

    kind: SectionKind
    title: str
    says: str
    data: SectionData
    chunks: Mapping[str, bytes] = field(default_factory=dict)
    name: str = ""


@dataclass(frozen=True)
class Page:
    """A header (plain JSON values) and gzip chunks by name: what a report embeds and a notebook or a server sends."""

    header: Header
    chunks: dict[str, bytes] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The names of the sections, in order."""
        return [section["name"] for section in self.header["sections"]]

    def section(self, name: str) -> SectionHeader:
        """The section of this name.

        >>> page.section("attention")["data"]["layers"]
        """
        return self.header["sections"][self.names.index(name)]

    def taken(self, name: str) -> Section:
        """The section of this name with its chunks, to be put elsewhere."""
        one = self.section(name)
        chunks = {chunk: self.chunks[f"{name}.{chunk}"] for chunk in one["chunks"]}
        return Section(one["kind"], one["title"], one["says"], one["data"], chunks, name)

    def having(self, chunks: Mapping[str, bytes] | None = None, **parts: Any) -> "Page":
        """The same page with other words in its header, or with more chunks."""
        header: Any = {**self.header, **parts}
        return replace(self, header=header, chunks=self.chunks | dict(chunks or {}))

    def with_section(self, section: Section) -> "Page":
        """The page with one more section at its end, under a name of its own."""
        wanted = plain_name(section.name or section.kind)
        name, count = wanted, 1
        while name in (*self.names, *TAKEN):
            count += 1
            name = f"{wanted}-{count}"
        return self._put(section, name, [*self.header["sections"], _described(section, name)])

    def with_other(self, name: str, section: Section) -> "Page":
        """The page with another section in place of the one of this name; chunks that it does not bring stay."""
        described = _described(section, name)
        before = self.section(name)
        described["chunks"] = list(dict.fromkeys([*before["chunks"], *described["chunks"]]))
        sections = [described if one["name"] == name else one for one in self.header["sections"]]
        return self._put(section, name, sections)

    def _put(self, section: Section, name: str, sections: list[SectionHeader]) -> "Page":
        return self.having({f"{name}.{chunk}": data for chunk, data in section.chunks.items()}, sections=sections)


def _described(section: Section, name: str) -> SectionHeader:
    return {
        "name": name,
        "kind": section.kind,
        "title": section.title,
        "says": section.says,
        "chunks": list(section.chunks),
        "data": section.data,
    }


def empty_page(title: str, subtitle: str = "", *, verdict: Sequence[str] = (), notes: Sequence[str] = ()) -> Page:
    """A page with nothing but its title and some words."""
    return Page(
        {
            "format": FORMAT,
            "version": version("identiscope"),
            "title": title,
            "subtitle": subtitle,
            "verdict": list(verdict),
            "notes": list(notes),
            "sections": [],
        }
    )


def plain_name(words: str) -> str:
    """Words as a name that an address, an element and a file may have: small letters, digits and hyphens.

    >>> plain_name("Hidden_token attribution")
    'hidden-token-attribution'
    """
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")[:60] or "section"


def tokens_of(result: xr.Dataset, axis: str) -> list[str]:
    """The tokens along an axis of a result, or its positions."""
    names = result.coords.get(f"{axis}_token", result.coords.get(axis))
    if names is None or names.dims != (axis,):
        return [str(place) for place in range(result.sizes[axis])]
    return [str(token) for token in names.values]


def labels_of(result: xr.Dataset, axis: str) -> list[Label]:
    """What the places of an axis are called: numbers or words."""
    values = result[axis].values if axis in result.coords and result[axis].dims == (axis,) else None
    return [label(value) for value in (range(result.sizes[axis]) if values is None else values)]


def label(value: Any) -> Label:
    """A whole number as one, all else as words."""
    return int(value) if isinstance(value, (int, np.integer)) and not isinstance(value, bool) else str(value)


def plain(value: Any) -> Any:
    """The same in what JSON knows; what is not a number becomes null."""
    if isinstance(value, np.ndarray):
        return [plain(part) for part in value.tolist()] if value.ndim else plain(value.item())
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, (np.integer, int)) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, (np.floating, float)):
        return float(value) if np.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, str)) else str(value)
