"""What a JSON value must look like, said as a value: {"texts": COUNT, "statuses": Each(COUNT)}."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

#: A whole number that is not negative, and that any program can hold.
COUNT = "a whole number"
#: A number or null.
MEAN = "a number or null"
#: A SHA-256, in hexadecimal.
HASH = "a SHA-256"
TEXT = "a text"
NUMBER = "a number"
TRUTH = "true or false"
ANYTHING = "anything"


@dataclass(frozen=True)
class Each:
    """An object with any names, whose values are all of a shape."""

    shape: Any


def check_shape(value: Any, shape: Any, place: str = "it") -> None:
    """Refuse, with a ValueError that names the place, a value that is not as the shape says.

    >>> check_shape({"texts": 3}, {"texts": COUNT})
    """
    trouble = _trouble(value, shape)
    if trouble is not None:
        names, words = trouble
        raise ValueError(f"{' of '.join((*map(_short, names), place))} {words}")


def _trouble(value: Any, shape: Any) -> tuple[list[Any], str] | None:
    """What is wrong, and by which names it is reached, the last one first; None if nothing is."""
    if isinstance(shape, (dict, Each)):
        if not isinstance(value, dict):
            return [], f"is {_short(value)}, expected an object"
        if isinstance(shape, dict) and value.keys() != shape.keys():
            return [], f"lacks or has too much: {_short(sorted(value.keys() ^ shape.keys()))}"
        for name, part in value.items():
            trouble = _trouble(part, shape.shape if isinstance(shape, Each) else shape[name])
            if trouble is not None:
                trouble[0].append(name)
                return trouble
    elif isinstance(shape, list):
        if not isinstance(value, list):
            return [], f"is {_short(value)}, expected a list"
        for part in value:
            trouble = _trouble(part, shape[0])
            if trouble is not None:
                return trouble
    elif not _CHECKS[shape](value):
        return [], f"is {_short(value)}, expected {shape}"
    return None


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_mean(value: Any) -> bool:
    return value is None or _is_number(value)


def _is_number(value: Any) -> bool:
    return _is_whole(value) or (isinstance(value, float) and math.isfinite(value))


_CHECKS: dict[str, Callable[[Any], bool]] = {
    COUNT: _is_whole,
    MEAN: _is_mean,
    HASH: lambda value: isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None,
    TEXT: lambda value: isinstance(value, str),
    NUMBER: _is_number,
    TRUTH: lambda value: isinstance(value, bool),
    ANYTHING: lambda value: True,
}


def _short(value: Any) -> str:
    shown = ascii(value) if not isinstance(value, int) or abs(value) < 10**50 else "a huge number"
    return shown if len(shown) <= 60 else f"{shown[:57]}…"
