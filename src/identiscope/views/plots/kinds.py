"""How the results of registered methods are drawn: one function a kind, which knows axes and no method by its name."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import FuncNorm, Normalize
from matplotlib.ticker import MaxNLocator

from identiscope.errors import InputError
from identiscope.token_text import drawn_token
from identiscope.views.plots.attention import (
    POSITIVE,
    SIGNED,
    name_axis,
    name_bars,
    plot_attention_intervals,
    signed_map,
)
from identiscope.views.plots.freedom_ladder import COLOURS, MARKS, draw_lines, draw_load
from identiscope.views.plots.graph import plot_graph
from identiscope.views.plots.plotting import expect_one_of
from identiscope.views.plots.proof import plot_attention_alternative

# Wong's palette: told apart by colour-blind readers.
UP, DOWN = "#0072B2", "#D55E00"
#: What lies on an axis, as its label; `output` is the place of a hidden token.
NAMES = {"output": "hidden token", "input": "input token"}


def draw_map(
    result: xr.Dataset, ax: Axes, *, layer: int | None = None, head: int | None = None, values: str | None = None
) -> Axes:
    """One head's map, the first of the first layer by default: red and blue where there are negative cells."""
    chosen = _variable(result, values, lambda axes: axes[-2:] == ("query", "key") or axes[-2:] == ("row", "column"))
    part, place = _one_head(result[chosen], layer, head)
    matrix(part, ax, _spoken(chosen), result)
    ax.set_title(place, loc="left", fontsize="medium")
    return ax


def draw_head(result: xr.Dataset, ax: Axes, *, values: str | None = None) -> Axes:
    """All layers × heads, coloured by one value that each head has one of; what a layer has one of, as a line.

    values: which; without, the first of them. Where all have one more axis, such as query, its mean is drawn.
    """
    by_head = _names(result, lambda axes: axes == ("layer", "head"))
    by_layer = _names(result, lambda axes: axes == ("layer",))
    if values in result.data_vars and values not in (*by_head, *by_layer):
        raise InputError(
            f"values={values!r} was given, which has the axes {', '.join(map(str, result[values].dims))}; expected one"
            f" with the axes layer, head: {', '.join(by_head)}. Choose a place on the others first, as in"
            " result.isel(query=-1) for the last row."
        )
    if values is None and not by_head and not by_layer:
        longer = _variable(result, None, lambda axes: axes[:2] == ("layer", "head"))
        over = [str(axis) for axis in result[longer].dims[2:]]
        return _grid(result[longer].mean(over), ax, f"{_spoken(longer)}, mean over {' and '.join(over)}", result)
    if values is not None:
        expect_one_of("values", values, [*by_head, *by_layer])
    chosen = values or [*by_head, *by_layer][0]
    if chosen in by_layer:
        return _line(result[chosen], ax, _spoken(chosen))
    return _grid(result[chosen], ax, _spoken(chosen), result)


def draw_mixture(
    result: xr.Dataset, ax: Axes, *, layer: int | None = None, token: int | None = None, values: str | None = None
) -> Axes:
    """What hidden tokens are made of: a row each, of one layer, the last by default; or one `token` in all layers."""
    chosen = _variable(result, values, lambda axes: {"output", "input"} <= set(axes))
    part = result[chosen]
    # What every head has one of is seen as their mean.
    part = part.mean("head") if "head" in part.dims else part
    if token is not None:
        if layer is not None:
            raise InputError(
                f"layer={layer} and token={token} were given; give layer for a matrix, or token for one row of each."
            )
        _check_place("token", token, result.sizes["output"])
        part = part.isel(output=token).transpose("layer", "input")
        name = drawn_token(result["output_token"].values[token])
        matrix(part, ax, _spoken(chosen), result)
        ax.invert_yaxis()
        ax.set_title(f"what {name} (token {token}) is made of", loc="left", fontsize="medium")
        return ax
    part, place = _of_layer(part, layer, last=True)
    matrix(part.transpose("output", "input"), ax, _spoken(chosen), result)
    ax.set_title(place, loc="left", fontsize="medium")
    return ax


