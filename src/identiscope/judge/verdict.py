"""What the numbers say, in plain words."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
import xarray as xr
from torch import Tensor
from torch.nn import functional

from identiscope.linalg.devices import on_cpu
from identiscope.methods.fields import LayerFields, layer_fields
from identiscope.methods.freedom.alternatives import alternative_farthest
from identiscope.methods.freedom.intervals import intervals
from identiscope.methods.freedom.polytopes import head_rows
from identiscope.methods.heads.head_summary import map_summary
from identiscope.progress import Progress
from identiscope.token_text import shown_token

if TYPE_CHECKING:
    from identiscope.capture import Site, Trace


# How many weights between two words are looked at: two linear programs each.
CANDIDATES = 24

#: Of how many rows the farthest alternative is sought, one in so many candidates: a search takes as long as the
#: intervals of two weights, and a median needs fewer.
ROWS_PER_CANDIDATE = 1 / 3

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
            "Good news: every attention weight here is real. No other weights give the same output"
            f"{f', in any of the {heads} heads' if heads > 1 else ''}.",
            f"Why: the text has {count} token{'s' * (count != 1)}, and a head passes on {width} numbers of what it"
            f" reads. Up to {width + 1} tokens these are enough, as a rule, to tell every weight; in longer texts they"
            " are not.",
        )
        return Verdict(sentences, heads, 0, merged, share, 0.0, pd.DataFrame(), 0)
    weights, drawn_from = _places(trace, result, candidates, seed)
    rows = _spread_rows(result, max(1, round(candidates * ROWS_PER_CANDIDATE)))
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
        *_copies_sentence(sample),
        f"Why: a row is the weights that one word gives to {count} tokens, and a head passes on"
        f" {_enough(count, width)}. In {free} of {heads} heads rows can be exchanged for others that give the same"
        f" output; a typical row can move {reach:.2f} of its weight or more to other words (median of {len(rows)}).",
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
    between = _between_words(trace, result)
    noticeable: list[Tensor] = []
    for layer, site in _sites(trace, result):
        for heads, rows, weights in _row_blocks(site):
            cells = ((weights >= NOTICEABLE) & between[rows, : weights.shape[2]]).nonzero()
            # Layers need not have the same heads.
            cells[:, 0] = torch.tensor(site.heads)[heads][cells[:, 0]]
            noticeable.append(functional.pad(cells, (1, 0)) + torch.tensor([layer, 0, rows.start, 0]))
    every = _in_order(torch.cat(noticeable))
    if len(every):
        order = torch.randperm(len(every), generator=torch.Generator().manual_seed(seed))[:candidates]
        chosen = every[order.sort().values].tolist()
        return [(layer, head, query, key) for layer, head, query, key in chosen], len(every)
    special = torch.tensor(trace.streams[result.attrs["key_stream"]].special)
    strongest: list[tuple[float, int, int, int, int]] = []
    for layer, head, weights in _maps(trace, result):
        summary = map_summary(weights, special)
        strongest.append((summary.strongest, layer, head, summary.strongest_query, summary.strongest_key))
    largest = sorted(strongest, reverse=True)[:candidates]
    return [(layer, head, query, key) for _, layer, head, query, key in largest], 0


def _sites(trace: "Trace", result: xr.Dataset) -> Iterator[tuple[int, "Site"]]:
    for layer in result["layer"].values.tolist():
        yield layer, trace.site(layer, result.attrs["attention"], result.attrs["query_stream"])


def _maps(trace: "Trace", result: xr.Dataset) -> Iterator[tuple[int, int, Tensor]]:
    """Layer, head and raw attention of every head."""
    for layer, site in _sites(trace, result):
        for head in site.heads:
            yield layer, head, on_cpu(site.attention(head))


def _row_blocks(site: "Site") -> Iterator[tuple[slice, slice, Tensor]]:
    """Raw attention part by part: of which places of heads and which rows, and the weights [head, row, key].

    Keys behind the last that these rows see may be left out. Made in compiled code where it can be, in a third of the
    time.
    """
    made = layer_fields(site).softmax_rows
    if made is None:
        for place, head in enumerate(site.heads):
            yield slice(place, place + 1), slice(0, site.queries), on_cpu(site.attention(head))[None]
        return
    for rows in made.blocks(0, site.queries):
        yield slice(0, len(site.heads)), rows, made.rows(rows)[0]


def _in_order(cells: Tensor) -> Tensor:
    """Rows (layer, head, query, key) sorted by the first that differs."""
    return torch.from_numpy(cells.numpy()[np.lexsort(cells.numpy().T[::-1])])


def _between_words(trace: "Trace", result: xr.Dataset) -> Tensor:
    """Which cells [query, key] are between two tokens that are neither special nor the same."""
    names = (result.attrs["query_stream"], result.attrs["key_stream"])
    queries, keys = (~torch.tensor(trace.streams[name].special, dtype=torch.bool) for name in names)
    cells = queries[:, None] & keys
    return cells.fill_diagonal_(False) if names[0] == names[1] else cells


def _fields(trace: "Trace", result: xr.Dataset, layer: int, head: int) -> LayerFields:
    """What one head's polytopes are made of."""
    site = trace.site(layer, result.attrs["attention"], result.attrs["query_stream"])
    return layer_fields(site).of_head(head)


