"""Outcomes of a word or a class: a logit, a probability, or a difference of two."""

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from identiscope.capture.outcome.choices import chosen, named
from identiscope.capture.outcome.outcome import Outcome, Seen
from identiscope.capture.outcome.places import Logits, logits_of, row_of
from identiscope.errors import InputError

if TYPE_CHECKING:
    from identiscope.capture.trace import Trace

#: What a number can be; the first is what it is if nothing is said. A difference of two is the same in the first two.
UNITS = ("log-probability", "logit", "probability")
_PREFIX = re.compile(rf"({'|'.join(UNITS)}):(.*)", re.DOTALL)
_PLACE = re.compile(r"(.*)@(-?\d+)", re.DOTALL)


def outcome_of_logits(trace: "Trace", given: str | int | None) -> Outcome:
    """What was asked for of the logits, in words or by number; the most likely, if nothing was."""
    if isinstance(given, str) and not given.strip():
        raise InputError(f"outcome={given!r} was given, which is nothing; leave it out for the most likely.")
    unit, asked = "", given
    if isinstance(given, str) and (parts := _PREFIX.fullmatch(given)):
        unit, asked = parts[1], parts[2].strip() or None
    place = None
    if isinstance(asked, str) and (parts := _PLACE.fullmatch(asked)):
        asked, place = parts[1] or None, int(parts[2])
    logits = logits_of(trace, place)
    row = row_of(trace, logits)
    if logits.over == "numbers":
        if unit not in ("", "logit") or (asked is None and row.numel() > 1):
            several = "number" if row.numel() == 1 else "numbers, each of its own"
            raise InputError(
                f"{trace.model.name if trace.model else 'the model'} gives {row.numel()} plain {several}: none is a"
                " probability, and none the most likely. Say which by its name or place (logit:0)."
            )
        unit = "logit"
    unit = unit or UNITS[0]
    if row.numel() == 1 and asked is None:
        number = _number(logits, [(1.0, 0)], "logit")
        return Outcome(f"the number that the model gives{logits.where}", "logit", number, trace)
    if asked is None:
        best = int(row.argmax())
        weights, words = [(1.0, best)], f"{named(trace, logits, best)}{logits.where} (the most likely)"
    else:
        weights, words = chosen(trace, logits, asked)
        words += logits.where
    if logits.over == "labels":
        words += ", which holds or not whatever the others do"
    if len(weights) > 1 and unit == UNITS[0]:
        unit = "logit"  # of classes the same: what all logits have in common is in both
    name = f"{unit} of {words}" if len(weights) == 1 else f"difference in {unit} of {words}"
    choices = partial(_distribution, logits) if logits.over in ("vocabulary", "classes") else None
    return Outcome(name, unit, _number(logits, weights, unit), trace, choices)


def _rows(logits: Logits, seen: Seen) -> Tensor:
    """The logits of each run where the outcome is read, in float64."""
    rows = seen.forward.logits
    assert rows is not None
    if logits.token is not None:
        rows = rows[torch.arange(len(rows), device=rows.device), seen.place(logits.token, rows.shape[1])]
    return rows.double()


def _distribution(logits: Logits, seen: Seen) -> Tensor:
    return _rows(logits, seen).softmax(-1)


def _number(logits: Logits, weights: list[tuple[float, int]], unit: str) -> Callable[[Seen], Tensor]:
    def of(seen: Seen) -> Tensor:
        rows = _rows(logits, seen)
        if unit != "logit":
            rows = torch.nn.functional.logsigmoid(rows) if logits.over == "labels" else rows.log_softmax(-1)
        if unit == "probability":
            rows = rows.exp()
        total: Tensor = sum(weight * rows[:, place] for weight, place in weights)  # type: ignore[assignment]
        return total

    return of
