"""Any result in a terminal, as its largest rows, and in JSON or CSV, as all of them."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import xarray as xr

from identiscope.token_text import shown_token
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
    """At most so many rows, those of the greatest size; then what was left out: rows, columns and arrays."""
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
    kept, dropped = _that_fit(columns)
    title = str(result.attrs.get("method", "result")).replace("_", " ")
    said = result.attrs.get("says")
    screen = console()
    screen.print(f"{title}: {said}" if said else title, markup=False, style="bold")
    print_table(
        "",
        {name.replace("_", " "): columns[name][0] for name in kept},
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
    if dropped:
        notes.append(f"columns that have no room here: {', '.join(dropped)}")
    arrays = [f"{name} [{', '.join(own)}]" for name, own in table.attrs["left_out"].items()]
    if arrays:
        notes.append(f"in the result, and not in the table: {', '.join(arrays)}")
    for note in notes:
        screen.print(note, markup=False, style="dim")


def _that_fit(columns: Mapping[str, tuple[str, Sequence[Any]]]) -> tuple[list[str], list[str]]:
    """The columns for which there is room, and the others."""
    kept: list[str] = []
    room = WIDTH
    for name, (_, cells) in columns.items():
        width = 2 + max([len(name), *(len(shown(cell)) for cell in cells)])
        room -= width
        if room < 0 and kept:
            break
        kept.append(name)
    return kept, [name for name in columns if name not in kept]