def draw_token(result: xr.Dataset, ax: Axes, *, values: str | None = None, token: int | None = None) -> Axes:
    """A number of every hidden token: layers × tokens; or one `token` as a line over the layers."""
    chosen = _variable(result, values, lambda axes: set(axes) in ({"layer", "output"}, {"output"}))
    part = result[chosen]
    if token is not None:
        _check_place("token", token, result.sizes["output"])
        name = drawn_token(result["output_token"].values[token])
        _line(part.isel(output=token), ax, _spoken(chosen))
        ax.set_title(f"{name} (token {token})", loc="left", fontsize="medium")
        return ax
    if "layer" not in part.dims:
        return _bars(part, result["output_token"].values, ax, _spoken(chosen))
    matrix(part.transpose("layer", "output"), ax, _spoken(chosen), result)
    ax.invert_yaxis()
    return ax


def draw_score(result: xr.Dataset, ax: Axes, *, values: str | None = None, graph: bool = False) -> Axes:
    """A bar for every input token: blue up, and orange down, with its standard error where it was estimated; or the
    graph of what led there, where there is one."""
    if graph:
        return plot_graph(result, ax)
    chosen = _variable(result, values, lambda axes: axes == ("input",))
    _bars(result[chosen], result["input_token"].values, ax, _spoken(chosen))
    if f"{chosen}_error" in result:
        heights, errors = result[chosen].values.astype(float), result[f"{chosen}_error"].values.astype(float)
        ax.errorbar(np.arange(len(heights)), heights, errors, fmt="none", ecolor="#000000", capsize=2, linewidth=0.8)
    return ax


def draw_freedom(result: xr.Dataset, ax: Axes, *, values: str | None = None, row: int | None = None) -> Axes:
    """Weights with what they may be; a map beside the raw one, or one `row` of both; or directions over the keys."""
    if "epsilon" in result.dims:
        return _curve(result, ax, values)
    if "cell" in result.dims or "direction" in result.dims:
        given = [name for name, value in (("values", values), ("row", row)) if value is not None]
        if given:
            raise InputError(f"{' and '.join(given)} was given; this result is drawn whole, and has no such choice.")
    if "cell" in result.dims:
        return plot_attention_intervals(result, ax)
    if "direction" in result.dims:
        chosen = _variable(result, None, lambda axes: axes == ("direction", "key"))
        matrix(result[chosen], ax, _spoken(chosen), result)
        return ax
    if "alternative" in result:
        return plot_attention_alternative(result, ax, values=values, row=row)
    if row is not None:
        return _row_of_map(result, ax, values, row)
    # Of bounds, how far apart they are: with equal tokens added up, if that is there.
    usual = next((name for name in ("merged_width", "width") if name in result), None)
    chosen = _variable(result, values or usual, lambda axes: axes == ("query", "key"))
    matrix(result[chosen], ax, _spoken(chosen), result)
    return ax


def _curve(result: xr.Dataset, ax: Axes, values: str | None) -> Axes:
    """Numbers of rows against ε: their means as lines, and where half of the rows lie."""
    known = _names(result, lambda axes: axes[:1] == ("epsilon",))
    if values is not None:
        expect_one_of("values", values, known)
    shares = [f"{float(one):g}" for one in result["epsilon"].values]
    for place, name in enumerate([values] if values else [one for one in known if one != "gap"]):
        cells = result[name].values.astype(float)
        style: dict[str, Any] = {"color": COLOURS[place % len(COLOURS)], "marker": MARKS[place % len(MARKS)]}
        ax.plot(range(len(shares)), cells.mean(1), label=_spoken(name), markersize=4, **style)
        low, high = np.quantile(cells, (0.25, 0.75), axis=1)
        ax.fill_between(range(len(shares)), low, high, color=style["color"], alpha=0.12, linewidth=0)
    ax.set_xticks(range(len(shares)), shares)
    ax.set(
        xlabel="ε, share of the attention block's output", ylabel="mean over rows; half of them shaded", ylim=(0, None)
    )
    ax.legend(fontsize="small", loc="upper left")
    return ax


