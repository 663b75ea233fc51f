"""The options of a Run as its manifest holds them: everything that its numbers depend on, checked."""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from identiscope.errors import InputError
from identiscope.numbers import short, whole_number

#: What an option may be: between these, or None. What is more was not meant: it would fill the memory, or the types
#: that hold the numbers.
_RANGES = {
    "max_tokens": (3, 2**31 - 1), "batch_size": (1, 2**20), "shard_size": (1, 2**31 - 1), "probes": (2, 2**20),
    "seed": (-(2**63), 2**63 - 1), "threads": (1, 1024), "subspace_length": (1, 2**16),
}  # fmt: skip
_MAY_BE_NONE = ("max_tokens", "subspace_length")
_TRUTHS = ("keep_texts", "hidden_states")
_CHOICES = ("layers", "heads")
_NAMES = {"methods", "settings", "too_long", *_RANGES, *_TRUTHS, *_CHOICES}
_SETTING = re.compile(r"([a-z_][a-z_0-9]*)\.([a-z_][a-z_0-9]*)=(.+)", re.DOTALL)
#: Layers and heads are written as 16-bit numbers.
MOST_LAYERS = 2**15 - 2


def checked_options(given: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Options in one form, or an error that says which cannot be. known: the methods that there are.

    Who reads a Run knows those that the Run describes; who computes one, those that can be computed.
    """
    # Runs that were made before there were any say nothing of settings.
    given = {"settings": (), **given}
    if given.keys() != _NAMES:
        raise InputError(f"the options {short(sorted(given.keys() ^ _NAMES))} are missing, or none of a Run.")
    checked: dict[str, Any] = {"methods": _methods(given["methods"], known), "too_long": given["too_long"]}
    checked["settings"] = _settings(given["settings"], checked["methods"])
    if not isinstance(given["too_long"], str) or given["too_long"] not in ("refuse", "cut", "keep"):
        raise InputError(f"too_long={short(given['too_long'])} was given; expected refuse, cut or keep.")
    for name, (least, most) in _RANGES.items():
        lacks = given[name] is None and name in _MAY_BE_NONE
        checked[name] = None if lacks else whole_number(name, given[name], least, most)
    for name in _CHOICES:
        checked[name] = _choice(name, given[name])
    for name in _TRUTHS:
        if not isinstance(given[name], bool):
            raise InputError(f"{name}={short(given[name])} was given; expected True or False.")
        checked[name] = given[name]
    return checked


def described_options(checked: Mapping[str, Any]) -> dict[str, Any]:
    """Options as JSON holds them; settings only if there are any."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in checked.items()
        if name != "settings" or value
    }


def settings_of(settings: Iterable[str], method: str) -> dict[str, Any]:
    """The options that a method was set to: numbers, truths and lists as JSON writes them, anything else as text.

    >>> settings_of(["rollout.residual=0.3", "statistic_interval.on=special"], "rollout")
    {'residual': 0.3}
    """
    parsed = {}
    for setting in settings:
        parts = _SETTING.fullmatch(setting)
        if parts is not None and parts[1] == method:
            try:
                parsed[parts[2]] = json.loads(parts[3])
            except ValueError:
                parsed[parts[2]] = parts[3]
    return parsed


def chosen(numbers: Sequence[int] | None) -> tuple[int, ...] | None:
    """A choice in one form: sorted, each once."""
    return None if numbers is None else tuple(sorted(set(numbers)))


def _settings(given: Any, methods: Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InputError(f"settings={short(given)} was given; expected several, such as rollout.residual=0.3.")
    named = tuple(given)
    for setting in named:
        parts = _SETTING.fullmatch(setting) if isinstance(setting, str) else None
        if parts is None or parts[1] not in methods:
            raise InputError(
                f"the setting {short(setting)} was given; expected METHOD.OPTION=VALUE, such as rollout.residual=0.3,"
                f" of a method that is asked for: {', '.join(methods)}."
            )
    return tuple(sorted(named))


def _methods(given: Any, known: Collection[str]) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InputError(f"methods={short(given)} was given; expected several names of {', '.join(known)}.")
    named = tuple(given)
    unknown = [name for name in named if not isinstance(name, str) or name not in known]
    if unknown or not named:
        raise InputError(
            f"methods {short(unknown) if unknown else 'none'} were asked for; there are {', '.join(known)}."
        )
    if len(set(named)) != len(named):
        raise InputError(f"methods {', '.join(named)} were asked for; name each once.")
    return named


def _choice(name: str, given: Any) -> tuple[int, ...] | None:
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InputError(f"{name}={short(given)} was given; expected several whole numbers, such as (0, 3).")
    numbers = chosen([whole_number(name, number, 0, MOST_LAYERS) for number in given])
    if not numbers:
        raise InputError(f"{name}=() was given; expected at least one, or None for all.")
    return numbers
