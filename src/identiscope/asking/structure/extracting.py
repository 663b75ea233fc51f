"""The structure of heads from traces: mean map, threshold, W and pattern of every head, for texts of any lengths."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from identiscope.asking.provenance import site_facts, text_digest, texts_digest, trace_provenance
from identiscope.errors import InputError
from identiscope.linalg.devices import on_cpu
from identiscope.methods.fields import chosen_sites
from identiscope.methods.heads.head_pattern import PATTERNS, map_pattern
from identiscope.methods.structure.extraction import ClassMeans, cut, no_maps, normalised_rows, spread
from identiscope.methods.structure.layout import FORBIDDEN, Layout, cell_classes, token_roles
from identiscope.methods.structure.threshold import MOST_EMPTY, ThresholdSweep, structure_threshold
from identiscope.results import make_result, using

if TYPE_CHECKING:
    from identiscope.capture import Site, Trace


@dataclass(frozen=True, eq=False)
class _Text:
    """What is kept of a text: the class of each cell, its tokens, facts of its attention, a digest. Not its trace."""

    classes: Tensor
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    facts: dict[str, Any]
    digest: str


@dataclass(frozen=True, eq=False)
class _Seen:
    """What the traces so far have shown: sums by layer, and the texts. Texts laid out alike share their classes.

    origin: where the first trace comes from, and so all; told once, since reading all weights takes its time.
    """

    sums: dict[int, ClassMeans]
    heads: tuple[int, ...]
    texts: tuple[_Text, ...]
    origin: dict[str, Any]


def extract_structure(
    traces: "Iterable[Trace]",
    *,
    layout: Layout = "aligned",
    layers: Sequence[int] | None = None,
    attention: str | None = None,
    stream: str | None = None,
    threshold: float | None = None,
    penalty: float = 0.0,
    empty: float = MOST_EMPTY,
) -> xr.Dataset:
    """W of every head over some texts (section III-B1 of the structure-aware draft), on axes layer and head.

    >>> result = identiscope.extract_structure(identiscope.trace(model, text) for text in texts)
    >>> result.pattern.sel(layer=2, head=3), result.structure.sel(layer=2, head=3)

    layout: which cells of different texts are averaged together: `absolute` (texts of one length), `relative` (by
    key − query), `roles` (special tokens and sentences) or `aligned` (offsets within a sentence, roles elsewhere).
    threshold: l of Cut_l for every head; by default the one that `structure_threshold` recommends for each. penalty:
    h(x) = penalty · x below the threshold. empty: share of rows that the recommended threshold may leave empty.

    `mean` and `structure` [layer, head, query, key] are shown on the text of median length; `structure_weights` gives W
    for any other. `pattern_score` [layer, head, pattern] is that of W, `mean_pattern_score` that of the mean before the
    cut, and `weight_on_structure` the share of all attention that lies on the cells of W: where it is small, W is what
    the texts have in common, and not what the head mostly does.
    """
    if not 0 <= penalty < 1:
        raise InputError(f"a penalty of {penalty} was given, expected 0 ≤ penalty < 1: h(x) must be below x (eq. 8)")
    seen = _Seen({}, (), (), {})
    for trace in traces:
        seen = _with_trace(seen, trace, chosen_sites(trace, layers, attention, stream), layout)
    if not seen.texts:
        raise InputError("no traces were given; at least one text is needed to extract a structure.")
    options = {"layout": layout, "layers": layers, "attention": attention, "stream": stream, "threshold": threshold}
    return _result(seen, options | {"penalty": penalty, "empty": empty}, threshold, penalty, empty)


def _with_trace(seen: _Seen, trace: "Trace", sites: "list[Site]", layout: Layout) -> _Seen:
    classes = site_classes(trace, sites[0], layout)
    if layout == "absolute" and seen.texts and seen.texts[0].classes.shape != classes.shape:
        raise InputError(
            f"maps of {list(seen.texts[0].classes.shape)} and {list(classes.shape)} cannot be averaged cell by cell;"
            ' take layout="aligned", "relative" or "roles" for texts of different lengths.'
        )
    if seen.heads and (seen.heads != sites[0].heads or set(seen.sums) != {site.layer for site in sites}):
        raise InputError("the traces have different layers or heads; capture the same of every text.")
    sums = {
        site.layer: seen.sums.get(site.layer, no_maps(len(site.heads))).add(site.attentions(), classes)
        for site in sites
    }
    alike = (one.classes for one in seen.texts if torch.equal(one.classes, classes))
    queries, keys = (trace.streams[name].tokens for name in (sites[0].query_stream, sites[0].key_stream))
    text = _Text(next(alike, classes), queries, keys, site_facts(trace, sites[0]), text_digest(trace))
    return _Seen(sums, sites[0].heads, (*seen.texts, text), seen.origin or trace_provenance(trace))


def site_classes(trace: "Trace", site: "Site", layout: Layout) -> Tensor:
    """The class of each cell of a site's maps under a layout, [query, key], on the CPU."""
    query, key = (
        token_roles(torch.tensor(trace.streams[name].special)) for name in (site.query_stream, site.key_stream)
    )
    return cell_classes(layout, query, key, allowed=on_cpu(site.allowed_keys(site.heads[0])))


