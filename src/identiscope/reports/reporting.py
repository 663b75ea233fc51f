"""From a model and a text to a page: the analysis, its verdict in words, and the maps, for a report or a notebook."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import xarray as xr

from identiscope.asking.ask import ask, function_of
from identiscope.asking.maps import attention_maps
from identiscope.capture import Trace, load, trace
from identiscope.capture.streams import CROSS, DECODER, ENCODER
from identiscope.errors import InputError
from identiscope.judge.verdict import Verdict, verdict
from identiscope.methods.fields import chosen_sites
from identiscope.methods.registry import method
from identiscope.progress import Progress, say, tell
from identiscope.reports.layer_arrays import report_layers
from identiscope.validation import checked
from identiscope.views.page.attention_data import SHARES, Shares
from identiscope.views.page.attention_section import attention_section, attentions_page, parts_note
from identiscope.views.page.data import Page, empty_page, plain
from identiscope.views.page.report import write_report
from identiscope.views.page.results import result_page, with_results

#: Of how many weights of the row shown first the intervals are computed: two linear programs each.
FIRST_ROW = 12

#: Texts up to this length get the intervals of their first row, and canonical maps of the first heads, unasked.
SHORT = 256

#: Of how many heads canonical maps are computed unasked: those of the loosest weights.
FIRST_HEADS = 3

Cells = Literal["auto", "all", "none"]

_KINDS = {ENCODER: "within the encoder", DECODER: "within the decoder", CROSS: "from the decoder to the encoder"}


def report(
    model: Any,
    text: Any = None,
    path: str | Path = "report.html",
    *,
    target: Any = None,
    truncate: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Path:
    """Write one HTML file that shows what of a model's attention on a text is real; it needs no network to open.

    >>> identiscope.report("minilm", "The cat sat on the mat.", "cat.html")
    >>> identiscope.report(trace, path="cat.html", results=[attribution])
    >>> identiscope.report([attribution, rollout], path="both.html")

    model: as for `identiscope.trace`; or, with no text, a Trace that was made before, any result, or a list of results:
    those of one kind stand side by side. options: see `report_page`.
    """
    results = _results(model)
    if results:
        return write_report(result_page(*results), path)
    traced = model if isinstance(model, Trace) else _traced(model, text, target, truncate)
    return write_report(checked(report_page)(traced, progress=progress, **options), path)


def report_page(
    traced: Trace,
    *,
    layers: Sequence[int] | None = None,
    attention: str | None = None,
    stream: str | None = None,
    with_verdict: bool = True,
    canonical: Cells | Sequence[tuple[int, int]] = "auto",
    intervals: Sequence[tuple[int, int, int]] = (),
    results: Sequence[xr.Dataset] = (),
    methods: Sequence[str] = (),
    outcome: str | int | Callable[..., Any] | None = None,
    title: str | None = None,
    progress: Progress | None = None,
) -> Page:
    """The data of a page on one Trace.

    layers, attention, stream: which attention; the first by default. with_verdict=False leaves out the linear
    programs behind the verdict's last sentences, which take longer than all the rest. canonical: heads (layer, head) to
    show the canonical map of, `all`, or `none`; `auto` takes the heads of the loosest weights of short texts.
    intervals: rows (layer, head, query) to give the intervals of all weights of. results: others to show on the same
    page, such as an attribution, token identifiability, or a structure. methods: names of methods that are asked of the
    trace and shown, too. outcome: what those of them explain that explain something, as for `identiscope.explain`.
    progress(done, total) is called as the work goes on, for each part of it from the beginning.
    """
    shown = shown_attention(traced, layers, attention, stream)
    explained = () if outcome is None else _explaining(methods)
    where = {name: shown[name] for name in ("attention", "stream")}
    sites = chosen_sites(traced, **shown)
    said: Verdict | None = None
    shares: Shares = {}
    if with_verdict:
        tell(progress, "layers", 0, len(sites))
        result = ask("attention_identifiability", traced, layers=layers, layer_level=False, progress=progress, **where)
        shares = _shares(result)
        say(progress, "verdict")
        said = verdict(traced, result, progress=progress)
    loosest = _loosest(said)
    short = sites[0].keys <= SHORT
    cells = _known(said)
    first = loosest[0] if loosest else None
    wanted: list[tuple[tuple[int, int, int], int | None]] = [(place, None) for place in intervals]
    if short and first is not None and first not in intervals:
        wanted.insert(0, (first, FIRST_ROW))
    for done, (place, top) in enumerate(wanted):
        tell(progress, "intervals", done, len(wanted))
        cells |= _row_intervals(traced, place, top, where)
    heads = _heads(canonical, sites, loosest if short else [])
    maps = {}
    for done, (layer, head) in enumerate(heads):
        tell(progress, "canonical maps", done, len(heads))
        one = attention_maps(traced, layer, head, ("canonical",), **where)
        maps[layer, head] = one["canonical"].values
    site = sites[0]
    queries, keys = traced.streams[site.query_stream], traced.streams[site.key_stream]
    name = "arrays" if traced.model is None else traced.model.name
    cut = f", {queries.cut} cut" if queries.cut else ""
    page = empty_page(
        title or name,
        f"{len(queries)} tokens{cut} · {len(sites)} layers × {len(site.heads)} heads{_which(traced, site.kind)}",
        verdict=_sentences(said),
        notes=_notes(traced, len(heads), len(cells)),
    )
    section = attention_section(
        report_layers(traced, **shown),
        queries.tokens,
        None if keys is queries else keys.tokens,
        canonical=maps,
        intervals=list(cells.values()),
        start=None if first is None else {"layer": first[0], "head": first[1], "row": first[2]},
        progress=lambda done: tell(progress, "maps", done, len(sites)),
        shares=shares,
    )
    asked = []
    of = (sites[0].layer, sites[0].heads[0]) if first is None else first[:2]
    for done, name in enumerate(methods):
        tell(progress, name.replace("_", " "), done, len(methods))
        own: dict[str, Any] = {"outcome": outcome} if name in explained else {}
        asked.append(ask_beside(name, traced, of, shown, **own))
    return with_results(page.with_section(section), [*results, *asked])


def _explaining(methods: Sequence[str]) -> list[str]:
    """Those of some methods that explain an outcome; at least one."""
    those = [name for name in methods if explains(name)]
    if not those:
        raise InputError(
            f"an outcome was given, and methods {', '.join(methods) or 'none'}: none of them explains one. Add one that"
            " does, such as saliency."
        )
    return those


def explains(name: str) -> bool:
    """Whether a method explains an outcome, which it can then be given."""
    return "outcome" in inspect.signature(function_of(name)).parameters


def shown_attention(
    traced: Trace, layers: Sequence[int] | None = None, attention: str | None = None, stream: str | None = None
) -> dict[str, Any]:
    """Which attention a page shows, as options: its layers, its kind (the first by default), whose queries."""
    attention = attention if attention is not None or stream is not None else traced.kinds[0]
    site = chosen_sites(traced, layers, attention, stream)[0]
    return {"layers": layers, "attention": site.kind, "stream": site.query_stream}


def ask_beside(
    name: str,
    traced: Trace,
    place: tuple[int, int],
    shown: Mapping[str, Any],
    progress: Progress | None = None,
    **options: Any,
) -> xr.Dataset:
    """What a method says of the attention that a page shows, or of this (layer, head) if it is of one head.

    What explains an outcome is asked of the stream that the outcome is read from, whatever attention is shown.
    """
    one = method(name)
    taken = inspect.signature(function_of(name)).parameters
    known = {"layer": place[0], "head": place[1], **shown}
    if one.family.scope == "trace":
        if explains(name):
            del known["stream"]
        if "layer" not in one.axes:
            del known["layers"]
    where = {option: value for option, value in known.items() if option in taken}
    result = ask(name, traced, progress=progress, **where, **options)
    if shown["layers"] is not None and one.family.scope == "trace" and "layers" not in where:
        result.attrs["says"] += ". The choice of layers makes no difference to it."
    return result


def _which(traced: Trace, kind: str) -> str:
    """Which attention of a model with several kinds is shown, in words."""
    return f" · {_KINDS.get(kind, kind)}" if len(traced.kinds) > 1 else ""


def _results(given: Any) -> list[xr.Dataset]:
    """The results that were given: one, or several in a list; none if it is anything else."""
    if isinstance(given, xr.Dataset):
        return [given]
    several = isinstance(given, (list, tuple)) and all(isinstance(one, xr.Dataset) for one in given)
    return list(given) if several else []


def _traced(model: Any, text: Any, target: Any, truncate: bool) -> Trace:
    if text is None:
        raise InputError("no text was given; give one, or a Trace instead of a model.")
    traced: Any = trace(load(model), text, target=target, truncate=truncate)
    if not isinstance(traced, Trace):
        raise InputError("several texts were given; a report shows one, so make one for each.")
    return traced


def _sentences(said: Verdict | None) -> tuple[str, ...]:
    return () if said is None else said.sentences


def _shares(result: xr.Dataset) -> Shares:
    """What is known of each head as a whole, so that the page need not work it out again."""
    if not all(name in result and result[name].dims == ("layer", "head") for name in SHARES):
        return {}
    values = [plain(result[name].values) for name in SHARES]
    places = [
        (row, column, int(layer), int(head))
        for row, layer in enumerate(result["layer"].values)
        for column, head in enumerate(result["head"].values)
    ]
    # Devices differ in the last bits, pages need not.
    return {
        (layer, head): tuple(None if one[row][column] is None else round(one[row][column], 9) for one in values)
        for row, column, layer, head in places
    }


def _loosest(said: Verdict | None) -> list[tuple[int, int, int]]:
    """(layer, head, query) of the verdict's weights, that with the widest interval first."""
    if said is None or said.sample.empty:
        return []
    table = said.sample
    order = np.argsort(-(table["merged_upper"] - table["merged_lower"]).to_numpy(), kind="stable")
    return [(int(one["layer"]), int(one["head"]), int(one["query"])) for one in table.iloc[order].to_dict("records")]


