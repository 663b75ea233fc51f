"""Where a result comes from, in one form for every result that is made from a trace.

`model` is a name, which says little; `model_digest` is a hash of the weights, and of adapters and hooks around them
(the one under `model.weights` in the manifest of a Run), `configuration_digest` one of how the model computes with
them, `text_digest` one of what the model was given (ids, pixels, …), and `options` holds every option that the numbers
depend on. `device` is where it ran, `analysis_device` where what it computed was worked on, `precision` the dtype it
computed in, `versions` those of the packages; `on_cpu` names a step that was taken to the CPU, because it is compiled
for that.
"""

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from identiscope.linalg.agreement import explained_by, relative_errors

if TYPE_CHECKING:
    from identiscope.capture import Model, Site, Trace
    from identiscope.methods.registry import Method

#: So many tokens of a causal text are computed again to see whether the model is still that of the trace.
_BEGINNING = 16

#: Of each trace, since many results are made of one: its digests, and where it was computed.
_KNOWN: "WeakKeyDictionary[Trace, dict[str, str]]" = WeakKeyDictionary()
_WHERE: "WeakKeyDictionary[Trace, dict[str, str]]" = WeakKeyDictionary()


def method_provenance(
    method: "Method", trace: "Trace", options: Mapping[str, Any], site: "Site | None" = None
) -> dict[str, Any]:
    """What the result of a registered method says of where it comes from; site: whose attention it is of, if of one."""
    facts = {"kind": method.kind, "says": method.says, "paper": method.paper}
    where = {} if site is None else site_facts(trace, site)
    away = any(one.value.device.type != "cpu" for one in trace.sites)
    on_cpu = {"on_cpu": method.on_cpu} if method.on_cpu and away else {}
    return {**trace_provenance(trace, **options), **facts, **where, **on_cpu}


def trace_provenance(trace: "Trace", **options: object) -> dict[str, Any]:
    """What the result of one trace says of where it comes from."""
    if trace not in _WHERE:
        _WHERE[trace] = devices_in_words(trace.model, {site.value.device for site in trace.sites})
    return {
        **trace_digests(trace),
        **_WHERE[trace],
        "precision": precision_of(trace),
        "versions": versions(),
        "options": options,
    }


def precision_of(trace: "Trace") -> str:
    """The dtype of what the forward pass computed: of its values, or of its hidden states."""
    tensors = [site.value for site in trace.sites] or list(trace.main.hidden_states)
    return " and ".join(sorted({str(one.dtype).removeprefix("torch.") for one in tensors}))


@cache
def versions() -> dict[str, str]:
    """Of the packages that the numbers come from."""
    return {name: version(name) for name in ("torch", "transformers", "numpy", "scipy")}


def devices_in_words(model: "Model | None", places: "set[torch.device] | None" = None) -> dict[str, str]:
    """Where a model computed, and where that was worked on (`places`)."""
    there = places or set() if model is None else {weight.device for weight in model.module.parameters()}
    if model is not None:
        places = places or {model.home(device) for device in there}
    there, places = there or {torch.device("cpu")}, places or {torch.device("cpu")}
    device, analysis = (" and ".join(sorted(map(str, devices))) for devices in (there, places))
    return {"device": device, "analysis_device": analysis}


def trace_digests(trace: "Trace") -> dict[str, str]:
    """The model and the text of a trace: name and digests.

    A trace is what a model computed once, and the model may have been changed since. Its digests are told only if it
    still computes the hidden states of the trace, and are empty otherwise, as they are for a trace made from arrays.
    """
    if trace not in _KNOWN:
        known = trace.model is not None and _still_computes(trace)
        model = model_digests(trace.model) if known and trace.model is not None else _NO_MODEL
        name = "arrays" if trace.model is None else trace.model.name
        _KNOWN[trace] = {**model, "model": name, "text_digest": text_digest(trace)}
    return dict(_KNOWN[trace])


_NO_MODEL = {"model": "arrays", "model_digest": "", "configuration_digest": ""}


def model_digests(model: "Model") -> dict[str, str]:
    """A model as it is now: name and digests."""
    from identiscope.capture.digests import configuration_hash, model_hash

    return {"model": model.name, "model_digest": model_hash(model), "configuration_digest": configuration_hash(model)}


