"""The data of a page: a header that says what there is, and chunks with the numbers. `static/data.js` has its types."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any

import numpy as np
import xarray as xr

from identiscope.errors import InputError
from identiscope.views.attention_data import pack_layers
from identiscope.views.layer import Layer
from identiscope.views.packing import Array, Chunk, levels_for, to_levels

FORMAT = "identiscope-page-1"

#: How far a weight of a structure may be off: a structure is read by eye.
STRUCTURE_ERROR = 5e-4


@dataclass(frozen=True)
class Page:
    """A header (plain JSON values) and gzip chunks by name: what a report embeds and a notebook or a server sends."""

    header: dict[str, Any]
    chunks: dict[str, bytes] = field(default_factory=dict)

    def having(self, chunks: Mapping[str, bytes] | None = None, **parts: Any) -> "Page":
        """The same page with more in it."""
        return replace(self, header=self.header | parts, chunks=self.chunks | dict(chunks or {}))


def empty_page(title: str, subtitle: str = "", *, verdict: Sequence[str] = (), notes: Sequence[str] = ()) -> Page:
    """A page with nothing but its title and some words."""
    return Page(
        {
            "format": FORMAT,
            "version": version("identiscope"),
            "title": title,
            "subtitle": subtitle,
            "verdict": list(verdict),
            "notes": list(notes),
            "start": None,
            "tokens": None,
            "layers": [],
            "intervals": [],
            "attribution": None,
            "token_rates": None,
            "structure": None,
            "grids": [],
            "curves": [],
            "figures": [],
            "tables": [],
        }
    )


def with_attention(
    page: Page,
    layers: Iterable[Layer],
    queries: Sequence[str],
    keys: Sequence[str] | None = None,
    *,
    canonical: Mapping[tuple[int, int], Array] | None = None,
    intervals: Sequence[Mapping[str, Any]] = (),
    progress: Callable[[int], None] | None = None,
) -> Page:
    """Add heads: the maps of all layers, canonical maps by (layer, head), and intervals of single weights."""
    packed = pack_layers(layers, canonical, progress)
    names = ("layer", "head", "query", "key", "weight", "lower", "upper")
    return page.having(
        packed.chunks,
        tokens={"queries": [str(token) for token in queries], "keys": None if keys is None else list(map(str, keys))},
        layers=packed.described,
        intervals=[{name: _plain(one[name]) for name in names} for one in intervals],
    )


def with_attribution(page: Page, result: xr.Dataset) -> Page:
    """Add a result of Hidden Token Attribution."""
    _expect(result, "hidden_token_attribution")
    chunk = Chunk()
    contribution = result["contribution"].transpose("layer", "input", "output").values
    error = result["contribution_error"].transpose("layer", "input", "output").values
    part = {
        "layers": [int(layer) for layer in result["layer"].values],
        "inputs": tokens_of(result, "input"),
        "outputs": tokens_of(result, "output"),
        "chunk": "attribution",
        "contribution": chunk.numbers(contribution),
        "error": chunk.numbers(error) if np.any(error > 0) else None,
        "mode": str(result.attrs.get("mode", "")),
        "norm": str(result.attrs.get("norm", "")),
    }
    return page.having({"attribution": chunk.compressed()}, attribution=part)


def with_token_rates(page: Page, result: xr.Dataset) -> Page:
    """Add rates of token identifiability by layer and probe."""
    _expect(result, "token_identifiability", "token_identifiability_previous_layer")

    def curve(name: str) -> list[Any]:
        return _plain(result[name].transpose("probe", "layer").values) if name in result else []

    guess = result["random_guess"] if "random_guess" in result else result.attrs.get("random_guess")
    back = "previous layer" if "previous" in str(result.attrs["method"]) else "input"
    part = {
        "layers": [int(layer) for layer in result["layer"].values],
        "probes": [str(probe) for probe in result["probe"].values],
        "rate": curve("rate"),
        "low": curve("low"),
        "high": curve("high"),
        "guess": None if guess is None else _plain(float(np.mean(guess))),
        "title": f"Token identifiability by layer: back to the {back}",
    }
    return page.having(token_rates=part)


def with_structure(
    page: Page,
    weights: Array,
    labels: Sequence[str] | None = None,
    *,
    columns: Sequence[str] | None = None,
    places: Sequence[tuple[int, int]] | None = None,
    note: str = "",
) -> Page:
    """Add a structure matrix W [row, column] with the names of its rows (and columns, if they differ).

    With places, the (layer, head) of each, W is [place, row, column].
    """
    cells = np.asarray(weights, dtype=np.float64)
    cells = cells[None] if places is None and cells.ndim == 2 else cells
    if cells.ndim != 3 or not cells.size or not np.isfinite(cells).all() or np.abs(cells).max() > 1:
        raise InputError(f"a structure of shape {cells.shape} was given; expected a matrix of numbers from -1 to 1.")
    rows = [str(place) for place in range(cells.shape[1])] if labels is None else [str(label) for label in labels]
    names = rows if columns is None and cells.shape[1] == cells.shape[2] else columns
    names = [str(place) for place in range(cells.shape[2])] if names is None else [str(name) for name in names]
    if (len(rows), len(names)) != cells.shape[1:] or (places is not None and len(places) != len(cells)):
        raise InputError(f"{len(rows)} and {len(names)} labels were given for a structure of shape {cells.shape}.")
    chunk, levels = Chunk(), levels_for(STRUCTURE_ERROR)
    part = {
        "rows": rows,
        "columns": list(names),
        "places": None if places is None else [[int(layer), int(head)] for layer, head in places],
        "chunk": "structure",
        "levels": levels,
        "cells": chunk.whole(to_levels(cells, levels)),
        "note": note,
    }
    return page.having({"structure": chunk.compressed()}, structure=part)


def with_means(page: Page, result: xr.Dataset, title: str, meanings: Mapping[str, str]) -> Page:
    """Add what a corpus says: `mean` and `deviation` by column and layer, and head where there is such an axis.

    By layer and head they become a grid; by layer alone, the columns that are shares become curves.
    """
    layers = [int(layer) for layer in result["layer"].values]
    names = [str(name) for name in result["column"].values]
    if "head" in result["mean"].dims:
        axes = ("column", "layer", "head")
        mean, deviation = (result[name].transpose(*axes).values for name in ("mean", "deviation"))
        columns = [
            {
                "name": name,
                "meaning": meanings.get(name, name),
                "mean": _plain(mean[at]),
                "deviation": _plain(deviation[at]),
            }
            for at, name in enumerate(names)
        ]
        grid = {"title": title, "layers": layers, "heads": _plain(result["head"].values), "columns": columns}
        return page.having(grids=[*page.header["grids"], grid])
    mean, deviation = (result[name].transpose("column", "layer").values for name in ("mean", "deviation"))
    # Shares other than those that only say how sure the others are.
    shares = [
        at
        for at, name in enumerate(names)
        if not name.startswith(("tied", "standard_error")) and np.nanmin(mean[at]) >= 0 and np.nanmax(mean[at]) <= 1
    ]
    curve = {
        "title": title,
        "note": "Means over all texts of the corpus, by layer; bands are one standard deviation between texts. "
        + "; ".join(f"{names[at].replace('_', ' ')}: {meanings.get(names[at], '')}" for at in shares)
        + ".",
        "layers": layers,
        "probes": [names[at].replace("_", " ") for at in shares],
        "rate": [_plain(mean[at]) for at in shares],
        "low": [_plain(np.clip(mean[at] - deviation[at], 0, 1)) for at in shares],
        "high": [_plain(np.clip(mean[at] + deviation[at], 0, 1)) for at in shares],
        "guess": None,
    }
    return page.having(curves=[*page.header["curves"], curve])


def with_table(page: Page, name: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Page:
    """Add a table of plain values."""
    table = {"name": name, "columns": list(columns), "rows": [[_plain(value) for value in row] for row in rows]}
    return page.having(tables=[*page.header["tables"], table])


def tokens_of(result: xr.Dataset, axis: str) -> list[str]:
    """The tokens along an axis of a result, or its positions."""
    names = result.coords.get(f"{axis}_token")
    return [str(token) for token in (range(result.sizes[axis]) if names is None else names.values)]


def _expect(result: xr.Dataset, *methods: str) -> None:
    if result.attrs.get("method") not in methods:
        raise InputError(f"a result of {result.attrs.get('method')!r} was given; expected one of {', '.join(methods)}.")


def _plain(value: Any) -> Any:
    """The same in what JSON knows; what is not a number becomes null."""
    if isinstance(value, np.ndarray):
        return [_plain(part) for part in value.tolist()] if value.ndim else _plain(value.item())
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, (np.integer, int)) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, (np.floating, float)):
        return float(value) if np.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, str)) else str(value)