Known = dict[tuple[int, int, int, int], dict[str, Any]]


def _known(said: Verdict | None) -> Known:
    if said is None or said.sample.empty:
        return {}
    records = said.sample.to_dict("records")
    return {(one["layer"], one["head"], one["query"], one["key"]): one for one in records}


def _row_intervals(traced: Trace, place: tuple[int, int, int], top: int | None, where: dict[str, Any]) -> Known:
    layer, head, query = place
    site = traced.site(layer, where["attention"], where["stream"])
    row, allowed = site.attention(head, [query])[0], site.allowed_keys(head, [query])[0]
    keys = [key for key in row.argsort(descending=True).tolist() if bool(allowed[key])]
    bounds = ask(
        "attention_intervals", traced, layer=layer, head=head, cells=[(query, key) for key in keys[:top]], **where
    )
    table = bounds.drop_vars(["lower_row", "upper_row"]).to_dataframe().to_dict("records")
    return {(layer, head, query, int(one["key"])): {"layer": layer, "head": head} | one for one in table}


def _heads(
    canonical: Cells | Sequence[tuple[int, int]], sites: Sequence[Any], loosest: list[tuple[int, int, int]]
) -> list[tuple[int, int]]:
    if canonical == "none":
        return []
    every = [(site.layer, head) for site in sites for head in site.heads]
    if canonical == "all":
        return every
    if canonical == "auto":
        return list(dict.fromkeys((layer, head) for layer, head, _ in loosest))[:FIRST_HEADS]
    missing = [place for place in canonical if tuple(place) not in every]
    if isinstance(canonical, str) or missing:
        raise InputError(
            f"canonical maps of {missing or canonical!r} were asked for; there are {every[0]} to {every[-1]}."
        )
    return [(int(layer), int(head)) for layer, head in canonical]