def _result(seen: _Seen, options: dict[str, Any], threshold: float | None, penalty: float, empty: float) -> xr.Dataset:
    shown = sorted(seen.texts, key=lambda text: text.classes.shape[1])[len(seen.texts) // 2]
    classes = shown.classes
    rows: dict[str, list[list[Any]]] = {}
    # All heads of a sweep share their thresholds, so that they can be compared.
    most = max(float(sums.means.max()) for sums in seen.sums.values())
    grid = np.linspace(0, most, 41)
    for sums in seen.sums.values():
        maxima = torch.cat([spread(sums.codes, sums.means, one.classes).amax(-1) for one in seen.texts], -1)
        per_head = [
            _of_head(sums, place, maxima[place].numpy(), classes, grid, threshold, penalty, empty)
            for place in range(len(seen.heads))
        ]
        for name in per_head[0]:
            rows.setdefault(name, []).append([one[name] for one in per_head])
    sweep = {name for name in rows if name.startswith("sweep_")}
    axes = {
        name: ("layer", "head", "step") if name in sweep
        else {"mean": ("layer", "head", "query", "key"), "structure": ("layer", "head", "query", "key"),
              "pattern_score": ("layer", "head", "kind_of_pattern"),
              "mean_pattern_score": ("layer", "head", "kind_of_pattern"),
              "class_mean": ("layer", "head", "class")}.get(name, ("layer", "head"))
        for name in rows
    }  # fmt: skip
    first = next(iter(seen.sums.values()))
    return make_result(
        "structure_extraction",
        {name: (axes[name], np.array(values)) for name, values in rows.items()}
        | {"class_count": (("class",), first.counts)},
        coordinates={
            "layer": list(seen.sums),
            "head": list(seen.heads),
            "kind_of_pattern": list(PATTERNS),
            "class": first.codes,
            "step": grid,
            "query_token": ("query", list(shown.queries)),
            "key_token": ("key", list(shown.keys)),
        },
        provenance=seen.origin
        | shown.facts
        | {
            "options": options,
            "text_digest": texts_digest([one.digest for one in seen.texts]),
            "texts": len(seen.texts),
            "texts_of_tokens": [one.classes.shape[1] for one in seen.texts],
        },
    )


def _of_head(
    sums: ClassMeans,
    place: int,
    maxima: np.ndarray,
    classes: Tensor,
    grid: np.ndarray,
    threshold: float | None,
    penalty: float,
    empty: float,
) -> dict[str, Any]:
    means = sums.means[place]
    sweep: ThresholdSweep = structure_threshold(
        means.numpy(), sums.counts.numpy(), maxima, thresholds=grid, empty=empty
    )
    chosen = sweep.recommended if threshold is None else threshold
    weights = normalised_rows(spread(sums.codes, cut(means, chosen, lambda small: penalty * small), classes))
    allowed, mean = classes != FORBIDDEN, spread(sums.codes, means, classes)
    pattern, before = map_pattern(weights, allowed=allowed), map_pattern(mean, allowed=allowed)
    on_it = sums.sums[place][means >= chosen].sum() / sums.sums[place].sum()
    return {
        "class_mean": means.numpy(),
        "mean": mean.numpy(),
        "structure": weights.numpy(),
        "threshold": chosen,
        "recommended": sweep.recommended,
        "separation": sweep.best_separation,
        "stable_from": sweep.stable_from,
        "stable_to": sweep.stable_to,
        "limited": sweep.limited,
        "reason": sweep.reason,
        "sweep_cells": sweep.cells,
        "sweep_weight": sweep.weight,
        "sweep_empty_rows": sweep.empty_rows,
        "sweep_separation": sweep.separation,
        "pattern": pattern.name,
        "pattern_score": list(pattern.scores.values()),
        "mean_pattern_score": list(before.scores.values()),
        "vertical_key": pattern.vertical_key,
        "weight_on_structure": float(on_it),
        "zero_weights": float((weights[allowed] == 0).double().mean()),
    }


def structure_weights(
    result: xr.Dataset,
    trace: "Trace",
    layer: int,
    head: int,
    *,
    epsilon: float = 0.0,
    threshold: float | None = None,
) -> Tensor:
    """W [query, key] of one head for the text of a trace, from what `extract_structure` gave.

    >>> weights = structure_weights(result, trace, 2, 3, epsilon=0.01)
    >>> structure_norm(trace.site(2).attention(3), weights)

    epsilon is added to every weight, so that ‖·‖_S is a norm and not only a seminorm. threshold: l instead of the
    one in the result. Cells that no text of the extraction had (farther away than any) have weight 0 before that.
    """
    if not epsilon >= 0:
        raise InputError(f"an epsilon of {epsilon} was given, expected 0 or more: weights may not be negative.")
    penalty = result.attrs.get("options", {}).get("penalty", 0.0)
    kept = _on_text(
        result, trace, layer, head,
        lambda means, own: cut(means, own if threshold is None else threshold, lambda small: penalty * small),
    )  # fmt: skip
    return normalised_rows(kept) + epsilon


def check_structure(result: xr.Dataset) -> None:
    """Refuse what is not a result of `extract_structure`, or not all of it."""
    with using(result, "structure_extraction", "extract_structure"):
        for name in ("class_mean", "threshold", "pattern", "layer", "head"):
            result[name]
        for name in ("attention", "query_stream", "texts"):
            result.attrs[name]
        result.attrs["options"]["layout"]


def _on_text(
    result: xr.Dataset, trace: "Trace", layer: int, head: int, function: Callable[[Tensor, float], Tensor]
) -> Tensor:
    """A function of the classes' mean weights and the head's threshold, spread over the cells of a text's map."""
    check_structure(result)
    layout = result.attrs["options"]["layout"]
    try:
        one = result.sel(layer=layer, head=head)
    except KeyError:
        have = f"layers {result['layer'].values.tolist()} and heads {result['head'].values.tolist()}"
        raise InputError(f"layer {layer}, head {head} is not in this result; it has {have}.") from None
    site = trace.site(layer, result.attrs["attention"], result.attrs["query_stream"])
    classes = site_classes(trace, site, layout)
    if layout == "absolute" and classes.shape != (result.sizes["query"], result.sizes["key"]):
        raise InputError(
            f"this structure is of maps {result.sizes['query']} by {result.sizes['key']}, and the text's are"
            f' {classes.shape[0]} by {classes.shape[1]}; extract with layout="aligned" for texts of other lengths.'
        )
    codes, means = (torch.from_numpy(np.array(one[name].values)) for name in ("class", "class_mean"))
    return spread(codes, function(means, float(one["threshold"])), classes).to(site.context.device)


def structure_cells(result: xr.Dataset, trace: "Trace", layer: int, head: int) -> Tensor:
    """Which cells [query, key] of a text's map belong to the structure: those that the cut left as they were."""
    return _on_text(result, trace, layer, head, lambda means, threshold: (means >= threshold).double()) > 0
