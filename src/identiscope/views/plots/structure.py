"""Plots of structure results. Each takes a result and an `ax`, and returns the `ax`."""

from typing import Any

import matplotlib
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, PowerNorm

from identiscope.errors import InputError
from identiscope.token_text import drawn_token

# Wong's palette: told apart by colour-blind readers.
PATTERN_COLOURS = {
    "diagonal": "#0072B2", "previous": "#56B4E9", "next": "#009E73", "vertical": "#E69F00",
    "block": "#CC79A7", "broad": "#F0E442", "antidiagonal": "#D55E00", "mixed": "#DDDDDD",
}  # fmt: skip
NOISE_COLOURS = {"keep": "#0072B2", "break": "#D55E00", "any": "#999999"}
LINES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000")

#: Distances as a reader knows them.
DISTANCE_NAMES = {
    "one": "1-norm", "infinity": "∞-norm", "frobenius": "Frobenius", "spectral": "spectral",
    "structure": "‖·‖_S, W + ε", "structure_cut": "‖·‖_S, W alone", "effective": "effective attention",
    "head_output": "head output",
}  # fmt: skip


def plot_structure(
    result: xr.Dataset,
    ax: Axes,
    *,
    values: str = "patterns",
    layer: int | None = None,
    head: int | None = None,
    threshold: float | None = None,
) -> Axes:
    """The pattern of every head; or of one head its `structure`, its `mean`, or the `sweep`; or `silhouettes`.

    With values="structure" and a threshold, W at that threshold instead of the chosen one, as in the draft's Fig. 2.
    """
    if values == "patterns":
        return _patterns(result, ax)
    if values == "silhouettes":
        return _silhouettes(result, ax)
    if values not in ("structure", "mean", "sweep"):
        raise InputError(f"values={values!r} was given; there are patterns, structure, mean, sweep and silhouettes.")
    one = _of_head(result, layer, head)
    if values == "sweep":
        return _sweep(one, ax)
    return _map(one, ax, values, threshold)


def _of_head(result: xr.Dataset, layer: int | None, head: int | None) -> xr.Dataset:
    layer = int(result["layer"][0]) if layer is None else layer
    head = int(result["head"][0]) if head is None else head
    try:
        return result.sel(layer=layer, head=head)
    except KeyError:
        have = f"layers {result['layer'].values.tolist()} and heads {result['head'].values.tolist()}"
        raise InputError(f"layer {layer}, head {head} is not in this result; it has {have}.") from None


def _patterns(result: xr.Dataset, ax: Axes) -> Axes:
    names = list(PATTERN_COLOURS)
    patterns = result["pattern"].transpose("layer", "head").values.astype(str)
    codes = np.vectorize(names.index)(patterns)
    ax.imshow(
        codes, cmap=ListedColormap(list(PATTERN_COLOURS.values())), vmin=-0.5, vmax=len(names) - 0.5, aspect="auto"
    )
    scores = result["pattern_score"].max("kind_of_pattern").transpose("layer", "head").values
    weight = result["weight_on_structure"].transpose("layer", "head").values
    if codes.shape[1] <= 16 and codes.shape[0] <= 24:
        for (row, column), score in np.ndenumerate(scores):
            text = f"{score:.2f}\n{100 * weight[row, column]:.0f} %"
            colour = "white" if patterns[row, column] in ("diagonal", "antidiagonal") else "black"
            ax.text(column, row, text, ha="center", va="center", fontsize=6, color=colour)
    layers, heads = result["layer"].values, result["head"].values
    ax.set_xticks(range(len(heads)), [str(one) for one in heads], fontsize="small")
    ax.set_yticks(range(len(layers)), [str(one) for one in layers], fontsize="small")
    ax.set_xticks(np.arange(1, len(heads)) - 0.5, minor=True)
    ax.set_yticks(np.arange(1, len(layers)) - 0.5, minor=True)
    ax.grid(which="minor", color="white", linewidth=1)
    ax.tick_params(which="minor", length=0)
    ax.set(xlabel="head", ylabel="layer", title="pattern of W: its score, and the share of attention that lies on W")
    ax.title.set_fontsize("medium")
    shown = [name for name in names if name in patterns]
    handles = [ax.scatter([], [], marker="s", s=60, color=PATTERN_COLOURS[name], label=name) for name in shown]
    ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize="small")
    return ax


