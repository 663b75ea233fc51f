"""What one kind of trial came to."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """goal: what was tried, in words; cases: how many; failures: what went wrong, a line each; note: what else to
    know."""

    goal: str
    cases: int
    failures: tuple[str, ...] = ()
    note: str = ""
