"""Plots of attention results. Each takes a result and an `ax`, and returns the `ax`."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import FuncNorm

from identiscope.errors import InputError
from identiscope.token_text import drawn_token
from identiscope.views.plots.plotting import expect_one_of

# Wong's palette: told apart by colour-blind readers.
COLOURS = {"[CLS]": "#D55E00", "[SEP]": "#0072B2", ". or ,": "#009E73", "other": "#999999"}
SIGNED, POSITIVE = "RdBu_r", "viridis"
#: Of several maps this one is drawn unasked: it does not depend on how the model is written.
LEADING = "effective_simplex_span"
#: So many names of tokens fit along an axis.
READABLE = 36
#: Bins of length over which correlations are averaged, at most.
LENGTH_BINS = 10


def plot_correlation_by_length(result: xr.Dataset, ax: Axes) -> Axes:
    """Fig. 1a: one point a text and layer (the mean over heads), and the mean over everything in bins of length."""
    lengths = np.repeat(result["length"].values[:, None], result.sizes["layer"], 1)
    means = result["correlation"].mean("head").values
    layers = np.broadcast_to(np.arange(result.sizes["layer"]), means.shape)
    points = ax.scatter(lengths, means, c=layers, cmap="cividis", s=9, alpha=0.7, linewidths=0)
    ax.figure.colorbar(points, ax=ax, label="layer")
    middles, averages = _means_by_length(result)
    ax.plot(middles, averages, color="#D55E00", marker="o", markersize=4, linewidth=1.6, label="mean of all")
    ax.legend(frameon=False, fontsize="small", loc="lower left")
    least = float(np.min(means, where=np.isfinite(means), initial=0.0))
    ax.set(xlabel="tokens", ylabel="correlation of raw and effective", ylim=(least, 1.03))
    return ax


def _means_by_length(result: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Mean length and mean correlation of the texts in each of some equally wide bins of length."""
    lengths, values = result["length"].values, result["correlation"].values
    values = values.reshape(len(lengths), -1)
    edges = np.linspace(lengths.min(), lengths.max(), min(LENGTH_BINS, len(np.unique(lengths))) + 1)
    # By the inner edges, so that the longest text is in the last bin.
    bins = np.digitize(lengths, edges[1:-1])
    # A text too short to vary has no correlation; a bin of such texts alone has no mean.
    defined = [(bins == place) & np.isfinite(values).any(1) for place in range(len(edges) - 1)]
    points = [(lengths[inside].mean(), np.nanmean(values[inside])) for inside in defined if inside.any()]
    middles, averages = np.array(points).reshape(-1, 2).T
    return middles, averages


def plot_attention_between_types(
    result: xr.Dataset, ax: Axes, *, figure: str = "types", values: str | None = None, source: str | None = None
) -> Axes:
    """How much attention goes to each type of token: one point a head, a line for the mean of each layer.

    figure: `types`, Fig. 1b (values="raw", as without) and 1c (values="effective"), of the queries of type `source`
    (without: all); or `separator`, Fig. 5: what goes to [SEP] from other tokens and from [SEP] itself, effective
    unless values="raw".
    """
    expect_one_of("figure", figure, ["types", "separator"])
    if figure == "separator":
        if source is not None:
            raise InputError(
                f"source={source!r} was given with figure='separator', which is from other tokens and from [SEP];"
                " leave source out."
            )
        return plot_separator_attention(result, ax, values=values or "effective")
    chosen, origin = values or "raw", source or "all"
    expect_one_of("values", chosen, result.data_vars)
    expect_one_of("source", origin, result["from"].values)
    weights = result[chosen].sel({"from": origin})
    if bool(np.isnan(weights).all()):
        raise InputError(f"source={origin!r} was given, but no token of these texts is of that type; choose another.")
    return _by_layer(weights, result["to"].values, ax, f"{chosen} attention")


def plot_separator_attention(result: xr.Dataset, ax: Axes, *, values: str = "effective") -> Axes:
    """Fig. 5: attention to [SEP] from other tokens and from [SEP] itself."""
    expect_one_of("values", values, result.data_vars)
    chosen = result[values].sel({"to": "[SEP]", "from": ["other", "[SEP]"]}).rename({"from": "to", "to": "goal"})
    return _by_layer(chosen, ["other → [SEP]", "[SEP] → [SEP]"], ax, f"{values} attention", ["#E69F00", "#0072B2"])


def _by_layer(values: xr.DataArray, names: Any, ax: Axes, label: str, colours: list[str] | None = None) -> Axes:
    layers = np.arange(values.sizes["layer"])
    for place, name in enumerate(names):
        colour = colours[place] if colours else COLOURS[str(name)]
        heads = values.isel(to=place).transpose("layer", "head").values
        if np.isnan(heads).all():
            continue
        # Heads side by side within their layer, so that points do not hide each other.
        shift = np.linspace(-0.28, 0.28, len(names))[place]
        ax.scatter(
            np.repeat(layers + shift, heads.shape[1]), heads.ravel(), s=8, color=colour, alpha=0.45, linewidths=0
        )
        ax.plot(layers, heads.mean(1), color=colour, label=str(name), linewidth=1.6)
    ax.axhline(0, color="#cccccc", linewidth=0.8, zorder=0)
    ax.set(xlabel="layer", ylabel=label, xticks=layers)
    ax.legend(frameon=False, fontsize="small")
    return ax


