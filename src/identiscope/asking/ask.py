"""One call shape for every method: `ask(name, trace, **options)` gives a labelled result with its provenance.

The positional parameters of a method's function are filled with fields of the trace, its keyword-only ones are options,
and the kind says how often it is called: once for each layer, for one head, or once for the whole trace.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any
from typing import Literal as Literal  # named in the hints of options, which are read here

import numpy as np
import xarray as xr
from torch import Tensor

from identiscope.asking.provenance import method_provenance
from identiscope.asking.resuming import earlier_of
from identiscope.errors import InputError
from identiscope.linalg.devices import as_numpy
from identiscope.methods.fields import FIELDS, LayerFields, chosen_sites, layer_fields
from identiscope.methods.maps.factored import FactoredAttention
from identiscope.methods.outcome_runs import OutcomeRuns
from identiscope.methods.registry import Method, method
from identiscope.methods.signatures import choices_of
from identiscope.methods.trace_fields import TraceFields, chosen_stream, runs_of
from identiscope.progress import Progress
from identiscope.results import make_result
from identiscope.validation import checked_values

if TYPE_CHECKING:
    from identiscope.capture import Site, Trace

Arrays = dict[str, tuple[tuple[str, ...], Any]]


def ask(name: str, trace: "Trace", *, progress: Progress | None = None, **options: Any) -> xr.Dataset:
    """What a method says of a trace.

    >>> ask("rollout", trace, residual=0.3)

    options: those of the method, and those that all methods of its kind have, such as layers and heads.
    progress(done, total) is called as the work goes on.
    """
    one = method(name)
    # Names first: what is not an option has no hint to be checked against.
    bound(one, options)
    return ask_unchecked(one, trace, checked_values(function_of(name), options), progress)


def ask_unchecked(
    one: Method, trace: "Trace", options: Mapping[str, Any], progress: Progress | None = None
) -> xr.Dataset:
    """The same with options that were checked, or that identiscope itself gives."""
    call = bound(one, options)
    return _ASKED[one.family.scope](one, trace, call, progress)


@dataclass(frozen=True, eq=False)
class Numbers:
    """Arrays by name, with their axes, and what the method says of itself."""

    arrays: Arrays
    facts: Mapping[str, Any]


def numbers_of(one: Method, trace: "Trace", options: Mapping[str, Any]) -> Numbers:
    """The arrays of such a result and what it says of itself, without labels and provenance, and without arrays that
    are made only when asked for: for who goes on with what the method is about.

    `layers` chooses what is computed where a method is asked layer by layer; otherwise all are there.
    """
    call = bound(one, options)
    if one.family.scope == "layer":
        made = _layers(one, trace, call, main=True)
        return Numbers(made.arrays, made.facts)
    answer = call.of(_trace_fields(trace, call.choices).field)
    return Numbers(arrays_of(one, answer, one.axes, main=True), getattr(answer, "facts", {}))


@dataclass(frozen=True)
class Call:
    """A method's function with what it was asked: the options of its kind, and its own."""

    function: Callable[..., Any]
    fields: tuple[str, ...]
    choices: Mapping[str, Any]
    options: Mapping[str, Any]

    @property
    def described(self) -> dict[str, Any]:
        """All options by name, for the provenance; numbers that are gone on from are part of the answer already."""
        given = {name: value for name, value in {**self.choices, **self.options}.items() if name != "resume"}
        return {name: described(value) if name == "outcome" else value for name, value in given.items()}

    def of(self, fields: Callable[[str], Any], progress: Progress | None = None, **more: Any) -> Any:
        """Call the function with these fields; more: what takes the place of a choice."""
        if "progress" in _parameters(self.function):
            more["progress"] = progress
        return self.function(*(fields(name) for name in self.fields), **self.options, **more)


def described(outcome: Any) -> Any:
    """What was asked to be explained, as a file can hold it."""
    if isinstance(outcome, OutcomeRuns):
        return described(outcome.given)
    return getattr(outcome, "__name__", "a function") if callable(outcome) else outcome