def draw_prediction(result: xr.Dataset, ax: Axes, *, values: str | None = None) -> Axes:
    """What a layer has one of, as a line for each criterion or other choice that it was asked for; of single weights
    what each may be; of several changes by how much each moved the outcome."""
    fits = _names(result, lambda axes: axes[:1] == ("layer",) and len(axes) <= 2 and "head" not in axes)
    if values is not None:
        expect_one_of("values", values, fits)
    if values is None and "held_lower" in result and result.sizes["cell"]:
        return draw_load(result, ax)
    moved = [name for name in fits if name.endswith("_moved") and result[name].ndim == 1]
    if values is None and "criterion" not in result.dims and moved:
        lines = [(_spoken(name), result[name].values.astype(float)) for name in moved]
        return draw_lines(ax, result["layer"].values, lines, "by how much the outcome moved")
    several = [name for name in fits if result[name].ndim == 2]
    chosen = values or [*several, *fits][0]
    part = result[chosen]
    if part.ndim == 1:
        return _line(part, ax, _spoken(chosen))
    axis = str(part.dims[1])
    lines = [(str(label), part.values[:, place].astype(float)) for place, label in enumerate(result[axis].values)]
    return draw_lines(ax, result["layer"].values, lines, _spoken(chosen))


def _row_of_map(result: xr.Dataset, ax: Axes, values: str | None, row: int) -> Axes:
    """One query: its weights with what each may be, or one array as bars."""
    _check_place("row", row, result.sizes["query"])
    one = result.isel(query=row)
    if values is not None or "lower" not in result:
        chosen = _variable(result, values, lambda axes: axes == ("query", "key"))
        return _bars(one[chosen], result["key_token"].values, ax, _spoken(chosen))
    count = result.sizes["key"]
    cells = {name: ("cell", one[name].values) for name in ("weight", "lower", "upper")}
    query = [str(one["query_token"].values)] * count
    named = {"query_token": ("cell", query), "key_token": ("cell", list(result["key_token"].values))}
    return plot_attention_intervals(xr.Dataset(cells | {"query": ("cell", [row] * count)}, named), ax)


#: Kind → how its results are drawn.
DRAWN: Mapping[str, Callable[..., Axes]] = {
    "map": draw_map,
    "head": draw_head,
    "freedom": draw_freedom,
    "layer": draw_map,
    "mixture": draw_mixture,
    "score": draw_score,
    "prediction": draw_prediction,
    "token": draw_token,
}


def matrix(cells: xr.DataArray, ax: Axes, label: str, result: xr.Dataset) -> None:
    """Two axes as an image, tokens and numbers along them; a scale around zero where there are numbers below it."""
    numbers = cells.values.astype(float)
    finite = numbers[np.isfinite(numbers)]
    rows, columns = (str(axis) for axis in cells.dims)
    ax.set(xlabel=NAMES.get(columns, columns), ylabel=NAMES.get(rows, rows))
    if not numbers.size:
        # Such as the directions in which the row of an identifiable head may move.
        ax.text(0.5, 0.5, f"no {rows} at all", ha="center", transform=ax.transAxes)
        return
    if float(np.min(finite, initial=0)) < 0:
        signed_map(numbers, [finite.reshape(1, -1)], ax, label)
    else:
        # A few large numbers and many small ones: by the square root, as where they are signed.
        scale = FuncNorm((np.sqrt, np.square), vmin=0, vmax=float(np.max(finite, initial=0)) or 1.0)
        image = ax.imshow(numbers, cmap=POSITIVE, norm=scale, interpolation="nearest", aspect="auto")
        bar = ax.figure.colorbar(image, ax=ax, label=f"{label} (square-root scale)")
        marks = [float(scale.vmax or 1.0) * share for share in (0, 0.04, 0.25, 1)]
        # Rounded as text alone: a mark above the largest number would lengthen the bar.
        bar.set_ticks(marks, labels=[f"{mark:.3f}" if marks[-1] >= 0.01 else f"{mark:.1e}" for mark in marks])
    for axis, way in ((columns, "x"), (rows, "y")):
        name_axis(ax, way, result[f"{axis}_token"].values if f"{axis}_token" in result else _labels(cells, axis))


