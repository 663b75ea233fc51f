"""`explain` in a Run: what the outcome of each text rests on, a row for each token, a column for each method."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from identiscope.asking.explaining import chosen_methods, explain, scores_of
from identiscope.capture.trace import Trace
from identiscope.errors import ArgumentError, InputError
from identiscope.runs.compute.filling import FromInputs, RunMethod
from identiscope.runs.format.statistics import Column
from identiscope.runs.format.tables import INPUTS
from identiscope.validation import checked_values

#: What `explain` can be set to; the seed is that of the Run.
_SETTINGS = ("methods", "outcome", "budget", "baseline")


def explanations(settings: Mapping[str, Any]) -> RunMethod:
    """The table of explanations by the methods that `methods` names, by default the fast ones."""
    columns = tuple(Column(one.name, one.says, -1, 1) for one in chosen_methods(settings.get("methods", "fast")))
    return RunMethod(INPUTS, columns, FromInputs(partial(_filled, [column.name for column in columns])), True)


def checked_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of `explain`, checked as its arguments are."""
    if strange := sorted(given.keys() - set(_SETTINGS)):
        raise InputError(f"explain.{strange[0]} was set; in a Run there are {', '.join(_SETTINGS)}.")
    try:
        checked = checked_values(explain, given)
        chosen_methods(checked.get("methods", "fast"))
    except ArgumentError as error:
        raise ArgumentError(f"of the settings of explain, {error}") from error
    return checked


def _filled(names: list[str], trace: Trace, *, seed: int, settings: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    own = dict(settings)
    own.pop("methods", None)
    runs, answers = scores_of(trace, own.pop("outcome", None), names, {**own, "seed": seed})
    # Of a model with a decoder, the tokens of the text alone.
    text, streams = trace.main, [source.name for source in runs.sources]
    begin = sum(len(source) for source in runs.sources[: streams.index(text.name)])
    own_inputs = slice(begin, begin + len(text))
    failed = "; ".join(f"{answer.name}: {answer.failed}" for answer in answers if answer.failed)
    words = {
        "token": np.array(text.tokens, object),
        "special": np.array(text.special, bool),
        "outcome": np.full(len(text), runs.outcome.name, object),
        "failed": np.full(len(text), failed, object),
    }
    return words | {answer.name: answer.scored.score[own_inputs] for answer in answers}
