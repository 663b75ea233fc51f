"""Tables for a terminal. Takes plain values, knows nothing of tensors."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

# Our widest table.
WIDTH = 120


def print_table(title: str, columns: Mapping[str, str], rows: Sequence[Sequence[Any]], console: Console) -> None:
    """Print rows under a title. columns: heading → "left" or "right"."""
    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold", box=None, pad_edge=False)
    for heading, side in columns.items():
        table.add_column(heading, justify="right" if side == "right" else "left", no_wrap=True)
    for row in rows:
        # Text, not markup: a token may look like markup, as [SEP] does.
        table.add_row(*(Text(shown(cell)) for cell in row))
    console.print(table)


def shown(value: Any) -> str:
    """A cell as it is printed."""
    if isinstance(value, float):
        return "–" if value != value else f"{value:.3f}"
    return str(value)


def console(*, stderr: bool = False) -> Console:
    """A console wide enough for our tables, also into a pipe."""
    made = Console(highlight=False, stderr=stderr)
    return made if made.width >= WIDTH else Console(highlight=False, width=WIDTH, stderr=stderr)