def bound(one: Method, given: Mapping[str, Any]) -> Call:
    """The method with these options, the others being what they are by default."""
    function = one.load()
    parameters = _parameters(function).values()
    fields = tuple(part.name for part in parameters if part.kind is part.POSITIONAL_OR_KEYWORD)
    unknown = [name for name in fields if name not in FIELDS]
    if unknown:
        raise InputError(
            f"the function of {one.name} asks for {', '.join(unknown)}; fields are {', '.join(FIELDS)}, and options are"
            " keyword-only."
        )
    own = {part.name: part.default for part in parameters if part.kind is part.KEYWORD_ONLY and part.name != "progress"}
    choices = {name: default for name, (_, default, _) in choices_of(one, fields, own).items()}
    strange = sorted(set(given) - set(choices) - set(own))
    if strange:
        raise InputError(
            f"{one.name} has no option {', '.join(strange)}; it has {', '.join([*choices, *own]) or 'none'}."
        )
    missing = [name for name, default in choices.items() if default is ... and name not in given]
    if missing:
        raise InputError(f"{one.name} needs {' and '.join(missing)}.")
    return Call(
        function,
        fields,
        {name: given.get(name, default) for name, default in choices.items()},
        # `head` is a number of the model's; a function that is given the fields of one head calls that one 0.
        {name: given.get(name, default) for name, default in own.items() if name not in choices},
    )


@cache
def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """What a function takes, looked at once."""
    return inspect.signature(function).parameters


@dataclass(frozen=True, eq=False)
class _Layers:
    """What a method gave for some layers of one attention, stacked, and what it says beside."""

    sites: Sequence["Site"]
    arrays: Arrays
    labels: Mapping[str, Sequence[Any]]
    facts: Mapping[str, Any]


def _layers(
    one: Method, trace: "Trace", call: Call, progress: Progress | None = None, *, main: bool = False
) -> _Layers:
    choices = call.choices
    sites = chosen_sites(trace, choices["layers"], choices["attention"], choices["stream"])
    layers: list[Arrays] = []
    labels: Mapping[str, Sequence[Any]] = {}
    heads = sites[0].heads if choices["heads"] is None else tuple(choices["heads"])
    runs = runs_of(trace, choices["outcome"]) if "outcome" in choices else None
    before = 0.0 if runs is None else runs.passes
    for done, site in enumerate(sites, 1):
        fields = replace(_site_fields(trace, site), keep_bias=choices.get("value_bias", True), runs=runs)
        fields = fields if choices["heads"] is None else fields.of_heads(heads)
        if one.family.exact:
            fields = fields.exactly(call.fields)
        answer = call.of(lambda name, fields=fields: getattr(fields, name))  # type: ignore[misc]
        layers.append(arrays_of(one, answer, one.axes[1:], main=main))
        labels = labels_of(answer)
        if progress is not None:
            progress(done, len(sites))
    stacked = {
        name: (("layer", *axes), np.stack([layer[name][1] for layer in layers]))
        for name, (axes, _) in layers[0].items()
    }
    known = {"layer": [site.layer for site in sites], "head": list(heads), **labels}
    return _Layers(sites, stacked, known, {} if runs is None else outcome_facts(runs, before))


def _by_layer(one: Method, trace: "Trace", call: Call, progress: Progress | None) -> xr.Dataset:
    made = _layers(one, trace, call, progress)
    return _labelled(one, trace, made.sites[0], made.arrays, made.labels, call, made.facts)


def outcome_facts(runs: OutcomeRuns, before: float = 0.0) -> dict[str, Any]:
    """What a result says of the outcome that it explains; before: the passes that were none of its own."""
    outcome = runs.outcome
    value = {"outcome": outcome.name, "outcome_value": outcome.value, "outcome_unit": outcome.unit}
    return value | {"passes": runs.passes - before}


def _of_head(one: Method, trace: "Trace", call: Call, progress: Progress | None) -> xr.Dataset:
    choices = call.choices
    site = chosen_sites(trace, [choices["layer"]], choices["attention"], choices["stream"])[0]
    fields = replace(_site_fields(trace, site).of_head(choices["head"]), keep_bias=choices.get("value_bias", True))
    answer = call.of(lambda name: getattr(fields, name), progress)
    arrays = arrays_of(one, answer, one.axes)
    return _labelled(one, trace, site, arrays, labels_of(answer), call, getattr(answer, "facts", {}))