def _grid(cells: xr.DataArray, ax: Axes, label: str, result: xr.Dataset) -> Axes:
    numbers = cells.transpose("layer", "head").values.astype(float)
    finite = numbers[np.isfinite(numbers)]
    # Shares and correlations keep one scale, whatever they are; dimensions and others need a longer one.
    low, high = float(np.min(finite, initial=0)), float(np.max(finite, initial=1))
    reach = max(-low, high)
    scale, colours = (Normalize(-reach, reach), SIGNED) if low < 0 else (Normalize(low, high), POSITIVE)
    image = ax.imshow(numbers, cmap=colours, norm=scale, interpolation="nearest", aspect="auto")
    ax.figure.colorbar(image, ax=ax, label=label)
    ax.set(xlabel="head", ylabel="layer", xticks=range(len(cells["head"])), yticks=range(len(cells["layer"])))
    ax.set_xticklabels([str(head) for head in cells["head"].values], fontsize="small")
    ax.set_yticklabels([str(layer) for layer in cells["layer"].values], fontsize="small")
    return ax


def _line(values: xr.DataArray, ax: Axes, label: str) -> Axes:
    layers = _labels(values, "layer")
    ax.plot(range(len(layers)), values.values.astype(float), "o-", color=UP, markersize=4)
    ax.set_xticks(range(len(layers)), layers)
    ax.yaxis.set_major_locator(MaxNLocator(integer=values.dtype.kind in "iu"))
    ax.set(xlabel="layer", ylabel=label)
    return ax


def _bars(values: xr.DataArray, tokens: Any, ax: Axes, label: str) -> Axes:
    heights = values.values.astype(float)
    ax.bar(np.arange(len(heights)), heights, color=np.where(heights < 0, DOWN, UP), width=0.8)
    ax.axhline(0, color="#000000", linewidth=0.8)
    name_bars(ax, tokens)
    ax.set(ylabel=label, xlim=(-0.6, len(heights) - 0.4))
    return ax


def _names(result: xr.Dataset, fits: Callable[[tuple[str, ...]], bool]) -> list[str]:
    """The arrays of numbers whose axes fit."""
    return [
        str(name)
        for name, values in result.data_vars.items()
        if values.dtype.kind in "biuf" and fits(tuple(map(str, values.dims)))
    ]


def _variable(result: xr.Dataset, given: str | None, fits: Callable[[tuple[str, ...]], bool]) -> str:
    """The array that was asked for, or the first that can be drawn so."""
    known = _names(result, fits)
    if not known:
        raise InputError(f"this result of {result.attrs.get('method')} has no array that can be drawn as its kind is.")
    if given is not None:
        expect_one_of("values", given, known)
    return given or known[0]


def _one_head(values: xr.DataArray, layer: int | None, head: int | None) -> tuple[xr.DataArray, str]:
    part, place = _of_layer(values, layer)
    if "head" in part.dims:
        known = part["head"].values.tolist()
        chosen = known[0] if head is None else head
        expect_one_of("head", chosen, known)
        return part.sel(head=chosen), f"{place}, head {chosen}".removeprefix(", ")
    return part, place


def _of_layer(values: xr.DataArray, layer: int | None, last: bool = False) -> tuple[xr.DataArray, str]:
    if "layer" not in values.dims:
        return values, ""
    known = values["layer"].values.tolist()
    chosen = known[-1 if last else 0] if layer is None else layer
    expect_one_of("layer", chosen, known)
    return values.sel(layer=chosen), f"layer {chosen}"


def _check_place(name: str, given: int, count: int) -> None:
    if not 0 <= given < count:
        raise InputError(f"{name}={given} was given; expected one of 0 to {count - 1}.")


def _labels(values: xr.DataArray, axis: str) -> list[str]:
    return [str(label) for label in values[axis].values]


def _spoken(name: str) -> str:
    return name.replace("_", " ")
