"""One way from what a method gives to a score for every input: maps to mixtures, mixtures to scores."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from identiscope.asking.ask import ask_unchecked, bound
from identiscope.errors import InputError
from identiscope.linalg.devices import as_numpy
from identiscope.methods.fields import chosen_sites
from identiscope.methods.outcome_runs import OutcomeRuns
from identiscope.methods.registry import Method

if TYPE_CHECKING:
    from identiscope.capture import Trace


@dataclass(frozen=True, eq=False)
class Scored:
    """score [input], NaN for inputs that the method says nothing of; conversion: how it was made, in words; error
    [input], a standard error, where there is one; promised: what the scores are to add up to, and by how much they do
    not."""

    score: np.ndarray
    conversion: str
    error: np.ndarray | None = None
    promised: float = float("nan")
    residual: float = float("nan")


def scored(one: Method, trace: "Trace", runs: OutcomeRuns, stream: str, options: Mapping[str, Any]) -> Scored:
    """What a method of any of these kinds says of each input, for an outcome that is read from a stream."""
    read = as_numpy(runs.outcome.read)
    made = _CONVERTED[one.kind](one, trace, stream, read, options)
    return _among_all(made, runs, stream)


def _of_score(one: Method, trace: "Trace", stream: str, read: np.ndarray, options: Mapping[str, Any]) -> Scored:
    result = ask_unchecked(one, trace, {"stream": stream, **options})
    name = main_array(result, ("input",))
    error = result[f"{name}_error"].values if f"{name}_error" in result else None
    promised, residual = (float(result.attrs.get(part, np.nan)) for part in ("promised_sum", "residual"))
    return Scored(result[name].values.astype(np.float64), "as it is", error, promised, residual)


def _of_mixture(one: Method, trace: "Trace", stream: str, read: np.ndarray, options: Mapping[str, Any]) -> Scored:
    own = bound(one, {}).options
    known = dict(options)
    # Only what the outcome reads is needed, of a method that can do with less.
    if "tokens" in own:
        known["tokens"] = np.flatnonzero(read).tolist()
    result = ask_unchecked(one, trace, {"stream": stream, **_last_layer(one, trace, stream), **known})
    name = main_array(result, ("layer", "output", "input"))
    last = result[name].isel(layer=-1).transpose("output", "input").values.astype(np.float64)
    seen = read > 0
    return Scored(read[seen] @ last[seen], "what the outcome reads of the last layer")


def _last_layer(one: Method, trace: "Trace", stream: str) -> dict[str, Any]:
    """The choice of the last layer alone, for a method that leaves the others out of its work."""
    if "layers" not in bound(one, {}).options and "layers" not in _own_parameters(one):
        return {}
    return {"layers": [len(trace.streams[stream].hidden_states) - 2]}


def _own_parameters(one: Method) -> set[str]:
    import inspect

    return {part.name for part in inspect.signature(one.load()).parameters.values() if part.kind is part.KEYWORD_ONLY}


def _of_map(one: Method, trace: "Trace", stream: str, read: np.ndarray, options: Mapping[str, Any]) -> Scored:
    own = [site for site in trace.sites if site.query_stream == site.key_stream == stream]
    if not own:
        raise InputError(f"no attention of {stream} to itself was captured.")
    sites = chosen_sites(trace, None, own[0].kind, stream)
    count = len(trace.streams[stream])
    together = max(1, _CELLS // (sites[0].head_count * count**2))
    rolled = np.eye(count)
    for begin in range(0, len(sites), together):
        layers = [site.layer for site in sites[begin : begin + together]]
        choice = {"layers": layers, "attention": sites[0].kind, "stream": stream}
        result = ask_unchecked(one, trace, {**choice, **options})
        name = main_array(result, ("layer", "head", "query", "key"))
        for mean in result[name].transpose("layer", "head", "query", "key").values.astype(np.float64).mean(1):
            rolled = (one.residual * np.eye(count) + (1 - one.residual) * mean) @ rolled
    how = "mean over heads, multiplied up through the layers"
    how += f", {one.residual:g} of the stream kept" if one.residual else ", without the stream"
    return Scored(read @ rolled, f"{how}; what the outcome reads of the last layer")


#: Cells of maps that are asked for at once, so that a long text is never held whole.
_CELLS = 2**22
#: Kind → how it becomes a score.
_CONVERTED = {"score": _of_score, "mixture": _of_mixture, "map": _of_map}


def main_array(result: xr.Dataset, axes: tuple[str, ...]) -> str:
    """The array that a result is about: that of its method's name, or the first on the axes of its kind."""
    fitting = [str(name) for name, values in result.data_vars.items() if set(values.dims) == set(axes)]
    name = str(result.attrs.get("method"))
    if not fitting:
        raise InputError(f"{name} gives nothing on the axes {', '.join(axes)}.")
    return name if name in fitting else fitting[0]


def _among_all(made: Scored, runs: OutcomeRuns, stream: str) -> Scored:
    """A score of the inputs of one stream among those of all; the others it says nothing of."""
    lengths = [len(part) for part in runs.sources]
    if len(made.score) == sum(lengths):
        return made
    place = [part.name for part in runs.sources].index(stream)
    begin = sum(lengths[:place])
    whole = np.full((2, sum(lengths)), np.nan)
    whole[0, begin : begin + lengths[place]] = made.score
    if made.error is not None:
        whole[1, begin : begin + lengths[place]] = made.error
    error = None if made.error is None else whole[1]
    return Scored(whole[0], f"{made.conversion}; of {stream} alone", error, made.promised, made.residual)