def _map(one: xr.Dataset, ax: Axes, values: str, threshold: float | None) -> Axes:
    cells = one["mean"].values if values == "mean" or threshold is not None else one["structure"].values
    title = f"layer {int(one['layer'])}, head {int(one['head'])}: "
    if values == "mean":
        title += "mean attention"
    else:
        shown = float(one["threshold"]) if threshold is None else threshold
        if threshold is not None:
            cells = np.where(cells >= threshold, cells, 0)
            total = cells.sum(1, keepdims=True)
            cells = cells / np.where(total > 0, total, 1)
        title += f"W at l = {shown:.3g} ({one['pattern'].item()})" if threshold is None else f"W at l = {shown:.3g}"
    # Weights are a few large and many small: a square-root scale shows both.
    most = float(cells.max()) or 1.0
    image = ax.imshow(cells, cmap="viridis", norm=PowerNorm(0.5, 0, most), interpolation="nearest", aspect="auto")
    ax.figure.colorbar(image, ax=ax, label="weight (square-root scale)")
    for axis, name in ((ax.xaxis, "key"), (ax.yaxis, "query")):
        tokens = [drawn_token(token) for token in one[f"{name}_token"].values]
        if len(tokens) <= 120:
            axis.set_ticks(range(len(tokens)), tokens, fontsize=max(3.5, 8 - len(tokens) / 25))
    ax.tick_params(axis="x", rotation=90)
    ax.set(xlabel="key", ylabel="query", title=title)
    return ax


def _sweep(one: xr.Dataset, ax: Axes) -> Axes:
    curves = {
        "separation": "variance explained by the split", "weight": "attention kept", "cells": "cells kept",
        "empty_rows": "rows left empty",
    }  # fmt: skip
    for (name, label), colour in zip(curves.items(), LINES, strict=False):
        ax.plot(one["step"], one[f"sweep_{name}"], color=colour, label=label, linewidth=1.6)
    ax.axvspan(
        float(one["stable_from"]), float(one["stable_to"]), color="#EEEEEE", zorder=0, label="as good within 5 %"
    )
    ax.axvline(float(one["recommended"]), color="#000000", linewidth=1, linestyle="--", label="recommended l")
    largest = float(one["mean"].max())
    ax.set(
        xlabel="threshold l", ylabel="share", ylim=(-0.02, 1.02), xlim=(0, 1.05 * largest if largest > 0 else 1),
        title=f"layer {int(one['layer'])}, head {int(one['head'])}: l = {float(one['recommended']):.3g}",
    )  # fmt: skip
    ax.legend(frameon=False, fontsize="small")
    return ax


def _silhouettes(result: xr.Dataset, ax: Axes) -> Axes:
    if "silhouette" not in result or not result.sizes["candidate"]:
        raise InputError("this structure is not from clusters of a corpus, so there are no silhouettes.")
    ax.plot(result["candidate"], result["silhouette"], color=LINES[0], marker="o", linewidth=1.2)
    ax.axvline(result.sizes["cluster"], color="#000000", linewidth=1, linestyle="--", label="chosen")
    ax.set(xlabel="clusters", ylabel="mean silhouette")
    ax.legend(frameon=False, fontsize="small")
    return ax