def plot_attention_maps(result: xr.Dataset, ax: Axes, *, values: str | None = None) -> Axes:
    """One map as an image, on a diverging scale around zero.

    values: which; without, the projection that keeps row sums, or where that is not there the first but the raw one.
    """
    maps = {str(name): part.values for name, part in result.data_vars.items() if part.dims == ("query", "key")}
    values = values or next((name for name in (LEADING, *maps) if name in maps and name != "raw"), "raw")
    expect_one_of("values", values, maps)
    signed_map(maps[values], list(maps.values()), ax, f"{values} attention")
    name_tokens(ax, result)
    ax.set(xlabel="key", ylabel="query", title=values)
    if "strongest_query" in result.attrs and values == "effective":
        query, key = result.attrs["strongest_query"], result.attrs["strongest_key"]
        ax.axhline(query, color="#E69F00", linewidth=0.8)
        ax.axvline(key, color="#E69F00", linewidth=0.8)
        ax.set_title(
            f"{values}; strongest off the diagonal: {_name(result, 'query', query)} → {_name(result, 'key', key)}"
        )
    return ax


def signed_map(cells: np.ndarray, comparable: Sequence[np.ndarray], ax: Axes, label: str) -> None:
    """An image on a diverging scale around zero, which is the same for all maps that are to be comparable."""
    # Uniform attention is the least that a scale is made for: on a finer one, what is zero but for rounding, such as
    # null attention of an identifiable head, would look like a map.
    limit = max(1 / cells.shape[1], *(float(np.abs(part).max()) for part in comparable))
    # Attention is a few large weights and many small ones: a square-root scale, the same on both sides of zero.
    scale = FuncNorm((_signed_root, _signed_square), vmin=-limit, vmax=limit)
    image = ax.imshow(cells, cmap=SIGNED, norm=scale, interpolation="nearest", aspect="auto")
    bar = ax.figure.colorbar(image, ax=ax, label=f"{label} (square-root scale)")
    bar.set_ticks([round(sign * limit * share, 3) for sign in (-1, 1) for share in (1, 0.25, 0.04)] + [0])


def plot_attention_intervals(result: xr.Dataset, ax: Axes) -> Axes:
    """Weights as bars, and as whiskers what they may be without changing the output, alone and with equal tokens."""
    places = np.arange(result.sizes["cell"])
    weight, lower, upper = (result[name].values for name in ("weight", "lower", "upper"))
    ax.bar(places, weight, color="#56B4E9", width=0.8, label="weight")
    ax.errorbar(
        places, weight, yerr=[np.maximum(weight - lower, 0), np.maximum(upper - weight, 0)],
        fmt="none", ecolor="#000000", elinewidth=0.8, capsize=2, label="what it may be",
    )  # fmt: skip
    merged = [name for name in ("merged_weight", "merged_lower", "merged_upper") if name in result]
    several = result["copies"].values > 1 if "copies" in result else np.zeros(len(places), dtype=bool)
    if len(merged) == 3 and several.any():
        together, least, most = (result[name].values[several] for name in merged)
        ax.errorbar(
            places[several] + 0.28, together, yerr=[np.maximum(together - least, 0), np.maximum(most - together, 0)],
            fmt="_", color="#D55E00", elinewidth=1.2, capsize=3, label="with its copies, together",
        )  # fmt: skip
    one_row = len(np.unique(result["query"].values)) == 1
    names = [str(token) for token in result["key_token"].values]
    if not one_row:
        names = [f"{query} → {key}" for query, key in zip(result["query_token"].values, names, strict=True)]
    name_bars(ax, names)
    ax.set(ylabel="attention", ylim=(0, None), xlim=(-0.6, len(places) - 0.4))
    if one_row:
        token, place = drawn_token(result["query_token"].values[0]), int(result["query"].values[0])
        ax.set_title(f"from {token} (position {place})", loc="left")
    # Above the axes: inside, whiskers may be anywhere.
    ax.legend(frameon=False, fontsize="small", ncols=3, loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.2)
    return ax


def _signed_root(values: Any) -> Any:
    return np.sign(values) * np.sqrt(np.abs(values))


def _signed_square(values: Any) -> Any:
    return np.sign(values) * np.square(values)


def name_tokens(ax: Axes, result: xr.Dataset) -> None:
    """Keys along the x axis of a map and queries along its y axis by their tokens."""
    name_axis(ax, "x", result["key_token"].values)
    name_axis(ax, "y", result["query_token"].values)


def name_axis(ax: Axes, way: str, names: Iterable[Any]) -> None:
    """What lies along the x or y axis of a map, as far as it can be read."""
    _write_names(ax.set_xticks if way == "x" else ax.set_yticks, names, READABLE, 90 if way == "x" else 0)


def name_bars(ax: Axes, names: Iterable[Any]) -> None:
    """Bars along the x axis by their tokens; without a colour bar there is room for twice as many as on a map."""
    _write_names(ax.set_xticks, names, 2 * READABLE, 90)


def _write_names(place: Callable[..., object], names: Iterable[Any], readable: int, turn: int) -> None:
    # Of more tokens than can be read, every second, third, … is named.
    tokens = [drawn_token(name) for name in names]
    shown = range(0, len(tokens), -(-len(tokens) // readable))
    place(shown, [tokens[at] for at in shown], fontsize=8 - len(shown) / 20, rotation=turn)


def _name(result: xr.Dataset, axis: str, place: int) -> str:
    return drawn_token(result[f"{axis}_token"].values[place])


#: Result → the function above that draws it.
DRAWS = {
    "attention_between_types": plot_attention_between_types,
    "attention_maps": plot_attention_maps,
    "correlation_by_length": plot_correlation_by_length,
    "structural_maps": plot_attention_maps,
}
