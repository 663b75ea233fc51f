"""Options that commands share."""

from collections.abc import Callable
from typing import Any

import click


class Numbers(click.ParamType[list[int]]):
    """A choice of whole numbers: `3`, `0,2,5` or `0-3`. (A base class of click's.)"""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        """The numbers named."""
        if isinstance(value, list):
            return value
        chosen: list[int] = []
        for part in str(value).split(","):
            first, _, last = part.strip().partition("-")
            if not first.isdigit() or (last and not last.isdigit()):
                self.fail(f"{value!r} is not a list of numbers such as 3, 0,2,5 or 0-3", param, ctx)
            if last and int(last) < int(first):
                self.fail(f"{part!r} runs backwards; give the smaller number first", param, ctx)
            chosen += range(int(first), int(last or first) + 1)
        return chosen


def model_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of every command that loads a model and runs a text."""
    for option in (
        click.option("--truncate", is_flag=True, help="Cut a text that is too long for the model, and say how much."),
        click.option("--target", help="For an encoder–decoder: the text the decoder has been given."),
        click.option("--revision", help="Revision of a model on the hub."),
        click.option("--trust-remote-code", is_flag=True, help="Run code that comes with the model."),
    ):
        command = option(command)
    return command
