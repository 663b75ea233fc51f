"""Other attention maps with the same output, for the heads of a Trace, each with its certificate."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from identiscope.analysis.site_tensors import SiteTensors, chosen_sites, provenance, site_tensors
from identiscope.errors import InputError
from identiscope.methods.alternatives import (
    Alternative,
    alternative_along,
    alternative_avoiding,
    alternative_farthest,
    alternative_favouring,
)
from identiscope.methods.realisable_alternative import realisable_alternative
from identiscope.results import make_result

if TYPE_CHECKING:
    from identiscope.capture import Trace

How = Literal["farthest", "avoid", "favour", "along", "realisable"]


def attention_alternative(
    trace: "Trace",
    layer: int,
    head: int,
    *,
    how: How = "farthest",
    rows: Sequence[int] | None = None,
    token: int | Sequence[int] | None = None,
    direction: Tensor | None = None,
    measure: Literal["total_variation", "jensen_shannon"] = "total_variation",
    starts: int = 2,
    seed: int = 0,
    kind: str | None = None,
    stream: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> xr.Dataset:
    """Another attention map of one head that gives the same output, on axes query and key.

    >>> other = identiscope.attention_alternative(trace, 3, 5, how="avoid", token=0)
    >>> identiscope.prove(model, text, 3, 5, other)

    how: `farthest` (the farthest found, by `measure`; its distance is a lower bound), `avoid` or `favour` the
    key position(s) `token`, `along` a `direction` [key] projected on the null space, `realisable`: a map that
    some query and key of the head's own width produce by a softmax. rows: change only these queries.
    The certificate is in the attributes: `least_weight`, `row_sum_error`, `output_error`, `output_error_relative`.
    """
    if how not in get_args(How):
        raise InputError(f"how={how!r} was given; expected one of {', '.join(get_args(How))}.")
    site = chosen_sites(trace, [layer], kind, stream)[0]
    held = site_tensors(site).of_head(head)
    raw = held.raw(slice(0, site.queries))[0]
    chosen = list(range(site.queries)) if rows is None else list(rows)
    if any(not 0 <= row < site.queries for row in chosen):
        raise InputError(f"rows {chosen} were asked for; the text has query rows 0 to {site.queries - 1}.")
    if how == "realisable":
        if rows is not None or site.query is None:
            raise InputError("a realisable map is of all rows of a captured head; leave rows out, and trace a model.")
        found = realisable_alternative(
            held.value, held.projection, held.raw, key_channels=site.query.shape[-1], seed=seed, **_common(held)
        )
        changed, certificate = found.attention, asdict(found.certificate)
        distances = (found.total_variation, found.jensen_shannon)
    else:
        changed, certificate, distances = _row_by_row(
            held, raw, chosen, _finder(held, how, token, direction, measure, starts, seed), progress
        )
    return make_result(
        "attention_alternative",
        {
            "alternative": (("query", "key"), changed),
            "raw": (("query", "key"), raw),
            "total_variation": (("query",), distances[0]),
            "jensen_shannon": (("query",), distances[1]),
        },
        coordinates={
            "query_token": ("query", list(trace.streams[site.query_stream].tokens)),
            "key_token": ("key", list(trace.streams[site.key_stream].tokens)),
        },
        provenance=provenance(
            trace, site, layer=layer, head=head, how=how, rows=rows, token=_positions(token), seed=seed
        )
        | certificate,
    )


Finder = Callable[[int], Alternative | None]


def _finder(
    held: SiteTensors,
    how: str,
    token: int | Sequence[int] | None,
    direction: Tensor | None,
    measure: Any,
    starts: int,
    seed: int,
) -> Finder:
    """A function from a query to its alternative; None where the query may not look at the token."""
    tensors = (held.value, held.projection, held.raw)
    common = _common(held)
    if how == "farthest":
        return lambda query: alternative_farthest(
            *tensors, query=query, measure=measure, starts=starts, seed=seed, **common
        )
    if how == "along":
        if direction is None:
            raise InputError('how="along" needs a direction [key].')
        return lambda query: alternative_along(*tensors, direction, query=query, **common)
    keys = _positions(token)
    if not keys:
        raise InputError(f"how={how!r} needs token=, one key position or several.")
    function = alternative_avoiding if how == "avoid" else alternative_favouring
    allowed = held.site.allowed_keys(held.heads[0])
    return lambda query: (
        function(*tensors, query=query, keys=keys, **common) if bool(allowed[query, keys].all()) else None
    )


def _row_by_row(
    held: SiteTensors, raw: Tensor, rows: list[int], finder: Finder, progress: Callable[[int, int], None] | None
) -> tuple[Tensor, dict[str, float], tuple[Tensor, Tensor]]:
    changed, distances = raw.clone(), torch.zeros(2, len(raw), dtype=torch.float64)
    worst = {"least_weight": 0.0, "row_sum_error": 0.0, "output_error": 0.0, "output_error_relative": 0.0}
    for done, row in enumerate(rows, 1):
        found = finder(row)
        if found is not None:
            changed[row] = found.row
            distances[0, row], distances[1, row] = found.total_variation, found.jensen_shannon
            for name, value in asdict(found.certificate).items():
                worst[name] = min(worst[name], value) if name == "least_weight" else max(worst[name], value)
        if progress is not None:
            progress(done, len(rows))
    return changed, worst, (distances[0], distances[1])


def _common(held: SiteTensors) -> dict[str, Any]:
    return {"head": 0, "queries": held.site.queries, "allowed": held.allowed, "precision": held.precision}


def _positions(token: int | Sequence[int] | None) -> list[int]:
    if token is None:
        return []
    return [int(token)] if isinstance(token, (int, np.integer)) else [int(place) for place in token]