def _trace_fields(trace: "Trace", choices: Mapping[str, Any]) -> TraceFields:
    return TraceFields(
        trace,
        chosen_stream(trace, choices["stream"]),
        keep_bias=choices.get("value_bias", True),
        summed=choices.get("input") == "embedding_sum",
        fast=choices.get("fast", False),
        given_outcome=choices.get("outcome"),
        baseline_name=choices.get("baseline"),
    )


def _of_trace(one: Method, trace: "Trace", call: Call, progress: Progress | None) -> xr.Dataset:
    choices, fields = call.choices, _trace_fields(trace, call.choices)
    stream = fields.stream
    before = fields.runs.passes if "outcome" in choices else 0.0
    origin = method_provenance(one, trace, call.described) | {"stream": stream.name, "cut": trace.main.cut}
    origin |= {"input": choices["input"]} if "input" in choices else {}
    earlier = choices.get("resume")
    more = {} if earlier is None else {"resume": earlier_of(one, earlier, origin)}
    answer = call.of(fields.field, progress, **more)
    if "blocks" in call.fields:
        origin |= {"path": "replay" if fields.blocks is None else "blocks", "why_replay": fields.why_replay}
    if "outcome" in choices:
        origin |= outcome_facts(fields.runs, before)
    if "baseline" in call.fields:
        origin |= {"baseline": fields.baseline_in_words}
    arrays, labels = arrays_of(one, answer, one.axes), dict(labels_of(answer))
    # What attention moves is the stream's own; what the embeddings bring may be an encoder's too.
    sources = fields.sources if {"embeddings", "baseline", "sides"} & set(call.fields) else [stream]
    coordinates: dict[str, Any] = {}
    for axis, parts in (("output", [stream]), ("input", sources)):
        if any(axis in axes for axes, _ in arrays.values()):
            coordinates[f"{axis}_token"] = (axis, [token for part in parts for token in part.tokens])
            coordinates[f"{axis}_special"] = (axis, [special for part in parts for special in part.special])
    for axis in ("query", "key"):
        if any("cell" in axes for axes, _ in arrays.values()):
            coordinates[f"{axis}_token"] = ("cell", [stream.tokens[int(place)] for place in arrays[axis][1]])
        elif any(axis in axes for axes, _ in arrays.values()):
            coordinates[f"{axis}_token"] = (axis, list(stream.tokens))
    if "layer" not in labels:
        count = next((np.shape(values)[0] for axes, values in arrays.values() if axes[:1] == ("layer",)), 0)
        # What is made of attention has the layers that have such; what is made of hidden states has all blocks.
        sites = [layer.layer for layer in fields.layers] if "layers" in vars(fields) else []
        labels["layer"] = sites if len(sites) == count else list(range(count))
    result = make_result(
        one.name,
        arrays,
        coordinates=coordinates | {name: values for name, values in labels.items() if len(values)},
        provenance=origin | getattr(answer, "facts", {}),
    )
    wanted = choices.get("layers")
    return result if wanted is None else _only_layers(result, wanted)


#: Scope of a kind → how its methods are called.
_ASKED: Mapping[str, Callable[[Method, "Trace", Call, Progress | None], xr.Dataset]] = {
    "layer": _by_layer,
    "head": _of_head,
    "trace": _of_trace,
}


def _only_layers(result: xr.Dataset, layers: Sequence[int]) -> xr.Dataset:
    if "layer" not in result.coords:
        raise InputError(f"layers={list(layers)} was given; {result.attrs['method']} gives one answer for all layers.")
    known = [int(layer) for layer in result["layer"].values]
    missing = [layer for layer in layers if layer not in known]
    if missing or not layers:
        raise InputError(f"layers {list(layers)} were asked for; there are {known[0]} to {known[-1]}.")
    return result.sel(layer=list(layers))


def _site_fields(trace: "Trace", site: "Site") -> LayerFields:
    return replace(layer_fields(site, trace.streams), trace=trace)


