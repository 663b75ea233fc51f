"""Attention identifiability of a Trace: how much of each map is real, labelled by layer, head and token."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from identiscope.analysis.site_tensors import SiteTensors, chosen_sites, provenance, site_tensors
from identiscope.errors import InputError
from identiscope.linalg.projection_factor import projection_factor
from identiscope.methods.attention_rank import attention_rank
from identiscope.methods.canonical import canonical
from identiscope.methods.effective import effective
from identiscope.methods.effective_simplex_span import effective_simplex_span
from identiscope.methods.factored import FactoredAttention, rows_of
from identiscope.methods.intervals import intervals
from identiscope.methods.layer_rank import layer_rank
from identiscope.methods.null import null
from identiscope.methods.polytopes import whole_number
from identiscope.methods.row_rank import row_rank
from identiscope.results import make_result

if TYPE_CHECKING:
    from identiscope.capture import Site, Trace

Map = Literal["raw", "effective", "null", "effective_simplex_span", "canonical"]
MAPS: tuple[Map, ...] = get_args(Map)


def attention_identifiability(
    trace: "Trace",
    *,
    layers: Sequence[int] | None = None,
    kind: str | None = None,
    stream: str | None = None,
    value_bias: bool = True,
    token_types: Mapping[str, Sequence[bool]] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> xr.Dataset:
    """How identifiable every head's attention is, on axes layer, head, query and type.

    >>> result = identiscope.attention_identifiability(trace)
    >>> result.null_share.sel(layer=2)

    `rank`, `null_dimension` (dim LN(T), eq. 6) and `simplex_null_dimension` (dim LN([T,1]), §3.3) are per
    query row, since a causal row has the null space of its own prefix. `null_share` is ‖A∥‖²/‖A‖²,
    `correlation` Pearson's between A and A⊥ (Fig. 1a), each per head, with `row_` per row, and with `type_` over the
    keys of a type: `special` and `ordinary` tokens, or those of `token_types` (name → one flag a key).
    `layer_null_dimension` is that of all heads stacked, for the last row: attention may also move between heads; it
    is left out where not all heads were captured. `singular_values`, `cutoff` and `gap` are those of T over all keys.
    value_bias=False takes the bias out of the values first, as in the paper's T = E·W_V·H. `progress(done, total)` is
    called after each layer.
    """
    sites = chosen_sites(trace, layers, kind, stream)
    types = _types(trace, sites[0], token_types)
    flags = torch.tensor(np.array(list(types.values())), dtype=torch.bool)
    rows = []
    for site in sites:
        rows.append(_of_site(site, value_bias, flags))
        if progress is not None:
            progress(len(rows), len(sites))
    axes = {
        **dict.fromkeys(("null_share", "correlation", "free_rows"), ("layer", "head")),
        **dict.fromkeys(("row_null_share", "row_correlation"), ("layer", "head", "query")),
        **dict.fromkeys(("type_null_share", "type_correlation"), ("layer", "head", "type")),
        **dict.fromkeys(("rank", "null_dimension", "simplex_null_dimension"), ("layer", "head", "query")),
        **dict.fromkeys(("null_dimension_bound", "simplex_null_dimension_bound"), ("layer", "query")),
        **dict.fromkeys(("singular_values",), ("layer", "head", "channel")),
        **dict.fromkeys(("cutoff", "gap", "rank_is_uncertain"), ("layer", "head")),
        **dict.fromkeys(("layer_null_dimension", "layer_simplex_null_dimension"), ("layer",)),
        **dict.fromkeys(("separate_null_dimension", "separate_simplex_null_dimension"), ("layer",)),
    }
    return make_result(
        "attention_identifiability",
        {name: (names, np.stack([row[name] for row in rows])) for name, names in axes.items() if name in rows[0]},
        coordinates={
            "layer": [site.layer for site in sites],
            "head": list(sites[0].heads),
            "type": list(types),
            "token": ("query", list(trace.streams[sites[0].query_stream].tokens)),
        },
        provenance=provenance(trace, sites[0], value_bias=value_bias),
    )


def _types(trace: "Trace", site: "Site", given: Mapping[str, Sequence[bool]] | None) -> Mapping[str, Sequence[bool]]:
    stream = trace.streams[site.key_stream]
    if given is None:
        return {"special": stream.special, "ordinary": tuple(not flag for flag in stream.special)}
    wrong = [name for name, flags in given.items() if len(flags) != len(stream)]
    if wrong or not given:
        raise InputError(f"token_types {wrong} need one flag for each of the {len(stream)} keys.")
    return given


def _of_site(site: "Site", value_bias: bool, types: Tensor) -> dict[str, np.ndarray]:
    held = site_tensors(site)
    found = effective(held.value, held.projection, held.context, raw=held.raw, **_options(held, value_bias))
    moments = found.moments_with_raw(types)
    bias = _bias(held, value_bias)
    ranks = row_rank(
        held.value,
        held.projection,
        queries=site.queries,
        allowed=held.allowed,
        precision=held.precision,
        value_bias=bias,
    )
    spectrum = attention_rank(
        held.value, held.projection, precision=held.precision, value_bias=bias, layer=site.layer, heads=held.heads
    ).spectrum
    values: dict[str, Any] = {
        "null_share": moments.unexplained("head"),
        "row_null_share": moments.unexplained("row"),
        "correlation": moments.correlation("head"),
        "row_correlation": moments.correlation("row"),
        "type_null_share": moments.unexplained("key_type"),
        "type_correlation": moments.correlation("key_type"),
        "rank": ranks.rank,
        "null_dimension": ranks.null_dimension,
        "simplex_null_dimension": ranks.simplex_null_dimension,
        "free_rows": (ranks.simplex_null_dimension > 0).double().mean(-1),
        "null_dimension_bound": ranks.null_dimension_bound,
        "simplex_null_dimension_bound": ranks.simplex_null_dimension_bound,
        "singular_values": spectrum.singular_values,
        "cutoff": spectrum.cutoff,
        "gap": spectrum.gap,
        "rank_is_uncertain": spectrum.uncertain,
    }
    if len(site.heads) == site.head_count:
        # Of the last row: where rows see different keys, each has a layer's null space of its own.
        last = site.allowed_keys(site.heads[0], [site.queries - 1])[0]
        whole = layer_rank(held.value[:, last], held.projection, precision=held.precision, value_bias=bias)
        values |= {
            "layer_null_dimension": whole.null_dimension,
            "layer_simplex_null_dimension": whole.simplex_null_dimension,
            "separate_null_dimension": whole.separate_null_dimension,
            "separate_simplex_null_dimension": whole.separate_simplex_null_dimension,
        }
    return {name: np.asarray(value) for name, value in values.items()}


def factored_attention(
    trace: "Trace",
    layer: int,
    method: Map = "effective",
    *,
    kind: str | None = None,
    stream: str | None = None,
    value_bias: bool = True,
) -> FactoredAttention:
    """One layer's attention of the given kind for all captured heads, as two thin matrices: no n×n map is built.

    >>> identiscope.factored_attention(trace, layer=2).row(4)      # [head, key]
    """
    held = site_tensors(chosen_sites(trace, [layer], kind, stream)[0])
    options = _options(held, value_bias)
    if method == "effective":
        return effective(held.value, held.projection, held.context, raw=held.raw, **options)
    if method == "null":
        return null(held.value, held.projection, held.context, held.raw, **options)
    simple: dict[str, Any] = {"allowed": held.allowed, "precision": held.precision}
    if method == "effective_simplex_span":
        return effective_simplex_span(
            held.value, held.projection, held.context, raw=held.raw, row_sum=held.row_sum, **simple
        )
    if method == "canonical":
        return canonical(held.value, held.projection, held.raw, queries=held.site.queries, **simple)
    raise InputError(f"method={method!r} was given; factored forms are {', '.join(MAPS[1:])}.")


def attention_maps(
    trace: "Trace",
    layer: int,
    head: int,
    maps: Sequence[Map] = MAPS,
    *,
    kind: str | None = None,
    stream: str | None = None,
    value_bias: bool = True,
) -> xr.Dataset:
    """Raw, effective, null, simplex-span and canonical attention of one head, each [query, key].

    All are those of the raw map shown, in float64: the effective ones keep its output, and the simplex span its row
    sums, but for directions of T that the precision of the pass cannot tell from noise. (`factored_attention` works
    from the context that the pass itself computed, and agrees to that precision.)
    """
    site = chosen_sites(trace, [layer], kind, stream)[0]
    held = site_tensors(site).of_head(head)
    raw = held.raw(slice(0, site.queries))
    held = replace(held, context=raw @ held.value.double(), row_sum=raw.sum(-1))
    options = _options(held, value_bias)
    simple: dict[str, Any] = {"allowed": held.allowed, "precision": held.precision}
    factor = projection_factor(held.projection)
    makers: dict[str, Callable[[], Tensor]] = {
        "raw": lambda: raw,
        "effective": lambda: effective(held.value, factor, held.context, **options).dense(),
        "null": lambda: null(held.value, factor, held.context, rows_of(raw), **options).dense(),
        "effective_simplex_span": lambda: effective_simplex_span(
            held.value, factor, held.context, row_sum=held.row_sum, **simple
        ).dense(),
        "canonical": lambda: canonical(held.value, factor, rows_of(raw), queries=site.queries, **simple).dense(),
    }
    unknown = sorted(set(maps) - set(makers))
    if unknown:
        raise InputError(f"there are no maps {unknown}; there are {', '.join(MAPS)}.")
    return make_result(
        "attention_maps",
        {name: (("query", "key"), makers[name]()[0]) for name in maps},
        coordinates=_tokens(trace, site),
        provenance=provenance(trace, site, layer=layer, head=head, value_bias=value_bias),
    )


def attention_intervals(
    trace: "Trace",
    layer: int,
    head: int,
    *,
    row: int | None = None,
    cells: Sequence[tuple[int, int]] | None = None,
    top: int | None = None,
    kind: str | None = None,
    stream: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> xr.Dataset:
    """Between which bounds weights of one head may lie, the output being what it is: axis cell.

    Choose one query `row`, some `cells` (query, key), the `top` largest weights, or nothing for the whole
    head, which solves up to two linear programs per weight. Cells come in the order given, with `top` the largest
    first. `lower_row` and `upper_row` attain the bounds.
    """
    if row is not None:
        row = whole_number(row, "row", "one query position")
    site = chosen_sites(trace, [layer], kind, stream)[0]
    held = site_tensors(site).of_head(head)
    found = intervals(
        held.value,
        held.projection,
        held.raw,
        head=0,
        query=row,
        cells=cells,
        top=top,
        queries=site.queries,
        allowed=held.allowed,
        precision=held.precision,
        progress=progress,
    )
    queries, keys = trace.streams[site.query_stream].tokens, trace.streams[site.key_stream].tokens
    return make_result(
        "attention_intervals",
        {name: (("cell",), getattr(found, name)) for name in ("query", "key", "weight", "lower", "upper", "freedom")}
        | {name: (("cell", "all_keys"), getattr(found, name)) for name in ("lower_row", "upper_row")},
        coordinates={
            "query_token": ("cell", [queries[int(place)] for place in found.query]),
            "key_token": ("cell", [keys[int(place)] for place in found.key]),
        },
        provenance=provenance(trace, site, layer=layer, head=head, row=row, top=top),
    )


def _bias(held: SiteTensors, value_bias: bool) -> Tensor | None:
    """The bias to take out of the values, if any is to be."""
    if value_bias:
        return None
    if held.value_bias is None:
        raise InputError(
            f"the bias inside the values of {held.site.name} could not be told, so it cannot be taken out;"
            " leave value_bias as it is."
        )
    return held.value_bias


def _options(held: SiteTensors, value_bias: bool) -> dict[str, Any]:
    return {
        "allowed": held.allowed,
        "precision": held.precision,
        "value_bias": _bias(held, value_bias),
        "row_sum": held.row_sum,
    }


def _tokens(trace: "Trace", site: "Site") -> dict[str, Any]:
    """Tokens repeat, so they are labels beside the positions and not the index itself."""
    return {
        "query_token": ("query", list(trace.streams[site.query_stream].tokens)),
        "key_token": ("key", list(trace.streams[site.key_stream].tokens)),
    }
