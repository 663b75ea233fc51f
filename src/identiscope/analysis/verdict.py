"""What the numbers say, in plain words."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
import xarray as xr

from identiscope.analysis.alternatives import attention_alternative
from identiscope.analysis.attention import attention_intervals
from identiscope.methods.head_summary import head_summary

if TYPE_CHECKING:
    from identiscope.capture import Trace


# How many of the strongest weights between two words are looked at: two linear programs each.
CANDIDATES = 24


@dataclass(frozen=True)
class Verdict:
    """Sentences for a reader, and the numbers in them.

    `median_reach` is how far a row of attention can be moved, in total variation: the median over some rows of
    the farthest alternative found, and so a lower bound. `strongest` has the largest raw weights between two words,
    with the interval of each.
    """

    sentences: tuple[str, ...]
    heads: int
    free_heads: int
    median_null_share: float
    median_reach: float
    strongest: pd.DataFrame


def verdict(
    trace: "Trace",
    result: xr.Dataset,
    *,
    candidates: int = CANDIDATES,
    progress: Callable[[int, int], None] | None = None,
) -> Verdict:
    """How many heads are identifiable, how much of them is null, and what the strongest weights may be.

    result: what `attention_identifiability` gave for this trace. A head is not identifiable if any of its rows can
    move within the simplex. That alone says little of a row that is nearly one-hot, so the largest weights between
    two different words, one a head, are given their intervals. `progress(done, total)` is called after each of these
    weights, and after each row whose farthest alternative was sought.
    """
    heads = int(result["free_rows"].size)
    free = int((result["free_rows"].values > 0).sum())
    share = float(result["null_share"].median())
    width = trace.site(int(result["layer"][0]), result.attrs["kind"], result.attrs["query_stream"]).value.shape[-1]
    count = len(trace.streams[result.attrs["key_stream"]])
    if free == 0:
        sentences: tuple[str, ...] = (
            f"Of {heads} heads, all are identifiable: {count} keys, and values of width {width}.",
            f"Up to {width + 1} keys a weight cannot move without changing the output; try a longer text.",
        )
        return Verdict(sentences, heads, 0, share, 0.0, pd.DataFrame())
    weights, rows = _strongest_places(trace, result, candidates), _spread_rows(result, candidates)
    done = 0

    def one_done() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, len(weights) + len(rows))

    strongest = _with_intervals(trace, result, weights, one_done)
    reach = _reach(trace, result, rows, one_done)
    sentences = (
        f"Of {heads} heads, {free} are not identifiable: {count} keys, and values of width {width}.",
        f"Median null share {share:.2f}: that much of the squared attention weight has no effect on the output.",
        f"A row can move by {reach:.2f} or more of its weight (total variation, median of {len(rows)} rows).",
        *_sentences(strongest),
    )
    return Verdict(sentences, heads, free, share, reach, strongest)


def _strongest_places(trace: "Trace", result: xr.Dataset, candidates: int) -> list[tuple[int, int, int, int]]:
    """(layer, head, query, key) of the largest weight between two words of each head that can move, largest first."""
    kind, stream = result.attrs["kind"], result.attrs["query_stream"]
    special = torch.tensor(trace.streams[result.attrs["key_stream"]].special)
    found: list[tuple[float, int, int, int, int]] = []
    for layer in result["layer"].values.tolist():
        site = trace.site(layer, kind, stream)
        free = torch.from_numpy(np.asarray(result["simplex_null_dimension"].sel(layer=layer) > 0))
        for place, head in enumerate(site.heads):
            summary = head_summary(torch.where(free[place][:, None], site.attention(head), 0.0), special)
            found.append((summary.strongest, layer, head, summary.strongest_query, summary.strongest_key))
    largest = sorted(found, reverse=True)[:candidates]
    return [(layer, head, query, key) for weight, layer, head, query, key in largest if weight > 0]


def _with_intervals(
    trace: "Trace", result: xr.Dataset, places: list[tuple[int, int, int, int]], one_done: Callable[[], None]
) -> pd.DataFrame:
    """A table of these weights, each with its interval."""
    kind, stream = result.attrs["kind"], result.attrs["query_stream"]
    rows = []
    for layer, head, query, key in places:
        cell = attention_intervals(trace, layer, head, cells=[(query, key)], kind=kind, stream=stream)
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
    """Median total variation to the farthest alternative found, of these rows."""
    kind, stream = result.attrs["kind"], result.attrs["query_stream"]
    distances = []
    for layer, head, query in rows:
        found = attention_alternative(trace, layer, head, rows=[query], starts=1, kind=kind, stream=stream)
        distances.append(float(found["total_variation"].max()))
        one_done()
    return float(np.median(distances))


def _sentences(strongest: pd.DataFrame) -> tuple[str, ...]:
    if strongest.empty:
        return ()
    width = strongest["upper"] - strongest["lower"]
    fixed = int((width < 0.05).sum())
    count = len(strongest)
    many = f"Of the {count} strongest weights between two words, one a head, {fixed} are fixed to within 0.05"
    if fixed == count:
        return (f"{many}: a null space is there, but these weights cannot use it.",)
    one = strongest.loc[width.idxmax()]
    names = f"from {str(one.query_token)!r} to {str(one.key_token)!r} (layer {one.layer}, head {one['head']})"
    return (
        f"{many}. The loosest of them, {one.weight:.2f} {names}, may be anything from {one.lower:.2f} to"
        f" {one.upper:.2f}, and the model would answer the same.",
    )