def text_digest(trace: "Trace") -> str:
    """A hash of what the model was given: the same text, alone or in a batch, has the same."""
    from identiscope.capture.digests import input_hash, tensors_hash

    if trace.batch is not None:
        return input_hash(trace.batch.arguments)
    parts = ("given", "value", "projection")
    return tensors_hash(
        (f"{site.index} {name}", value)
        for site in trace.sites
        for name in parts
        if (value := getattr(site, name)) is not None
    )


def texts_provenance(model: "Model", digests: Sequence[str], **options: object) -> dict[str, Any]:
    """What the result of a model's traces of several texts says of where it comes from; digests: those of the texts."""
    where = devices_in_words(model)
    digests_of = {"texts": len(digests), "text_digest": texts_digest(digests)}
    return {**model_digests(model), **where, **digests_of, "versions": versions(), "options": options}


def map_digest(attention: torch.Tensor) -> str:
    """A hash of a map that was given, in float64."""
    from identiscope.capture.digests import tensors_hash

    return tensors_hash([("map", attention.double())])


def texts_digest(digests: Sequence[str]) -> str:
    """A hash of several texts in their order, from those of each."""
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def _still_computes(trace: "Trace") -> bool:
    """Whether the model, as it is now, gives the hidden states of the trace, or its logits if it shows no others."""
    assert trace.model is not None
    if trace.batch is None:
        return False
    beginning = _beginning(trace)
    # A model that computes its beginning otherwise may do so because it is short.
    return (beginning is not None and _computes(trace, beginning)) or _computes(trace, trace.batch.arguments)


def _computes(trace: "Trace", arguments: Mapping[str, Tensor]) -> bool:
    """Whether a pass gives what the trace has of as many tokens."""
    from identiscope.capture.forward import forward
    from identiscope.capture.twin import twin

    assert trace.model is not None and trace.batch is not None
    shorter = arguments is not trace.batch.arguments
    with torch.no_grad():
        now = forward(twin(trace.model), arguments)
    pairs = [
        (state[0], shown[: len(state[0])] if shorter else shown)
        for name, layers in now.hidden_states.items()
        if name in trace.streams
        for state, shown in zip(layers, trace.streams[name].hidden_states, strict=False)
    ]
    if not pairs and now.logits is not None and trace.logits is not None and not shorter:
        pairs = [(now.logits[0], trace.logits)]
    if not pairs or any(one.shape != other.shape for one, other in pairs):
        return False
    errors = relative_errors(pairs)
    return all(explained_by(error, other.dtype) for error, (_, other) in zip(errors, pairs, strict=True))


def provenance(trace: "Trace", site: "Site", **options: object) -> dict[str, object]:
    """What a result of one kind of attention says of where it comes from."""
    return {**trace_provenance(trace, **options), **site_facts(trace, site)}


def site_facts(trace: "Trace", site: "Site") -> dict[str, object]:
    """Which attention of the trace it was, and in what precision it was computed."""
    return {
        "attention": site.kind,
        "query_stream": site.query_stream,
        "key_stream": site.key_stream,
        "tokens": len(trace.streams[site.query_stream]),
        "dtype": str(site.value.dtype).removeprefix("torch."),
    }


def _beginning(trace: "Trace") -> dict[str, Tensor] | None:
    """The first tokens of a long causal text, if a model that computes them as before does so with all that follow.

    It does if no token sees a later one, and if what it makes of each token before the first layer is the entry of its
    table of embeddings, which is looked at for all tokens: positions then have no weights that later tokens alone use.
    """
    assert trace.model is not None and trace.batch is not None
    ids = trace.batch.arguments.get("input_ids")
    if not trace.model.is_transformers or ids is None or ids.ndim != 2 or ids.shape[1] < 2 * _BEGINNING:
        return None
    alike = all(value.shape == ids.shape for value in trace.batch.arguments.values())
    # Experts that these tokens are not sent to would not be looked at.
    mixed = any("expert" in name for name, _ in trace.model.module.named_modules())
    if mixed or not alike or len(trace.streams) != 1 or {site.kind for site in trace.sites} != {"decoder-self"}:
        return None
    table: Any = trace.model.inner.get_input_embeddings()  # type: ignore[operator]
    (stream,) = trace.streams.values()
    if not isinstance(table, torch.nn.Embedding) or not stream.hidden_states:
        return None
    with torch.no_grad():
        embedded = table(ids.to(table.weight.device))[0]
    first = stream.hidden_states[0]
    if first.shape != embedded.shape or not explained_by(relative_errors([(embedded, first)])[0], first.dtype):
        return None
    return {name: value[:, :_BEGINNING] for name, value in trace.batch.arguments.items()}
