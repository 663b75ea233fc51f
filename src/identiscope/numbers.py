"""Numbers that someone gave: taken, or refused by name."""

from numbers import Integral
from typing import Any

from identiscope.errors import InputError


def whole_number(name: str, value: Any, least: int, most: int) -> int:
    """A whole number between two others, as Python has it; anything else is refused by name.

    >>> whole_number("batch_size", 8, 1, 64)
    8
    """
    number = int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None
    if number is None or not least <= number <= most:
        limits = f"at least {least}" + (f" and at most {most}" if number is not None and number > most else "")
        raise InputError(f"{name}={short(value)} was given; expected a whole number, {limits}.")
    return number


def short(value: Any) -> str:
    """A value as an error shows it."""
    try:
        shown = repr(value)
    except ValueError:  # a whole number of more digits than Python writes
        return "a number of thousands of digits"
    return shown if len(shown) <= 60 else f"{shown[:57]}…"
