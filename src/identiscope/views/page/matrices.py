"""A matrix for every head, as a section: maps of attention that methods give, and structures."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from identiscope.errors import InputError
from identiscope.views.page.data import Section, label, labels_of, tokens_of
from identiscope.views.page.packing import Array, Chunk, from_levels, levels_for, to_levels
from identiscope.views.page.shapes import Label, MapData, MapLayer

#: How far a cell may be off, in parts of the largest: such a map is read by eye.
MAP_ERROR = 5e-4

#: What stands for a cell without a number: no rounded value comes here.
NO_NUMBER = -32768

#: The axes that say which matrix; the two others of a variable are its rows and columns.
WHERE = ("layer", "head")


def matrices(result: xr.Dataset, variable: str) -> tuple[MapData, Mapping[str, bytes]]:
    """A variable by layer and head (either may be missing) and two other axes: its rows and its columns."""
    cells = result[variable]
    across = [str(axis) for axis in cells.dims if axis not in WHERE]
    heads = [int(head) for head in labels_of(result, "head")] if "head" in cells.dims else None
    stacked = cells.expand_dims([axis for axis in WHERE if axis not in cells.dims]).transpose(*WHERE, *across)
    layers: Sequence[Label | None] = labels_of(result, "layer") if "layer" in cells.dims else [_scalar(result, "layer")]
    if heads is None and _scalar(result, "head") is not None:
        heads = [int(result["head"].item())]
    numbers = np.asarray(stacked.values, dtype=np.float64)
    names = (tokens_of(result, across[0]), tokens_of(result, across[1]))
    return pack_matrices(numbers, [(one, heads) for one in layers], names, (across[0], across[1]), variable)


def pack_matrices(
    numbers: Array,
    places: Sequence[tuple[Label | None, list[int] | None]],
    names: tuple[list[str], list[str]],
    axes: tuple[str, str],
    variable: str,
) -> tuple[MapData, Mapping[str, bytes]]:
    """Numbers [layer, head, row, column], rounded; each layer in a chunk of its own, read when it is looked at."""
    missing = np.isnan(numbers)
    peak = float(np.abs(numbers[~missing]).max()) or 1.0
    levels, chunks = levels_for(MAP_ERROR), {}
    off = 0.0
    layers: list[MapLayer] = []
    for place, (layer, heads) in enumerate(places):
        shares = np.where(missing[place], 0, numbers[place]) / peak
        codes = to_levels(shares, levels)
        off = max(off, float(np.abs(from_levels(codes, levels) - shares).max()) * peak)
        chunk = Chunk()
        described = chunk.whole(np.where(missing[place], NO_NUMBER, codes))
        layers.append({"layer": layer, "heads": heads, "chunk": f"layer-{place}", "cells": described})
        chunks[f"layer-{place}"] = chunk.compressed()
    return {
        "variable": variable,
        "axes": list(axes),
        "rows": names[0],
        "columns": names[1],
        "layers": layers,
        "levels": levels,
        "peak": peak,
        "error": off,
    }, chunks


def structure_section(
    weights: Array, labels: Sequence[str] | None = None, *, columns: Sequence[str] | None = None, says: str = ""
) -> Section:
    """A structure matrix W [row, column] of one's own, with the names of its rows (and columns, if they differ)."""
    cells = np.asarray(weights, dtype=np.float64)
    if cells.ndim != 2 or not cells.size or not np.isfinite(cells).all() or np.abs(cells).max() > 1:
        raise InputError(f"a structure of shape {cells.shape} was given; expected a matrix of numbers from -1 to 1.")
    rows = [str(place) for place in range(cells.shape[0])] if labels is None else [str(name) for name in labels]
    other = rows if columns is None and cells.shape[0] == cells.shape[1] else columns
    names = [str(place) for place in range(cells.shape[1])] if other is None else [str(name) for name in other]
    if (len(rows), len(names)) != cells.shape:
        raise InputError(f"{len(rows)} and {len(names)} labels were given for a structure of shape {cells.shape}.")
    data, chunks = pack_matrices(cells[None, None], [(None, None)], (rows, names), ("row", "column"), "weight")
    return Section(
        "structure", "Structure W", says or "W, what the attention of many inputs has in common.", data, chunks
    )


def _scalar(result: xr.Dataset, axis: str) -> Any:
    """The one layer or head that was selected, if the result still says which."""
    return label(result[axis].item()) if axis in result.coords and result[axis].ndim == 0 else None
