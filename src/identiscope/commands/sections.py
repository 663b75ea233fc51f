"""Where a command stands in `identiscope --help`: each says so itself."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

#: What people want, in the order in which they usually want it.
SECTIONS = {
    "look": "Look at a text",
    "explain": "Explain what a model does with it",
    "corpus": "Over a corpus",
    "papers": "What papers did",
}
Placed = TypeVar("Placed", bound=click.Command)
_PLACES: dict[click.Command, tuple[str, int]] = {}


def listed(section: str, place: int) -> Callable[[Placed], Placed]:
    """Put a command into a section of the help; place: commands of a section stand in the order of these numbers.

    >>> @listed("look", 10)
    ... @click.command()
    ... def check(): ...
    """
    if section not in SECTIONS:
        raise ValueError(f"there is no section {section!r}; there are {', '.join(SECTIONS)}")

    def put(command: Placed) -> Placed:
        _PLACES[command] = (section, place)
        return command

    return put


def commands() -> list[click.Command]:
    """All commands that were listed, in their order."""
    order = list(SECTIONS)
    return sorted(_PLACES, key=lambda command: (order.index(_PLACES[command][0]), _PLACES[command][1]))


class InSections(click.Group):
    """A group whose help shows its commands by section. (A base class of click's.)"""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the sections."""
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """A heading, then its commands."""
        width = max(map(len, self.commands), default=0)
        for section, heading in SECTIONS.items():
            rows = [
                (name.ljust(width), command.get_short_help_str(formatter.width - 6 - width))
                for name, command in self.commands.items()
                if _PLACES.get(command, ("", 0))[0] == section and not command.hidden
            ]
            write_rows(formatter, heading, rows)


def write_rows(formatter: click.HelpFormatter, heading: str, rows: list[tuple[Any, str]]) -> None:
    """A heading with names and what is said of them, if there are any."""
    if rows:
        with formatter.section(heading):
            formatter.write_dl(rows)
