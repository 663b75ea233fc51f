"""How work tells how far it is: `progress(done, total)`, the same for all of it.

Whoever wants to hear more gives a `Listener`, which is told in words what is being done, and how a Run goes on.
"""

from collections.abc import Callable
from typing import Any

#: Called as the work goes on, with how much is done and of how much.
Progress = Callable[[int, int], None]

#: Steps that a part of the work counts as, whatever it is counted in itself.
STEPS = 1000


class Listener:
    """A progress that hears more than a function does."""

    def __call__(self, done: int, total: int) -> None:
        """So much is done, of so much."""

    def doing(self, words: str) -> None:
        """What is being done now."""

    def running(self, state: Any) -> None:
        """How a Run goes on: a `RunProgress`."""


def say(progress: Progress | None, words: str) -> None:
    """Tell what is being done, if anyone listens."""
    if isinstance(progress, Listener):
        progress.doing(words)


def tell(progress: Progress | None, words: str, done: int, total: int) -> None:
    """What is being done, how much of it is, and of how much, if anyone listens."""
    say(progress, words)
    if progress is not None:
        progress(done, total)


def part_of(progress: Progress | None, number: int, count: int, name: str = "") -> Progress | None:
    """The progress of one of several equal parts, whose words begin with its name.

    >>> part_of(print, 1, 4)(5, 10)
    1500 4000
    """
    return None if progress is None else _Part(progress, number, count, name)


class _Part(Listener):
    def __init__(self, whole: Progress, number: int, count: int, name: str) -> None:
        self.whole, self.number, self.count, self.name = whole, number, count, name

    def __call__(self, done: int, total: int) -> None:
        self.whole(self.number * STEPS + STEPS * done // total, self.count * STEPS)

    def doing(self, words: str) -> None:
        say(self.whole, self.name + words)