def plot_shared_subspaces(result: xr.Dataset, ax: Axes, *, length: int | None = None) -> Axes:
    """Eigenvalues of the mean projector, one line a layer (the median head) and a band over its heads."""
    commonest = int(result["length"][int(np.argmax(result["samples"].values))])
    chosen = commonest if length is None else length
    if chosen not in result["length"].values:
        raise InputError(f"length {length} is not in this result; it has {result['length'].values.tolist()}.")
    one = result.sel(length=chosen)
    layers = result["layer"].values
    colours = LINES if len(layers) <= len(LINES) else None
    for place, layer in enumerate(layers):
        values = one["eigenvalue"].sel(layer=layer).transpose("head", "direction").values[:, :chosen]
        colour: Any = colours[place] if colours else matplotlib.colormaps["cividis"](place / (len(layers) - 1))
        direction = np.arange(1, chosen + 1)
        ax.fill_between(direction, values.min(0), values.max(0), color=colour, alpha=0.15, linewidth=0)
        ax.plot(direction, np.median(values, 0), color=colour, linewidth=1.4, label=f"layer {layer}")
    chance = one["chance"].values[:chosen]
    ax.plot(np.arange(1, chosen + 1), chance, color="#000000", linestyle="--", linewidth=1, label="by chance")
    ax.axhline(1, color="#cccccc", linewidth=0.8, zorder=0)
    ax.set(
        xlabel="direction", ylabel="share of texts that use it", ylim=(-0.02, 1.04), xlim=(0.5, chosen + 0.5),
        title=f"shared directions of {int(one['samples'])} texts, {chosen} keys (median head, all heads shaded)",
    )  # fmt: skip
    ax.title.set_fontsize("medium")
    ax.legend(frameon=False, fontsize="small", loc="lower left", ncols=2)
    return ax


def plot_perturbation_effects(
    result: xr.Dataset, ax: Axes, *, outcome: str | None = None, values: str = "correlation"
) -> Axes:
    """How well each distance predicts the effect, with 95 % intervals; or values="agreement" at equal size."""
    chosen = str(result["outcome"].values[0]) if outcome is None else outcome
    if chosen not in result["outcome"].values or values not in ("correlation", "agreement"):
        raise InputError(f"{values} of {outcome!r} was asked for; there are correlation and agreement of"
                         f" {result['outcome'].values.tolist()}.")  # fmt: skip
    one = result.sel(outcome=chosen)
    low, high = ("low", "high") if values == "correlation" else ("agreement_low", "agreement_high")
    names = [str(name) for name in one["distance"].values]
    middle = one[values].values
    places = np.arange(len(names))[::-1]
    spread = np.abs(np.stack([middle - one[low].values, one[high].values - middle]))
    colours = ["#D55E00" if name.startswith("structure") else "#0072B2" for name in names]
    for place, value, error, colour in zip(places, middle, spread.T, colours, strict=True):
        if not np.isnan(value):
            ax.errorbar(value, place, xerr=error[:, None], fmt="o", color=colour, capsize=3, markersize=5)
    nothing = 0.0 if values == "correlation" else 0.5
    ax.axvline(nothing, color="#999999", linewidth=0.8, zorder=0)
    ax.set_yticks(places, [DISTANCE_NAMES.get(name, name) for name in names])
    labels = {
        "correlation": f"rank correlation with the change of {chosen.replace('_', ' ')}",
        "agreement": "share of pairs of equal size ordered as their effects",
    }
    title = f"{result.attrs['model']}, layer {result.attrs['layer']}, head {result.attrs['head']}"
    limits = (min(-0.1, float(np.nanmin(one[low].values)) - 0.05), 1.05) if values == "correlation" else (0, 1.02)
    ax.set(xlabel=labels[values], ylabel="distance", xlim=limits, title=f"{title} ({result.attrs['pattern']})")
    return ax


def plot_effect_by_distance(
    result: xr.Dataset, ax: Axes, *, distance: str = "structure", outcome: str | None = None
) -> Axes:
    """One point a perturbation: its distance and its effect, coloured by whether it keeps or breaks the structure."""
    chosen = str(result["outcome"].values[0]) if outcome is None else outcome
    for noise, colour in NOISE_COLOURS.items():
        x = result["measured"].sel(noise=noise, distance=distance).values.ravel()
        y = result["effect"].sel(noise=noise, outcome=chosen).values.ravel()
        ax.scatter(x, y, s=12, color=colour, alpha=0.7, linewidths=0, label=noise)
    ax.set(xlabel=DISTANCE_NAMES.get(distance, distance), ylabel=f"relative change of {chosen.replace('_', ' ')}")
    ax.legend(frameon=False, fontsize="small", title="structure")
    return ax


#: Result → the function above that draws it.
DRAWS = {
    "perturbation_effects": plot_perturbation_effects,
    "shared_subspaces": plot_shared_subspaces,
    "structure_extraction": plot_structure,
}
