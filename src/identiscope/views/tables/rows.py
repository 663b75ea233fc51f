"""Any result in a terminal, as its largest rows, and in JSON or CSV, as all of them."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import xarray as xr

from identiscope.token_text import shown_token
from identiscope.views.tables.layers import is_none, layer_sentences
from identiscope.views.tables.result import plain_cell
from identiscope.views.tables.terminal import WIDTH, console, print_table, shown
from identiscope.views.tables.tidy import main_variable, tidy


def json_rows(result: xr.Dataset) -> dict[str, Any]:
    """The whole tidy table in what JSON knows: `rows`, one object each, and the axes of what was `left_out`."""
    table = tidy(result)
    rows = [
        {str(name): plain_cell(value) for name, value in zip(table.columns, row, strict=True)}
        for row in table.itertuples(index=False, name=None)
    ]
    return {"rows": rows, "left_out": {name: list(axes) for name, axes in table.attrs["left_out"].items()}}


def csv_rows(result: xr.Dataset) -> str:
    """The whole tidy table with commas between its cells; what is not a number is empty."""
    table = tidy(result)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    for row in table.itertuples(index=False, name=None):
        writer.writerow("" if value != value else value for value in row)
    return text.getvalue()


def print_rows(result: xr.Dataset, most: int) -> None:
    """At most so many rows, those of the greatest size; then what was left out: rows, columns and arrays.

    What a kind says of its results in words comes first, and alone where there is nothing else.
    """
    title = str(result.attrs.get("method", "result")).replace("_", " ")
    said = result.attrs.get("says")
    screen = console()
    screen.print(f"{title}: {said}" if said else title, markup=False, style="bold")
    sentences, is_all = in_words(result)
    for sentence in sentences:
        screen.print(sentence, markup=False)
    if is_all:
        return
    table = tidy(result, largest=most)
    axes, total = table.attrs["axes"], table.attrs["rows"]
    columns: dict[str, tuple[str, list[Any]]] = {}
    for name in table.columns:
        cells = table[name].tolist()
        of = name.removesuffix("_token")
        if name.endswith("_token") and (of in columns or of in table.columns):
            # A token stands beside its position: there may be several of it.
            columns[of] = (
                "left",
                [f"{place} {shown_token(token)}" for place, token in zip(table[of], cells, strict=True)],
            )
        elif name not in columns and not (name.endswith("_special") and name not in result.data_vars):
            columns[name] = ("left" if cells and isinstance(cells[0], str) else "right", cells)
    # Rows are told apart by their axes: these stay, whatever else has no room.
    kept, everywhere, dropped = _that_fit(columns, [*axes])
    print_table(
        "",
        {_heading(name, columns[name][1]): columns[name][0] for name in kept},
        list(zip(*(columns[name][1] for name in kept), strict=True)),
        screen,
    )
    notes = []
    if total > len(table):
        notes.append(
            f"the {len(table)} largest of {total:,} rows, by {main_variable(result)}; {total - len(table):,} were left"
            " out, and are in --json and --out"
        )
    elif axes:
        notes.append(f"all {total:,} rows, by {', '.join(axes)}")
    if everywhere:
        notes.append(f"in all these rows: {', '.join(f'{name} {shown(columns[name][1][0])}' for name in everywhere)}")
    if dropped:
        notes.append(f"columns that have no room here: {', '.join(dropped)}")
    arrays = [f"{name} [{', '.join(own)}]" for name, own in table.attrs["left_out"].items()]
    if arrays:
        notes.append(f"in the result, and not in the table: {', '.join(arrays)}")
    for note in notes:
        screen.print(note, markup=False, style="dim")


def _that_fit(
    columns: Mapping[str, tuple[str, Sequence[Any]]], axes: Sequence[str]
) -> tuple[list[str], list[str], list[str]]:
    """The columns that are shown, those that say the same of every row and are said once instead, and the others.

    Where not all have room, what is the same in all rows goes first, from the last column on: a line below says as
    much. Then the last columns go.
    """
    kept = list(columns)
    everywhere: list[str] = []
    widths = {name: 2 + _width(_heading(name, cells), cells) for name, (_, cells) in columns.items()}
    for name in reversed(list(columns)):
        cells = columns[name][1]
        if sum(widths[one] for one in kept) <= WIDTH:
            break
        if name not in axes and len(cells) > 1 and len({shown(cell) for cell in cells}) == 1:
            kept.remove(name)
            everywhere.insert(0, name)
    dropped: list[str] = []
    while len(kept) > 1 and sum(widths[one] for one in kept) > WIDTH:
        dropped.insert(0, kept.pop())
    return kept, everywhere, dropped


def _heading(name: str, cells: Sequence[Any]) -> str:
    """A column's name on as many lines as it takes to be no wider than its cells, or than its longest word."""
    words = name.split("_")
    width = max([*map(len, words), *(len(shown(cell)) for cell in cells)])
    lines = [""]
    for word in words:
        longer = f"{lines[-1]} {word}".strip()
        lines = [*lines[:-1], longer] if len(longer) <= width else [*lines, word]
    return "\n".join(lines)


def _width(heading: str, cells: Sequence[Any]) -> int:
    return max([*map(len, heading.split("\n")), *(len(shown(cell)) for cell in cells)])


def in_words(result: xr.Dataset) -> tuple[list[str], bool]:
    """What a kind says of its results in sentences, and whether that is all there is to say."""
    said = SENTENCES.get(str(result.attrs.get("kind")))
    return ([], False) if said is None else (said[0](result), said[1](result))


#: Kind → what says its results in words, and what says whether that is all.
SENTENCES: Mapping[str, tuple[Callable[[xr.Dataset], list[str]], Callable[[xr.Dataset], bool]]] = {
    "layer": (layer_sentences, is_none),
}
