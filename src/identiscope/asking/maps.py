"""Maps of attention side by side: several of one head, or one of a long text in factors."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from torch import Tensor

from identiscope.asking.ask import arrays_of, bound, described, outcome_facts
from identiscope.asking.provenance import method_provenance
from identiscope.errors import InputError
from identiscope.linalg.devices import as_numpy
from identiscope.linalg.free_memory import check_free
from identiscope.methods.fields import chosen_sites, layer_fields
from identiscope.methods.maps.factored import FactoredAttention
from identiscope.methods.outcome_runs import OutcomeRuns
from identiscope.methods.registry import map_names, method, of_kind
from identiscope.methods.signatures import factored_maps
from identiscope.methods.trace_fields import runs_of
from identiscope.results import make_result

if TYPE_CHECKING:
    from identiscope.capture import Trace


def attention_maps(
    trace: "Trace",
    layer: int,
    head: int,
    maps: Sequence[str] | None = None,
    *,
    attention: str | None = None,
    stream: str | None = None,
    value_bias: bool = True,
    outcome: "str | int | Callable[..., Any] | None" = None,
) -> xr.Dataset:
    """Maps of one head side by side, each [query, key]: those of `maps`, or all whose cells are attention weights.

    Those are raw, simplex-span, canonical, effective and null attention. Of a method that gives several arrays for each
    head the others are named after both. outcome: what maps explain that are of an outcome, such as gradient_attention.

    All are those of the raw map shown, in float64: the effective ones keep its output, and the simplex span its row
    sums, but for directions of T that the precision of the pass cannot tell from noise. (`factored_attention` works
    from the context that the pass itself computed, and agrees to that precision.)
    """
    names = map_names("weights") if maps is None else tuple(maps)
    known = {one.name for one in of_kind("map")}
    unknown = [name for name in names if name not in map_names() and name not in known]
    if unknown or not names:
        raise InputError(
            f"maps={list(unknown or names)} was given; there are {', '.join(map_names())}, or None for all."
        )
    site = chosen_sites(trace, [layer], attention, stream)[0]
    own_head = layer_fields(site, trace.streams).of_head(head)
    # In float64, the raw one in any case, and one more while a map is made.
    check_free(
        site.queries * site.keys * 8 * (len({*names, "raw"}) + 1), own_head.value.device,
        f"{len(names)} maps of {site.queries:,} × {site.keys:,} tokens",
        "Ask for fewer maps at a time, a shorter text, or factored_attention, which forms no map.",
    )  # fmt: skip
    fields = own_head.exactly()
    arrays: dict[str, tuple[tuple[str, ...], Any]] = {}
    facts: dict[str, Any] = {}
    options = {"layer": layer, "head": head, "maps": names, "attention": attention, "stream": stream}
    options |= {"value_bias": value_bias, "outcome": described(outcome)}
    runs: OutcomeRuns | None = None
    for name in names:
        one = method(name)
        call = bound(one, {})
        own = fields if value_bias or "value_bias" not in call.fields else fields.without_bias()
        if "outcome" in call.choices:
            runs = runs or runs_of(trace, outcome)
            assert runs.outcome  # first of all, since without one there is nothing to ask
            own = replace(own, runs=runs)
        answer = call.of(lambda field, own=own: getattr(own, field))  # type: ignore[misc]
        for part, (axes, cells) in arrays_of(one, answer, one.axes[1:]).items():
            if axes == one.axes[1:]:
                arrays[name if part == one.name else f"{name}_{part}"] = (("query", "key"), cells[0])
        facts = method_provenance(one, trace, options, site) | facts
    if runs is not None:
        facts |= outcome_facts(runs)
    del facts["says"], facts["paper"]
    return make_result(
        "attention_maps",
        arrays,
        coordinates={
            "query_token": ("query", list(trace.streams[site.query_stream].tokens)),
            "key_token": ("key", list(trace.streams[site.key_stream].tokens)),
        },
        provenance=facts,
    )


def factored_attention(
    trace: "Trace",
    layer: int,
    method: str = "effective",
    *,
    attention: str | None = None,
    stream: str | None = None,
    value_bias: bool = True,
) -> FactoredAttention:
    """One layer's attention by the given method for all captured heads, as two thin matrices: no n×n map is built.

    >>> identiscope.factored_attention(trace, layer=2).row(4)      # [head, key]
    """
    maps = {one.name: one for one in factored_maps()}
    if method not in maps:
        raise InputError(f"method={method!r} was given; factored forms are {', '.join(maps)}.")
    fields = layer_fields(chosen_sites(trace, [layer], attention, stream)[0])
    call = bound(maps[method], {})
    own = fields if value_bias or "value_bias" not in call.fields else fields.without_bias()
    factored: FactoredAttention = call.of(lambda field: getattr(own, field))
    return factored


def mean_attention_maps(
    trace: "Trace", layers: Sequence[int], stream: str | None = None
) -> dict[str, np.ndarray[Any, Any]]:
    """Raw and effective attention of some layers averaged over their heads, each [layer, query, key]."""
    maps: dict[str, list[Tensor]] = {"raw": [], "effective": []}
    for layer in layers:
        maps["raw"].append(trace.site(layer, stream=stream).attentions().mean(0).double())
        maps["effective"].append(factored_attention(trace, layer, stream=stream).dense().mean(0))
    return {name: np.stack([as_numpy(part) for part in parts]) for name, parts in maps.items()}