def _notes(traced: Trace, heads: int, cells: int) -> list[str]:
    return [
        "Equation numbers are those of Brunner et al., On Identifiability in Transformers (ICLR 2020).",
        f"Canonical maps are computed for {heads} heads here, intervals for {cells} weights; the page says where they"
        " are missing. Maps are rebuilt from rounded factors, within the error stated beside each head.",
        *parts_note([token for stream in traced.streams.values() for token in stream.tokens]),
    ]


def view(
    shown: Trace | xr.Dataset | Any = None,
    *,
    attentions: Sequence[Any] | None = None,
    attention: Sequence[Any] | None = None,
    tokens: Sequence[str] | None = None,
    include_layers: Sequence[int] | None = None,
    **options: Any,
) -> Any:
    """The viewer in a notebook: of a Trace, of results, or of attentions as a Hugging Face model returns them.

    >>> identiscope.view(trace)
    >>> identiscope.view(identiscope.hidden_token_attribution(trace))
    >>> identiscope.view(attentions=out.attentions, tokens=tokens)      # as for bertviz.head_view

    attentions: one [1, head, query, key] a layer; tokens: one a key; include_layers: only these of them. options: for a
    Trace, those of `report_page`. Needs the extra `notebook`; `identiscope.report` writes the same to a file.
    """
    from identiscope.views.page.notebook import widget

    return widget(
        view_page(shown, attentions if attentions is not None else attention, tokens, include_layers, **options)
    )


def view_page(
    shown: Any,
    attentions: Sequence[Any] | None,
    tokens: Sequence[str] | None,
    include_layers: Sequence[int] | None,
    **options: Any,
) -> Page:
    """The data of what `view` shows."""
    if isinstance(shown, Trace):
        return checked(report_page)(shown, **options)
    results = _results(shown)
    if results:
        return result_page(*results)
    if shown is not None and attentions is None:
        # As bertviz has it: head_view(attention, tokens).
        attentions = shown
    if attentions is None or tokens is None:
        raise InputError("give a Trace, a result, or attentions= and tokens=.")
    if include_layers is None:
        return attentions_page(attentions, tokens)
    wrong = [layer for layer in include_layers if not 0 <= layer < len(attentions)]
    if wrong:
        raise InputError(f"layers {wrong} were asked for; attentions of {len(attentions)} layers were given.")
    return attentions_page([attentions[layer] for layer in include_layers], tokens, layers=include_layers)