def arrays_of(one: Method, answer: Any, axes: tuple[str, ...], *, main: bool = False) -> Arrays:
    """What a function gave, by name, in NumPy: a tensor on the axes of the kind, or what `arrays()` says.

    main: of an answer that makes the rest when asked for, what its method is about alone.
    """
    if isinstance(answer, FactoredAttention):
        answer = answer.dense()
    if main:
        answer = getattr(answer, "main", answer)
    if isinstance(answer, Tensor):
        named: Arrays = {one.name: (axes, answer)}
    elif hasattr(answer, "arrays"):
        named = answer.arrays()
    else:
        raise InputError(f"the function of {one.name} gave {type(answer).__name__}; expected a tensor, or arrays().")
    checked_arrays: Arrays = {}
    for name, (own, values) in named.items():
        cells = as_numpy(values) if isinstance(values, Tensor) else np.asarray(values)
        if cells.ndim != len(own):
            raise InputError(
                f"{one.name} gave {name} of shape {list(cells.shape)}; expected the axes {', '.join(own)}."
            )
        checked_arrays[name] = (own, cells)
    return checked_arrays


def labels_of(answer: Any) -> Mapping[str, Sequence[Any]]:
    """The labels of axes that only this method has."""
    return {name: list(labels) for name, labels in answer.labels().items()} if hasattr(answer, "labels") else {}


def _labelled(
    one: Method,
    trace: "Trace",
    site: "Site",
    arrays: Arrays,
    labels: Mapping[str, Sequence[Any]],
    call: Call,
    facts: Mapping[str, Any] | None = None,
) -> xr.Dataset:
    """A result of one attention: tokens repeat, so they are labels beside the positions and not the index itself."""
    tokens = {"query": trace.streams[site.query_stream].tokens, "key": trace.streams[site.key_stream].tokens}
    axes = {axis for own, _ in arrays.values() for axis in own}
    coordinates: dict[str, Any] = {name: values for name, values in labels.items() if name in axes}
    for axis, names in tokens.items():
        if axis in axes:
            coordinates[f"{axis}_token"] = (axis, list(names))
            if axis == "key":
                coordinates["key_special"] = (axis, list(trace.streams[site.key_stream].special))
        elif "cell" in axes:
            coordinates[f"{axis}_token"] = ("cell", [names[int(place)] for place in arrays[axis][1]])
    return make_result(
        one.name,
        arrays,
        coordinates=coordinates,
        provenance=method_provenance(one, trace, call.described, site) | dict(facts or {}),
    )


def function_of(name: str) -> Callable[..., xr.Dataset]:
    """The public function of a method: its name, its options by name, its documentation."""
    one = method(name)
    # By its function, too: one that was registered for a while may be followed by another of its name.
    return _public_function(one, one.function)


@cache
def _public_function(one: Method, own_function: Callable[..., Any] | None) -> Callable[..., xr.Dataset]:
    function = own_function or one.load()
    call = inspect.signature(function)
    own = [part for part in call.parameters.values() if part.kind is part.KEYWORD_ONLY and part.name != "progress"]
    fields = tuple(part.name for part in call.parameters.values() if part.kind is part.POSITIONAL_OR_KEYWORD)
    positional = [inspect.Parameter("trace", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation="Trace")]
    options = []
    for choice, (annotation, default, _) in choices_of(one, fields, {part.name: 0 for part in own}).items():
        if default is ...:
            positional.append(inspect.Parameter(choice, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=annotation))
        else:
            options.append(
                inspect.Parameter(choice, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            )
    hidden = {part.name for part in (*positional, *options)}
    shown = inspect.Parameter(
        "progress", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Callable[[int, int], None] | None"
    )
    options += [part for part in own if part.name not in hidden]
    signature = inspect.Signature([*positional, *options, shown], return_annotation=xr.Dataset)

    def asked(*args: Any, **kwargs: Any) -> xr.Dataset:
        given = signature.bind(*args, **kwargs).arguments
        return ask_unchecked(one, given.pop("trace"), given, given.pop("progress", None))

    asked.__signature__ = signature  # type: ignore[attr-defined]
    asked.__name__ = asked.__qualname__ = one.name
    asked.__doc__ = _public_documentation(one, function.__doc__ or one.says, positional)
    asked.__annotations__ = {part.name: part.annotation for part in signature.parameters.values()}
    asked.__module__ = function.__module__
    return asked


def _public_documentation(one: Method, written: str, positional: Sequence[inspect.Parameter]) -> str:
    """What the function says of itself, with an example of a trace instead of one of tensors."""
    words, _, _ = inspect.cleandoc(written).partition(">>>")
    given = ", ".join(["trace", *(f"{part.name}=0" for part in positional[1:])])
    return f"{words.rstrip()}\n\n{one.paper}.\n\n>>> identiscope.{one.name}({given})\n"
