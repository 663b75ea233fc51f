"""Plots of Hidden Token Attribution. Each takes a result and an `ax`, and returns the `ax`."""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm

from identiscope.errors import InputError
from identiscope.token_text import drawn_token
from identiscope.views.plots.plotting import expect_one_of

# Wong's palette: told apart by colour-blind readers.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
POSITIVE = "viridis"


def plot_self_contributions(result: xr.Dataset, ax: Axes) -> Axes:
    """Fig. 3a: median and quartiles of the self contribution by layer."""
    layers = result["layer"].values
    ax.fill_between(layers, 100 * result["lower"], 100 * result["upper"], color=COLOURS[4], alpha=0.35, lw=0,
                    label="quartiles")  # fmt: skip
    ax.plot(layers, 100 * result["median"], color=COLOURS[0], marker="o", ms=4, label="median")
    ax.set(xlabel="layer", ylabel="contribution of the token itself (%)", xticks=layers, ylim=(0, None))
    ax.legend(frameon=False)
    return ax


def plot_not_largest(result: xr.Dataset, ax: Axes) -> Axes:
    """Fig. 3b: share of tokens that are not their own largest contributor, by layer."""
    layers = result["layer"].values
    ax.bar(layers, 100 * result["not_largest"].values, color=COLOURS[0], width=0.7)
    ax.set(xlabel="layer", ylabel="not own largest contributor (%)", xticks=layers, ylim=(0, None))
    return ax


def plot_by_distance(result: xr.Dataset, ax: Axes, *, values: str = "relative") -> Axes:
    """Fig. 4a: contribution of each group of neighbours by layer; values: "relative" (as there) or "mean"."""
    expect_one_of("values", values, ["relative", "mean"])
    layers = result["layer"].values
    for colour, marker, name in zip(COLOURS, "osD^vP", result["distance"].values, strict=False):
        line = 100 * result[values].sel(distance=name)
        if not bool(np.isnan(line).all()):
            ax.plot(layers, line, color=colour, marker=marker, ms=4, label=str(name))
    label = "share of the group's contribution (%)" if values == "relative" else "mean contribution (%)"
    ax.set(xlabel="layer", ylabel=label, xticks=layers)
    ax.legend(title="neighbour", frameon=False, fontsize="small")
    return ax


def plot_by_offset(result: xr.Dataset, ax: Axes, *, values: str = "mean", layers: list[int] | None = None) -> Axes:
    """Fig. 4b and 18: contribution by offset, at the first, middle and last layer.

    values: "mean" over the tokens that have such a neighbour, or "total", as in the paper.
    """
    expect_one_of("values", values, ["mean", "total"])
    every = [int(layer) for layer in result["layer"].values]
    chosen = layers or list(dict.fromkeys([every[0], every[(len(every) - 1) // 2], every[-1]]))
    offsets = result["offset"].values
    for colour, style, layer in zip(COLOURS, ("-", "--", "-.", ":"), chosen, strict=False):
        line = 100 * result[values].sel(layer=_layer(result, layer))
        ax.plot(offsets, line, style, color=colour, lw=1.4, label=f"layer {layer}")
    centre, token = str(result.attrs.get("centre", "")), result.attrs.get("token")
    ax.axvline(0, color="#bbbbbb", lw=0.8, zorder=0)
    ax.set(
        xlabel=f"place relative to {centre}",
        ylabel=f"{'mean' if values == 'mean' else 'share of the total'} contribution (%)",
        ylim=(0, None),
        title=f"contribution to {token}" if token else "",
    )
    ax.legend(frameon=False)
    return ax


def plot_of_word(result: xr.Dataset, ax: Axes) -> Axes:
    """Fig. 19–25: what one token is made of: a row a layer, a column an input token."""
    shown = result["contribution"].values
    image = ax.imshow(shown, cmap=POSITIVE, norm=_root(), aspect="auto", interpolation="nearest", origin="lower")
    ax.figure.colorbar(image, ax=ax, label="contribution")
    _name(ax, "x", result["input_token"].values)
    ax.set_yticks(range(len(shown)), [str(layer) for layer in result["layer"].values])
    ax.set(ylabel="layer", title=f"what “{result.attrs['word']}” (token {result.attrs['place']}) is made of")
    return ax


def plot_by_tag(result: xr.Dataset, ax: Axes, *, layer: int | None = None) -> Axes:
    """Fig. 26–37: median and quartiles of the self contribution of each part of speech, in one layer."""
    chosen = result.sel(layer=_layer(result, layer))
    places = np.arange(result.sizes["tag"])
    median = 100 * chosen["median"].values
    reach = np.stack([median - 100 * chosen["lower"].values, 100 * chosen["upper"].values - median])
    ax.errorbar(places, median, yerr=reach, fmt="o", ms=4, color=COLOURS[0], ecolor=COLOURS[4], elinewidth=3)
    names = [f"{tag} ({count})" for tag, count in zip(result["tag"].values, result["count"].values, strict=True)]
    ax.set_xticks(places, names, rotation=90, fontsize="small")
    ax.set(ylabel="self contribution (%)", title=f"layer {int(chosen['layer'])}: median and quartiles", ylim=(0, None))
    return ax


def plot_comparison(result: xr.Dataset, ax: Axes) -> Axes:
    """Correlation of contributions with attention maps by layer: Pearson full, Spearman dashed."""
    layers = result["layer"].values
    for colour, name in zip(COLOURS, result["map"].values, strict=False):
        for kind, style in (("pearson", "-o"), ("spearman", "--s")):
            ax.plot(layers, result[kind].sel(map=name), style, color=colour, ms=4, label=f"{name}, {kind}")
    ax.axhline(0, color="#cccccc", lw=0.8, zorder=0)
    ax.set(xlabel="layer", ylabel="correlation with attention", xticks=layers, ylim=(-1.03, 1.03))
    ax.legend(frameon=False, fontsize="small")
    return ax


def _root() -> PowerNorm:
    """Colours by the square root, since a token's own share would leave the others all alike."""
    return PowerNorm(0.5, vmin=0)


def _layer(result: xr.Dataset, layer: int | None) -> int:
    every = [int(number) for number in result["layer"].values]
    if layer is None:
        return every[-1]
    if layer not in every:
        raise InputError(f"layer {layer} was asked for; the result has {every}.")
    return layer


def _name(ax: Axes, axis: str, tokens: Any) -> None:
    """Tokens as tick labels, as many as can be read."""
    step = max(1, len(tokens) // 48)
    places = range(0, len(tokens), step)
    # A dollar sign would start a formula.
    names = [drawn_token(tokens[place]) for place in places]
    if axis == "x":
        ax.set_xticks(places, names, rotation=90, fontsize="small")
    else:
        ax.set_yticks(places, names, fontsize="small")


#: Result → the function above that draws it.
DRAWS = {
    "comparison_with_attention": plot_comparison,
    "contributions_by_distance": plot_by_distance,
    "contributions_by_offset": plot_by_offset,
    "contributions_by_tag": plot_by_tag,
    "contributions_of_word": plot_of_word,
    "contributions_to_token": plot_by_offset,
    "self_contributions": plot_self_contributions,
}
