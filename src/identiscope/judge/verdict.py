"""What the numbers say, in plain words."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
import xarray as xr
from torch import Tensor

from identiscope.asking.ask import ask
from identiscope.linalg.devices import on_cpu
from identiscope.methods.heads.head_summary import map_summary
from identiscope.progress import Progress
from identiscope.token_text import shown_token

if TYPE_CHECKING:
    from identiscope.capture import Trace


# How many weights between two words are looked at: two linear programs each.
CANDIDATES = 24

#: A weight from here on is one that a reader of a map would point at.
NOTICEABLE = 0.1

#: A weight whose interval is narrower than this can be taken as it is.
FIXED = 0.05


@dataclass(frozen=True)
class Verdict:
    """Sentences for a reader, the first of which can stand alone, and the numbers in them.

    `sample` has weights between two words with the interval of each, alone and (`merged_`) with equal tokens added up:
    drawn at random from the `drawn_from` that are 0.1 or more, or where there are none the strongest of each head (then
    `drawn_from` is 0). `median_reach` is how far a row of attention can be moved, in total variation with equal tokens
    added up: the median over some rows of the farthest alternative found, and so a lower bound. `median_null_share` is
    the share of squared attention in LN([T,1]), which no rewriting of the model changes, and
    `median_merged_null_share` that with equal tokens added up.
    """

    sentences: tuple[str, ...]
    heads: int
    free_heads: int
    median_merged_null_share: float
    median_null_share: float
    median_reach: float
    sample: pd.DataFrame
    drawn_from: int


def verdict(
    trace: "Trace",
    result: xr.Dataset,
    *,
    candidates: int = CANDIDATES,
    seed: int = 0,
    progress: Progress | None = None,
) -> Verdict:
    """What a weight may be, how typical that is, and why.

    result: what `attention_identifiability` gave for this trace. A head is not identifiable if any of its rows can
    move within the simplex. That alone says little of a single weight, so some that a reader would point at, drawn at
    random, are given their intervals. `progress(done, total)` is called after each of these weights, and after each row
    whose farthest alternative was sought.
    """
    heads = int(result["free_rows"].size)
    free = int((result["free_rows"].values > 0).sum())
    merged, share = (float(result[name].median()) for name in ("merged_null_share", "simplex_null_share"))
    width = trace.site(int(result["layer"][0]), result.attrs["attention"], result.attrs["query_stream"]).value.shape[-1]
    count = len(trace.streams[result.attrs["key_stream"]])
    if free == 0:
        sentences: tuple[str, ...] = (
            "Good news: every attention weight here is real. No other weights give the same output, in any of the"
            f" {heads} heads.",
            f"A row of attention is over {count} tokens, and a head's values have {width} dimensions: up to"
            f" {width + 1} tokens, as a rule, no weight can move without changing the output; in longer texts, they"
            " can.",
        )
        return Verdict(sentences, heads, 0, merged, share, 0.0, pd.DataFrame(), 0)
    weights, drawn_from = _places(trace, result, candidates, seed)
    rows = _spread_rows(result, candidates)
    done = 0

    def one_done() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, len(weights) + len(rows))

    sample = _with_intervals(trace, result, weights, one_done)
    reach = _reach(trace, result, rows, one_done)
    sentences = (
        *_sample_sentences(sample, drawn_from),
        f"Why: a row of attention is over {count} tokens, and a head's values have only {width} dimensions. In"
        f" {free} of {heads} heads rows can be exchanged for others that give the same output; a typical row can move"
        f" {reach:.2f} of its weight or more to other words (median of {len(rows)}).",
        f"Taken together, {merged:.2f} of the squared attention of the median head has no effect: its null share, row"
        f" sums kept and equal tokens added up ({share:.2f} place by place). A single weight may be held in place all"
        " the same, since none can be negative and each row keeps its sum: its own range is what counts.",
    )
    return Verdict(sentences, heads, free, merged, share, reach, sample, drawn_from)


def _places(
    trace: "Trace", result: xr.Dataset, candidates: int, seed: int
) -> tuple[list[tuple[int, int, int, int]], int]:
    """(layer, head, query, key) of noticeable weights between two words, drawn at random, and from how many.

    Where no weight is noticeable: the strongest of each head, largest first, drawn from 0.
    """
    attention, stream = result.attrs["attention"], result.attrs["query_stream"]
    special = torch.tensor(trace.streams[result.attrs["key_stream"]].special)
    between = _between_words(trace, result)
    noticeable: list[Tensor] = []
    strongest: list[tuple[float, int, int, int, int]] = []
    for layer in result["layer"].values.tolist():
        site = trace.site(layer, attention, stream)
        for head in site.heads:
            weights = on_cpu(site.attention(head))
            cells = ((weights >= NOTICEABLE) & between).nonzero()
            noticeable.append(torch.cat([torch.tensor([[layer, head]]).expand(len(cells), 2), cells], 1))
            summary = map_summary(weights, special)
            strongest.append((summary.strongest, layer, head, summary.strongest_query, summary.strongest_key))
    every = torch.cat(noticeable)
    if len(every):
        order = torch.randperm(len(every), generator=torch.Generator().manual_seed(seed))[:candidates]
        chosen = every[order.sort().values].tolist()
        return [(layer, head, query, key) for layer, head, query, key in chosen], len(every)
    largest = sorted(strongest, reverse=True)[:candidates]
    return [(layer, head, query, key) for _, layer, head, query, key in largest], 0


def _between_words(trace: "Trace", result: xr.Dataset) -> Tensor:
    """Which cells [query, key] are between two tokens that are neither special nor the same."""
    names = (result.attrs["query_stream"], result.attrs["key_stream"])
    queries, keys = (~torch.tensor(trace.streams[name].special, dtype=torch.bool) for name in names)
    cells = queries[:, None] & keys
    return cells.fill_diagonal_(False) if names[0] == names[1] else cells


def _with_intervals(
    trace: "Trace", result: xr.Dataset, places: list[tuple[int, int, int, int]], one_done: Callable[[], None]
) -> pd.DataFrame:
    """A table of these weights, each with its interval."""
    attention, stream = result.attrs["attention"], result.attrs["query_stream"]
    rows = []
    for layer, head, query, key in places:
        cell = ask(
            "attention_intervals",
            trace,
            layer=layer,
            head=head,
            cells=[(query, key)],
            attention=attention,
            stream=stream,
        )
        one = cell.drop_vars(["lower_row", "upper_row"]).to_dataframe().iloc[0].to_dict()
        rows.append({"layer": layer, "head": head} | one)
        one_done()
    return pd.DataFrame(rows)


def _spread_rows(result: xr.Dataset, candidates: int) -> list[tuple[int, int, int]]:
    """(layer, head, query) of rows that can move, spread over heads and positions."""
    dimension = result["simplex_null_dimension"].transpose("layer", "head", "query")
    places = np.argwhere(dimension.values > 0)
    chosen = places[np.linspace(0, len(places) - 1, min(candidates, len(places))).astype(int)]
    layers, heads = result["layer"].values, result["head"].values
    return [(int(layers[layer]), int(heads[head]), query) for layer, head, query in chosen.tolist()]


def _reach(trace: "Trace", result: xr.Dataset, rows: list[tuple[int, int, int]], one_done: Callable[[], None]) -> float:
    """Median total variation to the farthest alternative found, of these rows, with equal tokens added up."""
    attention, stream = result.attrs["attention"], result.attrs["query_stream"]
    distances = []
    for layer, head, query in rows:
        alternative = ask(
            "attention_alternative",
            trace,
            layer=layer,
            head=head,
            rows=[query],
            starts=1,
            merged=True,
            attention=attention,
            stream=stream,
        )
        distances.append(float(alternative["merged_total_variation"].max()))
        one_done()
    return float(np.median(distances))


def _sample_sentences(sample: pd.DataFrame, drawn_from: int) -> tuple[str, ...]:
    """What one weight may be, equal tokens taken together, and how typical that is."""
    width = sample["merged_upper"] - sample["merged_lower"]
    one = sample.loc[width.idxmax()]
    fixed, count = int((width < FIXED).sum()), len(sample)
    query, key = shown_token(one.query_token), shown_token(one.key_token)
    names = f"from {query!r} to {key!r}" if one.copies == 1 else f"from {query!r} to all {one.copies:.0f} {key!r}"
    names += f" (layer {one.layer}, head {one['head']})"
    which = (
        f"{count} weights of {NOTICEABLE:g} or more between two words, drawn at random from {drawn_from:,}"
        if drawn_from
        else f"the {count} strongest weights between two words, one a head (none reaches {NOTICEABLE:g})"
    )
    weight = f"{one.merged_weight:.2f} {names}"
    range_ = (
        f"may be anything from {one.merged_lower:.2f} to {one.merged_upper:.2f}, and the model would answer the same"
    )
    if fixed == count:
        first = (
            f"The larger weights can be taken as they are: of {which}, all are fixed to within {FIXED:g}.",
            f"The loosest of them, {weight}, {range_}.",
        )
    else:
        median = float(width.median())
        half = f"half may vary by {median:.2f} or more" if median >= 0.01 else "half vary by less than 0.01"
        first = (
            f"The weight {weight} {range_}.",
            f"It is the loosest of {which}; {fixed} of them are fixed to within {FIXED:g}, and {half}.",
        )
    return first + _copies_sentence(sample, fixed)


def _copies_sentence(sample: pd.DataFrame, fixed: int) -> tuple[str, ...]:
    """What is free only between copies of a word, if anything is."""
    if not bool((sample["copies"] > 1).any()):
        return ()
    alone = int(((sample["upper"] - sample["lower"]) < FIXED).sum())
    if alone >= fixed:
        return ("A word that stands several times counts once here, with its weights added up.",)
    return (
        f"A word that stands several times counts once here, with its weights added up; place by place only {alone} are"
        f" fixed to within {FIXED:g}, since weight may move from one copy of a word to another.",
    )
