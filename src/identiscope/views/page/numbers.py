"""Small numbers, as sections: by layer and head, as curves over layers, as intervals of weights."""

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr

from identiscope.views.page.data import Section, labels_of, plain
from identiscope.views.page.packing import Array
from identiscope.views.page.shapes import CurveData, FreedomCell, FreedomData, HeadColumn, HeadData, Together

CORPUS = "Means over all texts of the corpus, by layer (rows) and head (columns); beside the list, what a column means."


def head_numbers(result: xr.Dataset, variables: Sequence[str]) -> HeadData:
    """Variables by layer and head."""
    columns: list[HeadColumn] = [
        {
            "name": name,
            "meaning": str(result[name].attrs.get("says", name.replace("_", " "))),
            "values": plain(result[name].transpose("layer", "head").values.astype(np.float64)),
            "deviation": None,
        }
        for name in variables
    ]
    heads = [int(head) for head in labels_of(result, "head")]
    return {"layers": labels_of(result, "layer"), "heads": heads, "columns": _ordered(columns)}


def _ordered(columns: list[HeadColumn]) -> list[HeadColumn]:
    """The null share first, where it is there: a grid begins with its first column."""
    return sorted(columns, key=lambda column: column["name"] != "simplex_null_share")


def means_section(result: xr.Dataset, title: str, meanings: Mapping[str, str], name: str = "") -> Section | None:
    """What a corpus says: `mean` and `deviation` by column and layer, and head where there is such an axis.

    By layer and head they become a grid; by layer alone, the columns that are shares become curves, if there are any.
    """
    names = [str(column) for column in result["column"].values]
    if "head" in result["mean"].dims:
        axes = ("column", "layer", "head")
        mean, deviation = (result[part].transpose(*axes).values for part in ("mean", "deviation"))
        columns: list[HeadColumn] = [
            {
                "name": column,
                "meaning": meanings.get(column, column),
                "values": plain(mean[at]),
                "deviation": plain(deviation[at]),
            }
            for at, column in enumerate(names)
        ]
        heads = [int(head) for head in labels_of(result, "head")]
        grid: HeadData = {"layers": labels_of(result, "layer"), "heads": heads, "columns": _ordered(columns)}
        return Section("head", title, CORPUS, grid, name=name)
    if "layer" not in result["mean"].dims:
        return None  # numbers of whole texts, which the table of means has
    mean, deviation = (result[part].transpose("column", "layer").values for part in ("mean", "deviation"))
    # Shares other than those that only say how sure the others are.
    shares = [
        at for at, one in enumerate(names) if not one.startswith(("tied", "standard_error")) and _are_shares(mean[at])
    ]
    if not shares:
        return None
    curve: CurveData = {
        "layers": labels_of(result, "layer"),
        "names": [names[at].replace("_", " ") for at in shares],
        "rate": [plain(mean[at]) for at in shares],
        "low": [plain(np.clip(mean[at] - deviation[at], 0, 1)) for at in shares],
        "high": [plain(np.clip(mean[at] + deviation[at], 0, 1)) for at in shares],
        "guess": None,
    }
    meant = "; ".join(f"{names[at].replace('_', ' ')}: {meanings[names[at]]}" for at in shares if names[at] in meanings)
    says = "Means over all texts of the corpus, by layer; bands are one standard deviation between texts."
    return Section("curve", title, f"{says} {meant}." if meant else says, curve, name=name)


def rates(result: xr.Dataset) -> CurveData:
    """Rates by probe and layer, with intervals and the rate of a guess where they are there."""

    def curve(name: str) -> list[list[float | None]]:
        there = name in result and set(result[name].dims) == {"probe", "layer"}
        return plain(result[name].transpose("probe", "layer").values) if there else []

    guess = result["random_guess"].values if "random_guess" in result else result.attrs.get("random_guess")
    return {
        "layers": labels_of(result, "layer"),
        "names": [str(probe) for probe in labels_of(result, "probe")],
        "rate": curve("rate"),
        "low": curve("low"),
        "high": curve("high"),
        "guess": None if guess is None else plain(float(np.mean(guess))),
    }


def freedom(result: xr.Dataset, axis: str) -> FreedomData:
    """Weights with `lower` and `upper`, named by the layer, head, query and key that the result says they are of."""
    weights = result["weight"].values if "weight" in result else [None] * result.sizes[axis]
    cells: list[FreedomCell] = [
        {
            "name": _cell_name(result, axis, place),
            "weight": plain(weights[place]),
            "lower": float(result["lower"].values[place]),
            "upper": float(result["upper"].values[place]),
            "together": _together(result, axis, place),
        }
        for place in range(result.sizes[axis])
    ]
    return {"cells": cells}


def _together(result: xr.Dataset, axis: str, place: int) -> Together | None:
    """The bounds of a key's copies together, where it has any and they are known."""
    names = ("copies", "merged_weight", "merged_lower", "merged_upper")
    if not all(_along(result, name, axis) for name in names):
        return None
    copies, weight, lower, upper = (result[name].values[place].item() for name in names)
    return {"copies": int(copies), "weight": weight, "lower": lower, "upper": upper} if copies > 1 else None


def _cell_name(result: xr.Dataset, axis: str, place: int) -> str:
    known = {
        name: result[name].values[place] for name in ("layer", "head", "query", "key") if _along(result, name, axis)
    }
    where = [f"{name} {known[name]}" for name in ("layer", "head") if name in known]
    ends = [_token(result, axis, name, place, int(known[name])) for name in ("query", "key") if name in known]
    return " · ".join(filter(None, [", ".join(where), " → ".join(ends)])) or str(place)


def _token(result: xr.Dataset, axis: str, name: str, place: int, position: int) -> str:
    tokens = result.get(f"{name}_token")
    if tokens is None or tokens.ndim != 1:
        return str(position)
    at = place if tokens.dims == (axis,) else position
    return f"{tokens.values[at]} ({position})" if at < tokens.size else str(position)


def _along(result: xr.Dataset, name: str, axis: str) -> bool:
    return name in result.variables and result[name].dims == (axis,)


def _are_shares(values: Array) -> bool:
    known = values[~np.isnan(values)]
    return bool(known.size and known.min() >= 0 and known.max() <= 1)