def _copies(trace: "Trace", result: xr.Dataset) -> Tensor:
    """Which keys are the same token, of any layer: [key]."""
    site = trace.site(int(result["layer"][0]), result.attrs["attention"], result.attrs["query_stream"])
    return layer_fields(site, trace.streams).copies


def _with_intervals(
    trace: "Trace", result: xr.Dataset, places: list[tuple[int, int, int, int]], one_done: Callable[[], None]
) -> pd.DataFrame:
    """A table of these weights, each with its interval."""
    queries, keys = (trace.streams[result.attrs[name]].tokens for name in ("query_stream", "key_stream"))
    rows, copies = [], _copies(trace, result)
    for layer, head, query, key in places:
        fields = _fields(trace, result, layer, head)
        found = intervals(
            fields.value, fields.projection, fields.raw, fields.queries, fields.allowed, fields.precision,
            head=0, cells=[(query, key)], copies=copies,
        )  # fmt: skip
        numbers = {name: values.item() for name, (axes, values) in found.arrays().items() if axes == ("cell",)}
        named = {"query_token": str(queries[query]), "key_token": str(keys[key])}
        rows.append({"layer": layer, "head": head} | numbers | named)
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
    distances, copies = [], _copies(trace, result)
    for layer, head, query in rows:
        one = _fields(trace, result, layer, head)
        described = head_rows(one.value, one.projection, one.raw, 0, one.queries, one.allowed, one.precision)
        groups = described.groups("tokens", copies)
        other = alternative_farthest(described, query=query, starts=1, groups=groups).row
        change = torch.zeros(int(groups.max()) + 1, dtype=torch.float64)
        change.index_add_(0, groups, on_cpu(other).double() - described.row(query).double())
        distances.append(0.5 * float(change.abs().sum()))
        one_done()
    return float(np.median(distances))


def _sample_sentences(sample: pd.DataFrame, drawn_from: int) -> tuple[str, ...]:
    """How much of what a reader would point at is certain, what one of these weights may be, and which they are."""
    width = sample["merged_upper"] - sample["merged_lower"]
    one = sample.loc[width.idxmax()]
    fixed, count = int((width < FIXED).sum()), len(sample)
    query, key = _quoted(one.query_token), _quoted(one.key_token)
    names = f"from {query} to {key}" if one.copies == 1 else f"from {query} to all {one.copies:.0f} {key}"
    loosest = f"loosest, {one.merged_weight:.2f} {names} (layer {one.layer}, head {one['head']}),"
    if fixed == count:
        vary = f"{width.max():.2f} at most" if width.max() >= 0.005 else "less than 0.01"
        loosest = f"Even the {loosest} could vary by {vary}."
    else:
        range_ = f"may be anything from {one.merged_lower:.2f} to {one.merged_upper:.2f}"
        loosest = f"The {loosest} {range_}, and the model would answer the same."
    median = float(width.median())
    half = f"half of them may vary by {median:.2f} or more" if median >= 0.01 else "half of them vary by less than 0.01"
    which = (
        f"The {count} were drawn at random from {drawn_from:,} weights of {NOTICEABLE:g} or more between two words"
        if drawn_from
        else f"They are the {count} strongest weights between two words, one a head (none reaches {NOTICEABLE:g})"
    )
    return (
        _lead(fixed, count),
        loosest,
        f"{which}. Certain means fixed to within {FIXED:g}; {half}.",
    )


def _enough(count: int, width: int) -> str:
    """Whether so many numbers of what a head reads tell the weights of so many tokens."""
    if count > width + 1:
        return f"only {width} numbers of what it reads, too few to tell so many weights"
    return (
        f"{width} numbers of what it reads: as a rule enough to tell so many weights, but not where what it reads from"
        " some tokens can be made of what it reads from others, as from a word that stands twice"
    )


def _quoted(token: object) -> str:
    """A token as a word in a sentence: without the mark for the space before it."""
    name = shown_token(token)
    return f"“{name.removeprefix('␣') or name}”"


def _lead(fixed: int, count: int) -> str:
    """The answer in one sentence: all, most (three quarters), part, little (one quarter) or nothing is certain."""
    weights = f"{count} larger attention weights" if count > 1 else "one larger attention weight"
    otherwise = "could be otherwise, and the model would answer the same"
    if fixed == count:
        return f"You can take it as it is: of {weights} looked into, all are certain."
    if fixed == 0:
        return f"Do not take it as it is: of {weights} looked into, none is certain. They {otherwise}."
    rest = f"the other {count - fixed} {otherwise}" if count - fixed > 1 else f"the other one {otherwise}"
    much = "Most" if fixed >= 0.75 * count else "Little" if fixed <= 0.25 * count else "Part"
    return f"{much} of it is certain: of {weights} looked into, {fixed} {'are' if fixed > 1 else 'is'}; {rest}."


def _copies_sentence(sample: pd.DataFrame) -> tuple[str, ...]:
    """What is free only between copies of a word, if anything is."""
    if not bool((sample["copies"] > 1).any()):
        return ()
    fixed = int(((sample["merged_upper"] - sample["merged_lower"]) < FIXED).sum())
    alone = int(((sample["upper"] - sample["lower"]) < FIXED).sum())
    if alone >= fixed:
        return ("A word that stands several times counts once here, with its weights added up.",)
    return (
        f"A word that stands several times counts once here, with its weights added up; place by place only {alone} are"
        f" certain, since weight may move from one copy of a word to another.",
    )
