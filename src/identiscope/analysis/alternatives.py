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
from identiscope.linalg.polytope import worst_certificate
from identiscope.methods.alternatives import (
    Alternative,
    alternative_along,
    alternative_avoiding,
    alternative_farthest,
    alternative_favouring,
)
from identiscope.methods.polytopes import whole_numbers
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
    rows: int | Sequence[int] | None = None,
    token: int | Sequence[int] | None = None,
    direction: Tensor | np.ndarray | Sequence[float] | None = None,
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
    The certificate of the changed rows is in the attributes: `least_weight`, `row_sum_error`, `output_error`,
    `output_error_relative`; and so are `rows_left_alone`, those of the rows that may see no such `token`.

    `along` also gives `lambda_max` [query] (§3.3), the step along the direction whose part in the null space has
    length one, NaN for rows that were not asked for. `realisable` gives the factors of its logits, `logit_query`
    [query, channel] and `logit_key` [key, channel], of which each row is a softmax over the keys it may see, scaled
    to the row sum; and `solved` [query], false where the output could not be met to 1e-10.
    """
    if how not in get_args(How):
        raise InputError(f"how={how!r} was given; expected one of {', '.join(get_args(How))}.")
    site = chosen_sites(trace, [layer], kind, stream)[0]
    held = site_tensors(site).of_head(head)
    raw = held.raw(slice(0, site.queries))[0]
    chosen = list(range(site.queries)) if rows is None else _places(rows, "rows", "query rows", site.queries)
    keys = [] if token is None else _places(token, "token", "key positions", site.keys)
    extra: dict[str, Any] = {}
    left_alone: list[int] = []
    if how == "realisable":
        if rows is not None or site.query is None:
            raise InputError("a realisable map is of all rows of a captured head; leave rows out, and trace a model.")
        found = realisable_alternative(
            held.value, held.projection, held.raw, key_channels=site.query.shape[-1], seed=seed, **_common(held)
        )
        changed, certificate = found.attention, asdict(found.certificate)
        distances = (found.total_variation, found.jensen_shannon)
        extra = {
            "logit_query": (("query", "channel"), found.query),
            "logit_key": (("key", "channel"), found.key),
            "solved": (("query",), found.solved),
        }
    else:
        if how in ("avoid", "favour"):
            left_alone = _cannot_see(held, how, chosen, keys)
        finder = _finder(held, how, keys, direction, measure, starts, seed)
        moving = [row for row in chosen if row not in left_alone]
        changed, certificate, distances, steps = _row_by_row(raw, moving, finder, progress)
        if how == "along":
            extra = {"lambda_max": (("query",), steps)}
    return make_result(
        "attention_alternative",
        {
            "alternative": (("query", "key"), changed),
            "raw": (("query", "key"), raw),
            "total_variation": (("query",), distances[0]),
            "jensen_shannon": (("query",), distances[1]),
            **extra,
        },
        coordinates={
            "query_token": ("query", list(trace.streams[site.query_stream].tokens)),
            "key_token": ("key", list(trace.streams[site.key_stream].tokens)),
        },
        provenance=provenance(
            trace, site, layer=layer, head=head, how=how, rows=None if rows is None else chosen, token=keys, seed=seed
        )
        | certificate
        | {"rows_left_alone": left_alone},
    )


Finder = Callable[[int], Alternative]


def _finder(
    held: SiteTensors,
    how: str,
    keys: list[int],
    direction: Tensor | np.ndarray | Sequence[float] | None,
    measure: Any,
    starts: int,
    seed: int,
) -> Finder:
    """A function from a query to its alternative."""
    tensors = (held.value, held.projection, held.raw)
    common = _common(held)
    if how == "farthest":
        return lambda query: alternative_farthest(
            *tensors, query=query, measure=measure, starts=starts, seed=seed, **common
        )
    if how == "along":
        if direction is None:
            raise InputError('how="along" needs a direction [key].')
        way = _direction(direction)
        return lambda query: alternative_along(*tensors, way, query=query, **common)
    function = alternative_avoiding if how == "avoid" else alternative_favouring
    allowed = held.site.allowed_keys(held.heads[0])
    # On a key that the row may not see it has no weight in any case.
    return lambda query: function(
        *tensors, query=query, keys=[key for key in keys if bool(allowed[query, key])], **common
    )


def _cannot_see(held: SiteTensors, how: str, rows: list[int], keys: list[int]) -> list[int]:
    """Those of the rows that may look at none of the keys; an error if that is all of them."""
    if not keys:
        raise InputError(f"how={how!r} needs token=, one key position or several.")
    sees = held.site.allowed_keys(held.heads[0])[:, keys].any(1)
    blind = [row for row in rows if not bool(sees[row])]
    if len(blind) == len(rows):
        able = sees.nonzero()[:, 0].tolist()
        those = f"rows {able[0]} to {able[-1]} hold those that may" if able else "no row of this head may"
        raise InputError(
            f"how={how!r} was asked for with token={keys} and rows={rows}, but none of these rows may look at it; "
            f"{those}. Choose such a row, or another token."
        )
    return blind


def _row_by_row(
    raw: Tensor, rows: list[int], finder: Finder, progress: Callable[[int, int], None] | None
) -> tuple[Tensor, dict[str, float], tuple[Tensor, Tensor], Tensor]:
    changed, distances = raw.clone(), torch.zeros(2, len(raw), dtype=torch.float64)
    steps = torch.full((len(raw),), torch.nan, dtype=torch.float64)
    certificates = []
    for done, row in enumerate(rows, 1):
        found = finder(row)
        changed[row] = found.row
        distances[0, row], distances[1, row] = found.total_variation, found.jensen_shannon
        if found.lambda_max is not None:
            steps[row] = found.lambda_max
        certificates.append(found.certificate)
        if progress is not None:
            progress(done, len(rows))
    return changed, asdict(worst_certificate(certificates)), (distances[0], distances[1]), steps


def _common(held: SiteTensors) -> dict[str, Any]:
    return {"head": 0, "queries": held.site.queries, "allowed": held.allowed, "precision": held.precision}


def _places(given: Any, name: str, what: str, count: int) -> list[int]:
    """One position or several, each within the text."""
    expected = f"{what} 0 to {count - 1}"
    places = whole_numbers(given, name, expected)
    if any(not 0 <= place < count for place in places):
        raise InputError(f"{name}={given!r} was given; the text has {expected}.")
    return places


def _direction(given: Any) -> Tensor:
    """A direction [key] of torch, NumPy or a list as float64."""
    try:
        values = given.detach().cpu() if isinstance(given, Tensor) else np.asarray(given, dtype=np.float64)
        return torch.as_tensor(values, dtype=torch.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"direction={given!r} was given, expected one number for each key: {error}") from error
