"""One way from what a method gives to a score for every input: maps to mixtures, mixtures to scores."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from identiscope.asking.ask import Numbers, bound, numbers_of
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
    not; of maps that each promise something, what the one promises that is off the most; passes: that did not go
    through the runs of the outcome."""

    score: np.ndarray
    conversion: str
    error: np.ndarray | None = None
    promised: float = float("nan")
    residual: float = float("nan")
    passes: float = 0.0


def scored(one: Method, trace: "Trace", runs: OutcomeRuns, stream: str, options: Mapping[str, Any]) -> Scored:
    """What a method of any of these kinds says of each input, for an outcome that is read from a stream."""
    return converted(one, answers(one, trace, runs, stream, options), runs, stream)


def answers(
    one: Method, trace: "Trace", runs: OutcomeRuns, stream: str, options: Mapping[str, Any]
) -> Iterator[Numbers]:
    """What a method says on axes of its own, no more of it than its score needs; maps come a few layers at a time."""
    if one.kind == "map":
        yield from _maps(one, trace, stream, options)
        return
    known = dict(options)
    if one.kind == "mixture":
        # Only what the outcome reads is needed, of a method that can do with less.
        if "tokens" in bound(one, {}).options:
            known["tokens"] = np.flatnonzero(as_numpy(runs.outcome.read)).tolist()
        known = _last_layer(one, trace, stream) | known
    yield numbers_of(one, trace, {"stream": stream, **known})


def converted(one: Method, given: Iterable[Numbers], runs: OutcomeRuns, stream: str) -> Scored:
    """The score that answers become, in the one way that each kind has."""
    # An outcome need not have a derivative to be given scores that need none.
    read = np.empty(0) if one.kind == "score" else as_numpy(runs.outcome.read)
    return _among_all(_CONVERTED[one.kind](one, given, read), runs, stream)


def own_values(one: Method, given: Numbers) -> np.ndarray:
    """The array that an answer is about, on the axes of its kind, in float64."""
    own, values = given.arrays[_main_name(one, given)]
    return np.asarray(values, np.float64).transpose([own.index(axis) for axis in one.family.axes])


def _own_errors(one: Method, given: Numbers) -> np.ndarray | None:
    """The standard errors of what an answer is about, on the same axes; None if it has none."""
    name = f"{_main_name(one, given)}_error"
    if name not in given.arrays:
        return None
    own, values = given.arrays[name]
    errors: np.ndarray = np.asarray(values, np.float64).transpose([own.index(axis) for axis in one.family.axes])
    return errors


def _main_name(one: Method, given: Numbers) -> str:
    return main_array(one.name, {name: own for name, (own, _) in given.arrays.items()}, one.family.axes)


def _of_score(one: Method, given: Iterable[Numbers], read: np.ndarray) -> Scored:
    (result,) = given
    error = _own_errors(one, result)
    values, promised = own_values(one, result), float(result.facts.get("promised_sum", np.nan))
    # Of the scores themselves: what a method says of its residual may count parts that are no input's.
    return Scored(values, "as it is", error, promised, float(values.sum()) - promised)


def _of_mixture(one: Method, given: Iterable[Numbers], read: np.ndarray) -> Scored:
    (result,) = given
    seen = read > 0
    error = _own_errors(one, result)
    if error is not None:
        # Those of different tokens come from the same draw: they may all be off to one side.
        error = read[seen] @ error[-1][seen]
    followed = result.arrays["followed"][1].sum() if "followed" in result.arrays else 0
    return Scored(
        read[seen] @ own_values(one, result)[-1][seen],
        "what the outcome reads of the last layer",
        error if error is not None and error.any() else None,
        # A direction that is followed through the layers is no dearer than a pass.
        passes=float(followed),
    )


def _last_layer(one: Method, trace: "Trace", stream: str) -> dict[str, Any]:
    """The choice of the last layer alone, for a method that leaves the others out of its work."""
    if "layers" not in bound(one, {}).options and "layers" not in _own_parameters(one):
        return {}
    return {"layers": [len(trace.streams[stream].hidden_states) - 2]}


def _own_parameters(one: Method) -> set[str]:
    import inspect

    return {part.name for part in inspect.signature(one.load()).parameters.values() if part.kind is part.KEYWORD_ONLY}


def _maps(one: Method, trace: "Trace", stream: str, options: Mapping[str, Any]) -> Iterator[Numbers]:
    own = [site for site in trace.sites if site.query_stream == site.key_stream == stream]
    if not own:
        raise InputError(f"no attention of {stream} to itself was captured.")
    sites = chosen_sites(trace, None, own[0].kind, stream)
    together = max(1, _CELLS // (sites[0].head_count * len(trace.streams[stream]) ** 2))
    for begin in range(0, len(sites), together):
        layers = [site.layer for site in sites[begin : begin + together]]
        choice = {"layers": layers, "attention": sites[0].kind, "stream": stream}
        yield numbers_of(one, trace, {**choice, **options})


def _of_map(one: Method, given: Iterable[Numbers], read: np.ndarray) -> Scored:
    own = np.eye(len(read))
    rolled = own
    promised = residual = float("nan")
    for result in given:
        if "completeness_residual" in result.arrays:
            off, whole = (result.arrays[name][1] for name in ("completeness_residual", "outcome_change"))
            worst = int(np.abs(off).argmax())
            if not abs(residual) >= abs(off[worst]):
                promised, residual = float(whole[worst]), float(off[worst])
        for mean in own_values(one, result).mean(1):
            rolled = (one.residual * own + (1 - one.residual) * mean) @ rolled
    how = "mean over heads, multiplied up through the layers"
    how += f", {one.residual:g} of the stream kept" if one.residual else ", without the stream"
    how += "; what the outcome reads of the last layer"
    if residual == residual:
        how += "; promised is the sum of a layer's maps, of the layer that is off the most"
    return Scored(read @ rolled, how, promised=promised, residual=residual)


#: Cells of maps that are asked for at once: what is near stays in the processor's cache, and a long text is never held
#: whole.
_CELLS = 2**18
#: Kind → how it becomes a score.
_CONVERTED = {"score": _of_score, "mixture": _of_mixture, "map": _of_map}


def main_array(method: str, axes_of: Mapping[str, Sequence[Any]], axes: tuple[str, ...]) -> str:
    """The array that a result is about, of some with their axes: that of its method's name, or the first that has the
    axes of its kind."""
    fitting = [name for name, own in axes_of.items() if set(own) == set(axes)]
    if not fitting:
        raise InputError(f"{method} gives nothing on the axes {', '.join(axes)}.")
    return method if method in fitting else fitting[0]


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
    conversion = f"{made.conversion}; of {stream} alone"
    return replace(made, score=whole[0], conversion=conversion, error=error)
