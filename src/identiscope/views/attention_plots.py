"""Plots of attention results. Each takes a result and an `ax`, and returns the `ax`."""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import FuncNorm

# Wong's palette: told apart by colour-blind readers.
COLOURS = {"[CLS]": "#D55E00", "[SEP]": "#0072B2", ". or ,": "#009E73", "other": "#999999"}
SIGNED, POSITIVE = "RdBu_r", "viridis"
#: So many names of tokens fit along an axis.
READABLE = 36


def plot_correlation_by_length(result: xr.Dataset, ax: Axes) -> Axes:
    """Fig. 1a: one point a text and layer (the mean over heads), and the mean over everything in bins of length."""
    lengths = np.repeat(result["length"].values[:, None], result.sizes["layer"], 1)
    means = result["correlation"].mean("head").values
    layers = np.broadcast_to(np.arange(result.sizes["layer"]), means.shape)
    points = ax.scatter(lengths, means, c=layers, cmap="cividis", s=9, alpha=0.7, linewidths=0)
    ax.figure.colorbar(points, ax=ax, label="layer")
    ax.set(xlabel="tokens", ylabel="correlation of raw and effective", ylim=(min(0.0, float(np.nanmin(means))), 1.03))
    return ax


def plot_attention_between_types(result: xr.Dataset, ax: Axes, *, values: str = "raw", source: str = "all") -> Axes:
    """Fig. 1b (raw) and 1c (effective): one point a head, a line for the mean of each layer."""
    return _by_layer(result[values].sel({"from": source}), result["to"].values, ax, f"{values} attention")


def plot_separator_attention(result: xr.Dataset, ax: Axes, *, values: str = "effective") -> Axes:
    """Fig. 5: attention to [SEP] from other tokens and from [SEP] itself."""
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


def plot_attention_maps(result: xr.Dataset, ax: Axes, *, values: str = "effective") -> Axes:
    """One map as an image: signed maps on a diverging scale around zero, raw and canonical from zero up."""
    cells = result[values].values
    shown = [result[name].values for name in ("raw", "effective", "null") if name in result] or [cells]
    # Uniform attention is the least that a scale is made for: on a finer one, what is zero but for rounding, such as
    # null attention of an identifiable head, would look like a map.
    limit = max(1 / cells.shape[1], *(float(np.abs(part).max()) for part in shown))
    # Attention is a few large weights and many small ones: a square-root scale, the same on both sides of zero.
    scale = FuncNorm((_signed_root, _signed_square), vmin=-limit, vmax=limit)
    image = ax.imshow(cells, cmap=SIGNED, norm=scale, interpolation="nearest", aspect="auto")
    bar = ax.figure.colorbar(image, ax=ax, label=f"{values} attention (square-root scale)")
    bar.set_ticks([round(sign * limit * share, 3) for sign in (-1, 1) for share in (1, 0.25, 0.04)] + [0])
    _token_ticks(ax, result)
    ax.set(xlabel="key", ylabel="query", title=values)
    if "strongest_query" in result.attrs and values == "effective":
        query, key = result.attrs["strongest_query"], result.attrs["strongest_key"]
        ax.axhline(query, color="#E69F00", linewidth=0.8)
        ax.axvline(key, color="#E69F00", linewidth=0.8)
        ax.set_title(
            f"{values}; strongest off the diagonal: {_name(result, 'query', query)} → {_name(result, 'key', key)}"
        )
    return ax


def plot_attention_identifiability(result: xr.Dataset, ax: Axes, *, values: str = "null_share") -> Axes:
    """All layers × heads, coloured by null share (or another value of the result)."""
    cells = result[values].values
    image = ax.imshow(cells, cmap=POSITIVE, vmin=0, vmax=1, interpolation="nearest", aspect="auto")
    ax.figure.colorbar(image, ax=ax, label=values.replace("_", " "))
    ax.set(xlabel="head", ylabel="layer", xticks=range(len(result["head"])), yticks=range(len(result["layer"])))
    ax.set_xticklabels([str(head) for head in result["head"].values], fontsize="small")
    ax.set_yticklabels([str(layer) for layer in result["layer"].values], fontsize="small")
    return ax


def plot_attention_intervals(result: xr.Dataset, ax: Axes) -> Axes:
    """Weights as bars, and as whiskers what they may be without changing the output."""
    places = np.arange(result.sizes["cell"])
    weight, lower, upper = (result[name].values for name in ("weight", "lower", "upper"))
    ax.bar(places, weight, color="#56B4E9", width=0.8, label="weight")
    ax.errorbar(
        places, weight, yerr=[np.maximum(weight - lower, 0), np.maximum(upper - weight, 0)],
        fmt="none", ecolor="#000000", elinewidth=0.8, capsize=2, label="what it may be",
    )  # fmt: skip
    one_row = len(np.unique(result["query"].values)) == 1
    names = [str(token) for token in result["key_token"].values]
    if not one_row:
        names = [f"{query} → {key}" for query, key in zip(result["query_token"].values, names, strict=True)]
    size = "small" if len(places) <= 40 else 5
    ax.set_xticks(places, [_plain(name) for name in names], rotation=90, fontsize=size)
    ax.set(ylabel="attention", ylim=(0, None), xlim=(-0.6, len(places) - 0.4))
    if one_row:
        ax.set_title(f"from {_plain(result['query_token'].values[0])} (position {int(result['query'].values[0])})")
    ax.legend(frameon=False, fontsize="small")
    return ax


def _signed_root(values: Any) -> Any:
    return np.sign(values) * np.sqrt(np.abs(values))


def _signed_square(values: Any) -> Any:
    return np.sign(values) * np.square(values)


def _token_ticks(ax: Axes, result: xr.Dataset) -> None:
    # Of more tokens than can be read, every second, third, … is named.
    keys, queries = ([_plain(token) for token in result[f"{axis}_token"].values] for axis in ("key", "query"))
    for names, place, turn in ((keys, ax.set_xticks, 90), (queries, ax.set_yticks, 0)):
        shown = range(0, len(names), -(-len(names) // READABLE))
        place(shown, [names[at] for at in shown], fontsize=8 - len(shown) / 20, rotation=turn)


def _name(result: xr.Dataset, axis: str, place: int) -> str:
    return _plain(result[f"{axis}_token"].values[place])


def _plain(token: object) -> str:
    """A token that matplotlib draws as it is: no dollar starts a formula, no space mark is left."""
    return str(token).replace("Ġ", "").replace("▁", "").replace("$", r"\$") or "␣"
