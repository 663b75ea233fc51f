"""Results to go on from: only those of the same model, text and stream, and of the same input to the model."""

from collections.abc import Mapping, Sequence
from typing import Any

import xarray as xr

from identiscope.errors import InputError
from identiscope.methods.earlier import Earlier
from identiscope.methods.registry import Method
from identiscope.results import using

# What must be the same for a result to be taken up again: attribute → what to call it.
_IDENTITY = {
    "model_digest": "model (its weights, adapters or hooks)", "configuration_digest": "model (its configuration)",
    "text_digest": "text", "stream": "stream", "input": "input",
}  # fmt: skip


def earlier_of(one: Method, result: xr.Dataset, now: Mapping[str, Any]) -> Earlier:
    """What a method said before, if it was of what it is asked now; now: the provenance of the present question."""
    check_same(result, now, one.name)
    with using(result, one.name):
        arrays = {str(name): variable.values for name, variable in result.data_vars.items()}
        labels = {str(name): values.values.tolist() for name, values in result.coords.items()}
        return Earlier(arrays, labels, dict(result.attrs))


def check_same(result: xr.Dataset, now: Mapping[str, Any], method: str, more: Sequence[str] = ()) -> None:
    """Refuse to go on from a result of something else; more: further attributes that must be the same."""
    with using(result, method):
        names = _IDENTITY | {name: name for name in more}
        differing = [
            f"{spoken} (there: {_short(result.attrs.get(name))}, now: {_short(now.get(name))})"
            for name, spoken in names.items()
            if result.attrs.get(name) != now.get(name)
        ]
        if differing:
            raise InputError(
                f"the result to resume is of another {', '.join(differing)}. Resume it with what it was made of, or"
                " begin anew."
            )


def _short(value: object) -> str:
    shown = str(value or "unknown")
    return shown if len(shown) <= 20 else f"{shown[:12]}…"
