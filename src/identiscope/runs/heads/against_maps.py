"""Two models: cell by cell how the maps of a text differ, and how the distances between heads do."""

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from identiscope.capture.trace import Trace
from identiscope.linalg.devices import as_numpy
from identiscope.results import make_result
from identiscope.runs.heads.means import Means
from identiscope.runs.heads.traced import both_of, own_sites
from identiscope.stats.simultaneous_interval import simultaneous_interval

Array = NDArray[np.float64]
Place = tuple[int, int]


def map_differences(one: Trace, other: Trace, partners: Mapping[Place, Place]) -> xr.Dataset:
    """Of one text as both models read it: the map of each head's partner less its own, [layer, head, query, key], raw
    and (`simplex_`) of the maps that no rewriting changes; NaN of heads without a partner."""
    mine, theirs = _maps(one), _maps(other)
    layers, heads = (sorted({place[axis] for place in mine}) for axis in (0, 1))
    tokens = len(one.main)
    values = np.full((2, len(layers), len(heads), tokens, tokens), np.nan, np.float32)
    for place, partner in partners.items():
        values[:, layers.index(place[0]), heads.index(place[1])] = theirs[partner] - mine[place]
    axes = ("layer", "head", "query", "key")
    arrays = {name: (axes, part) for name, part in zip(("map", "simplex_map"), values, strict=True)}
    names = [str(token) for token in one.main.tokens]
    labels = {"layer": layers, "head": heads, "query_token": ("query", names), "key_token": ("key", names)}
    return make_result("map_differences", arrays, coordinates=labels, provenance={"partner": "less the head's own"})


def _maps(trace: Trace) -> dict[Place, Array]:
    """Of each head the raw map and that which no rewriting changes: [2, query, key]."""
    found = {}
    for site in own_sites(trace):
        raw, real = np.split(as_numpy(both_of(site)), 2)
        found.update({(site.layer, head): np.stack([raw[at], real[at]]) for at, head in enumerate(site.heads)})
    return found


def distance_differences(
    one: Sequence[Array],
    other: Sequence[Array],
    places: tuple[Sequence[Place], Sequence[Place]],
    partners: Mapping[Place, Place],
    rounding: float,
) -> xr.Dataset:
    """Jensen–Shannon distance of the partners of two heads less that of the two, in bits: the mean over texts with its
    error and a paired interval (95 % for all pairs together), [first, second].

    one, other: of each text the distances between all heads, [head, head], whose places are places. `changed`: the
    interval is off zero, by more than rounding explains; NaN of heads without a partner, and of a head with itself.
    """
    order = [places[1].index(partners[place]) if place in partners else -1 for place in places[0]]
    known = np.array(order) >= 0
    # Of two heads once: distances are symmetric.
    asked = np.triu(known[:, None] & known, 1)
    means, before = Means(), Means()
    for mine, theirs in zip(one, other, strict=True):
        means.add(np.where(asked, theirs[np.ix_(order, order)] - mine, np.nan))
        before.add(np.where(asked, mine, np.nan))
    low, high = simultaneous_interval(means.mean, means.error, means.count, int(asked.sum()))
    changed = ((low > 0) | (high < 0)) & (np.abs(means.mean) > rounding)
    names = [f"{layer}.{head}" for layer, head in places[0]]
    arrays = {
        "distance": before.mean,
        "difference": means.mean,
        "difference_error": means.error,
        "difference_lower": np.where(asked, low, np.nan),
        "difference_upper": np.where(asked, high, np.nan),
        "changed": np.where(asked, changed, np.nan),
    }
    both = {name: (("first", "second"), np.where(asked, values, values.T)) for name, values in arrays.items()}
    return make_result("distance_differences", both, coordinates={"first": names, "second": names})
