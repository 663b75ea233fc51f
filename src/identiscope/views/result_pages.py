"""Pages on results: each in the view that is made for it, any other as its plot and its numbers."""

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from identiscope.errors import InputError
from identiscope.views.packing import Array
from identiscope.views.report_data import (
    Page,
    empty_page,
    tokens_of,
    with_attention,
    with_attribution,
    with_structure,
    with_table,
    with_token_rates,
)

#: Results with more numbers on the same axes are not printed as a table.
LARGEST_TABLE = 600


def with_result(page: Page, result: xr.Dataset) -> Page:
    """Add any result: in the view that is made for it, or as a plot and a table of its numbers."""
    method = str(result.attrs.get("method"))
    if method == "hidden_token_attribution":
        return with_attribution(page, result)
    if method in ("token_identifiability", "token_identifiability_previous_layer"):
        return with_token_rates(page, result)
    if method == "attention_maps":
        return _with_maps(page, result)
    if method == "structure_extraction":
        return _with_structures(page, result)
    return _with_plot(page, result)


def _with_structures(page: Page, result: xr.Dataset) -> Page:
    weights = result["structure"].transpose("layer", "head", "query", "key").values
    places = [(int(layer), int(head)) for layer in result["layer"].values for head in result["head"].values]
    note = f"From {result.attrs.get('texts', 'several')} texts, shown for one of median length."
    cells = weights.reshape(-1, *weights.shape[2:])
    names = (tokens_of(result, "query"), tokens_of(result, "key"))
    return with_structure(page, cells, names[0], columns=names[1], places=places, note=note)


def result_page(result: xr.Dataset) -> Page:
    """A page on one result alone."""
    method = str(result.attrs.get("method", "result")).replace("_", " ")
    model = str(result.attrs.get("model", result.attrs.get("model_name", "")))
    return with_result(empty_page(method.capitalize(), model), result)


@dataclass(frozen=True, eq=False)
class _GivenMaps:
    """Maps that are there already, as a layer."""

    layer: int
    heads: tuple[int, ...]
    maps: Sequence[Array]
    effectives: Sequence[Array] | None = None
    query: None = None
    key: None = None
    softcap: None = None
    sinks: None = None
    left: None = None
    right: None = None
    output: None = None
    start: None = None
    stop: None = None
    matrix: None = None

    @property
    def queries(self) -> int:
        return len(self.maps[0])

    @property
    def keys(self) -> int:
        return int(self.maps[0].shape[1])

    @property
    def raw(self) -> Callable[[int], Array]:
        return lambda place: np.asarray(self.maps[place], dtype=np.float64)

    @property
    def effective(self) -> Callable[[int], Array] | None:
        given = self.effectives
        return None if given is None else lambda place: np.asarray(given[place], dtype=np.float64)


def _with_maps(page: Page, result: xr.Dataset) -> Page:
    options = result.attrs.get("options", {})
    layer, head = int(options.get("layer", 0)), int(options.get("head", 0))
    effective = [result["effective"].values] if "effective" in result else None
    given = _GivenMaps(layer, (head,), [result["raw"].values], effective)
    canonical = {(layer, head): result["canonical"].values} if "canonical" in result else None
    return with_attention(page, [given], tokens_of(result, "query"), tokens_of(result, "key"), canonical=canonical)


def attentions_page(
    attentions: Sequence[Any], tokens: Sequence[str], *, layers: Sequence[int] | None = None, title: str = "Attention"
) -> Page:
    """A page on what a Hugging Face model returns as `attentions`: one [1, head, query, key] (or without 1) a layer."""
    given = []
    for place, one in enumerate(attentions):
        cells = np.asarray(one.detach().cpu().float().numpy() if hasattr(one, "detach") else one, dtype=np.float64)
        cells = cells[0] if cells.ndim == 4 and len(cells) == 1 else cells
        if cells.ndim != 3 or not cells.size:
            raise InputError(
                f"attention of layer {place} has shape {cells.shape}; expected [1, head, query, key] of one text."
            )
        if not np.isfinite(cells).all() or cells.min() < 0 or cells.max() > 1 + 1e-3:
            raise InputError(f"attention of layer {place} must lie between 0 and 1: give it after the softmax.")
        number = place if layers is None else int(layers[place])
        given.append(_GivenMaps(number, tuple(range(len(cells))), list(np.minimum(cells, 1.0))))
    if not given:
        raise InputError(
            "no attentions were given; an SDPA model returns none: load it with attn_implementation='eager'."
        )
    shapes = {(one.queries, one.keys) for one in given}
    if shapes != {(given[0].queries, len(tokens))}:
        raise InputError(f"{len(tokens)} tokens were given for attention of shapes {sorted(shapes)} [query, key].")
    queries = list(tokens) if given[0].queries == len(tokens) else [str(place) for place in range(given[0].queries)]
    subtitle = f"{len(tokens)} tokens · {len(given)} layers × {len(given[0].heads)} heads · raw attention only"
    note = (
        "Only attention was given. With the model itself, identiscope.view(trace) also says which part of it is real."
    )
    page = empty_page(title, subtitle, notes=[note])
    return with_attention(page, given, queries, None if queries == list(tokens) else tokens)


def _with_plot(page: Page, result: xr.Dataset) -> Page:
    """The result's own plot as a picture, and its numbers as a table where they are few."""
    from matplotlib.figure import Figure

    from identiscope.views.plotting import PLOTS, plot

    method = str(result.attrs.get("method"))
    figures = list(page.header["figures"])
    if method in PLOTS:
        figure = Figure(figsize=(8, 5), layout="constrained")
        plot(result, figure.add_subplot())
        picture = io.BytesIO()
        figure.savefig(picture, format="png", dpi=130)
        image = f"data:image/png;base64,{base64.b64encode(picture.getvalue()).decode('ascii')}"
        figures.append({"image": image, "caption": method.replace("_", " ")})
    page = page.having(figures=figures)
    # Variables with the same axes go into one table.
    together: dict[tuple[str, ...], list[str]] = {}
    for name, variable in result.data_vars.items():
        if 0 < variable.size <= LARGEST_TABLE:
            together.setdefault(tuple(map(str, variable.dims)), []).append(str(name))
    if not together and method not in PLOTS:
        raise InputError(f"there is nothing to show of a result of {method!r}.")
    for axes, names in together.items():
        rows = (
            result[names].to_dataframe().reset_index() if axes else result[names].to_array().to_dataframe(name="value")
        )
        rows = rows if axes else rows.reset_index()
        label = f"{method.replace('_', ' ')}{' by ' + ', '.join(axes) if axes else ''}"
        page = with_table(page, label, [str(name) for name in rows.columns], rows.to_numpy(dtype=object).tolist())
    return page
