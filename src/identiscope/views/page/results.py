"""Pages on results: each in the section that shows it, several beside each other."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import xarray as xr

from identiscope.errors import InputError
from identiscope.views.page.data import Page, Section, empty_page
from identiscope.views.page.plain import table_section
from identiscope.views.page.sections import plain_section, section_of
from identiscope.views.tables.explanation import AGREEMENT, agreement_table, has_tables, told, top_table

#: How much of a title tells results of one method apart.
_MOST_DIFFERENCES, _LONGEST_VALUE = 3, 24


def with_result(page: Page, result: xr.Dataset, name: str | None = None) -> Page:
    """Add any result; name: of its section, instead of the method's."""
    section = section_of(result)
    page = page.with_section(section if name is None else replace(section, name=name))
    for table in _beside(result):
        page = page.with_section(table)
    if section.kind == "plain" or not _says_more(result, section.kind):
        return page
    return page.with_section(replace(plain_section(result), title=f"{section.title}: all numbers"))


#: Tokens of each method in the table of what matters most.
_TOP = 5


def _beside(result: xr.Dataset) -> Iterator[Section]:
    """What an explanation says beside its scores: what each method took and promised, how far they agree, and which
    could not be asked."""
    # Of a part of an explanation there is only the view itself.
    if result.attrs.get("kind") != "explanation" or not has_tables(result):
        return
    columns, rows = top_table(result, _TOP)
    if rows:
        yield replace(table_section("What matters most", list(columns), rows), says=f"{told(result)}.")
    columns, rows = agreement_table(result)
    if rows:
        yield replace(table_section("Do they agree?", list(columns), rows), says=AGREEMENT)
    named = zip(result["method"].values.tolist(), result["failed"].values.tolist(), strict=True)
    failed = [(name, why) for name, why in named if why]
    if failed:
        yield table_section("Not asked, and why", ["method", "why"], failed)


def _says_more(result: xr.Dataset, kind: str) -> bool:
    """Whether numbers that people look up are not in the view, so that tables are to follow it.

    Of a corpus it shows means only, not their spread; of heads and intervals only what has their axes.
    """
    axes = {values.dims for values in result.data_vars.values()}
    return "column" in result.dims or (kind in ("head", "freedom") and len(axes) > 1)


def with_results(page: Page, results: Sequence[xr.Dataset]) -> Page:
    """Add several; titles of those of one method say in what they differ."""
    for result, difference in zip(results, _differences(results), strict=True):
        before = len(page.header["sections"])
        page = with_result(page, result)
        if difference:
            sections: list[Any] = list(page.header["sections"])
            sections[before:] = [one | {"title": f"{one['title']}: {difference}"} for one in sections[before:]]
            page = page.having(sections=sections)
    return page


def result_page(*results: xr.Dataset) -> Page:
    """A page on results alone; a verdict among their attributes comes first."""
    if not results:
        raise InputError("no result was given; give one or more.")
    titles = dict.fromkeys(str(one.attrs.get("method", "result")).replace("_", " ").capitalize() for one in results)
    models = dict.fromkeys(str(one.attrs.get("model_name", one.attrs.get("model", ""))) for one in results)
    said = [
        f"{words}{one.attrs[name]}"
        for one in results
        for name, words in (("verdict", ""), ("rule", "Rule: "))
        if name in one.attrs
    ]
    return with_results(empty_page(" · ".join(titles), " · ".join(filter(None, models)), verdict=said), results)


def _differences(results: Sequence[xr.Dataset]) -> Iterator[str]:
    """What sets each result apart from the others of its method, in words; nothing where it is the only one."""
    facts = [dict(_facts(result.attrs)) for result in results]
    for place, result in enumerate(results):
        others = [
            facts[at]
            for at, other in enumerate(results)
            if at != place and other.attrs.get("method") == result.attrs.get("method")
        ]
        own = [
            f"{name} {value}"
            for name, value in facts[place].items()
            if any(other.get(name) != value for other in others)
        ]
        yield ", ".join(own[:_MOST_DIFFERENCES])


def _facts(attributes: Mapping[Any, Any]) -> Iterator[tuple[str, str]]:
    """Attributes that fit into a title, options among them."""
    for name, value in attributes.items():
        if isinstance(value, Mapping):
            yield from _facts(value)
        elif isinstance(value, (str, int, float, bool)) and len(str(value)) <= _LONGEST_VALUE and name != "version":
            yield str(name), str(value)
