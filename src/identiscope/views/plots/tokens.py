"""Plots of token identifiability. Each takes a result and an `ax`, and returns the `ax`."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from identiscope.views.plots.plotting import expect_one_of

# Wong's palette: told apart by colour-blind readers. One colour a probe; the metric is the line's style.
PROBE_COLOURS = {"naive": "#009E73", "linear": "#0072B2", "mlp": "#D55E00"}
METRIC_STYLES = {"cosine": "-", "l2": "--"}
METRIC_MARKERS = {"cosine": "o", "l2": "s"}
REASON_COLOURS = ("#0072B2", "#999999", "#D55E00", "#E69F00", "#56B4E9", "#F0E442")


def plot_token_rates(result: xr.Dataset, ax: Axes | None = None, *, train: bool = False) -> Axes:
    """Figure 2a (and 11, 38, 39): rate by layer of each probe, with its interval over sentences.

    train: also the rate on the training sentences, dotted (figure 7).
    """
    ax = _axes(ax)
    layers = result.layer.values
    for name in result.probe.values:
        kind, _, metric = str(name).partition(" ")
        one = result.sel(probe=name)
        style: dict[str, Any] = {"color": PROBE_COLOURS[kind], "linestyle": METRIC_STYLES[metric]}
        ax.plot(layers, one.rate, marker=METRIC_MARKERS[metric], markersize=4, label=str(name), **style)
        ax.fill_between(layers, one.low, one.high, color=PROBE_COLOURS[kind], alpha=0.15, linewidth=0)
        if train and "train_rate" in one:
            ax.plot(layers, one.train_rate, color=PROBE_COLOURS[kind], linestyle=":", linewidth=1.2)
    if train:
        ax.plot([], [], color="#555555", linestyle=":", linewidth=1.2, label="on training sentences")
    if "random_guess" in result:
        ax.plot(layers, result.random_guess, color="black", linewidth=0.8, linestyle=":", label="random guess")
    _finish(ax, layers)
    return ax


def plot_across_layers(result: xr.Dataset, ax: Axes | None = None, *, probe: str = "linear cosine") -> Axes:
    """Figure 2b (and 8, 9, 10): one line for each layer that a probe was trained on; a ring marks that layer."""
    expect_one_of("probe", probe, result["probe"].values)
    ax = _axes(ax)
    one = result.sel(probe=probe)
    colours = plt.get_cmap("cividis")(np.linspace(0, 0.92, one.sizes["trained_on"]))
    for colour, source in zip(colours, one.trained_on.values, strict=True):
        rate = one.rate.sel(trained_on=source)
        ax.plot(one.layer, rate, color=colour, label=f"trained on {source}", marker=".", markersize=5)
        ax.plot([source], [float(rate.sel(layer=source))], "o", color=colour, markersize=9, fillstyle="none")
    _finish(ax, one.layer.values)
    ax.set_title(probe)
    return ax


def plot_neighbours(result: xr.Dataset, ax: Axes | None = None, *, probe: str = "linear cosine") -> Axes:
    """Figures 14 to 17: previous tokens blue, next tokens red-brown; the nearer, the darker."""
    expect_one_of("probe", probe, result["probe"].values)
    ax = _axes(ax)
    one = result.sel(probe=probe)
    furthest = int(np.abs(one.offset.values).max())
    for offset in one.offset.values:
        colour = "#0072B2" if offset < 0 else "#D55E00"
        strength = 1 - 0.65 * (abs(int(offset)) - 1) / max(furthest - 1, 1)
        ax.plot(
            one.layer, one.rate.sel(offset=offset), color=colour, alpha=strength, label=f"{int(offset):+d}",
            marker="<" if offset < 0 else ">", markersize=5,
        )  # fmt: skip
    _finish(ax, one.layer.values)
    ax.set_title(f"{probe}: the token at an offset")
    return ax


def plot_checkpoints(result: xr.Dataset, ax: Axes | None = None) -> Axes:
    """Figures 12 and 13: layer to previous layer; a colour for each probe and metric, a style for each checkpoint."""
    ax = _axes(ax)
    colours = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
    styles = ("--", "-", "-.", ":")
    for colour, name in zip(colours, result.probe.values, strict=False):
        for number, checkpoint in enumerate(result.checkpoint.values):
            one = result.sel(probe=name, checkpoint=checkpoint)
            style = styles[number % len(styles)]
            ax.plot(one.layer, one.rate, color=colour, linestyle=style, marker=".", label=f"{name}, {checkpoint}")
    _finish(ax, result.layer.values)
    ax.set_ylim(max(0.0, float(result.rate.min()) - 0.05), 1.01)
    return ax


def plot_fractions(result: xr.Dataset, ax: Axes | None = None) -> Axes:
    """Appendix B.2: test and training rate by the share of the training sentences."""
    ax = _axes(ax)
    one = result.isel(probe=0, layer=0)
    shares = 100 * one.fraction.values
    ax.errorbar(shares, one.rate, yerr=[one.rate - one.low, one.high - one.rate], color="#0072B2", marker="o",
                capsize=3, label="test")  # fmt: skip
    ax.plot(shares, one.train_rate, color="#D55E00", marker="s", linestyle="--", label="train")
    ax.set(xlabel="training sentences used (%)", ylabel="identifiability rate")
    ax.set_title(f"{one.probe.item()}, layer {one.layer.item()}")
    ax.legend(frameon=False)
    return ax


def plot_losses(result: xr.Dataset, ax: Axes | None = None, *, by: str | None = None, least: int = 30) -> Axes:
    """Share of tokens lost at the last layer by `tag`, `type`, `frequency` or `position`, with how many there were.

    by: without, the first of these that the result has. least: leave out groups with fewer tokens, unless all have.
    """
    known = [name for name in ("tag", "type", "frequency", "position") if f"{name}_tokens" in result]
    by = by or known[0]
    expect_one_of("by", by, known)
    ax = _axes(ax)
    last = result.isel(layer=-1)
    counts = last[f"{by}_tokens"].values
    lost = 1 - last[f"{by}_identified"].values / counts
    names = [str(name) for name in last[by].values]
    kept = [index for index in range(len(names)) if counts[index] >= least] or list(range(len(names)))
    if by in ("tag", "type"):
        kept = sorted(kept, key=lambda index: -lost[index])[:25]
    places = np.arange(len(kept))
    ax.barh(places, [lost[index] for index in kept], color="#0072B2")
    ax.set_yticks(places, [f"{_shown(names[index])}  ({counts[index]})" for index in kept], fontsize=8)
    ax.invert_yaxis()
    ax.set(xlabel=f"share lost at layer {last.layer.item()}", xlim=(0, None), title=f"by {by} (tokens tested)")
    return ax


def plot_reasons(result: xr.Dataset, ax: Axes | None = None) -> Axes:
    """What lost tokens are taken for, as shares of all tested tokens, by layer."""
    ax = _axes(ax)
    total = float(result.position_tokens.sum())
    base = np.zeros(result.sizes["layer"])
    for colour, reason in zip(REASON_COLOURS, result.reason.values, strict=True):
        share = result.taken_for.sel(reason=reason).values / total
        ax.bar(
            result.layer.values, share, bottom=base, color=colour, label=str(reason), edgecolor="white", linewidth=0.4
        )
        base = base + share
    ax.set(
        xlabel="layer",
        ylabel="share of tokens lost",
        xticks=result.layer.values,
        title="what lost tokens are taken for",
    )
    ax.legend(frameon=False, fontsize=8)
    return ax


def plot_against_contribution(result: xr.Dataset, ax: Axes | None = None) -> Axes:
    """Rate by self contribution in bins of equal size, a line for each layer."""
    ax = _axes(ax)
    colours = plt.get_cmap("cividis")(np.linspace(0, 0.92, result.sizes["layer"]))
    for colour, layer in zip(colours, result.layer.values, strict=True):
        one = result.sel(layer=layer)
        middle = (one.low + one.high) / 2
        said = f"AUC {float(one.auc):.2f}" if np.isfinite(one.auc) else "none lost" if one.rate[0] else "all lost"
        ax.plot(middle, one.rate, marker=".", color=colour, label=f"layer {layer} ({said})")
    ax.set(xlabel="self contribution", ylabel="identifiability rate")
    ax.legend(frameon=False, fontsize=8)
    return ax


def _axes(ax: Axes | None) -> Axes:
    return plt.subplots(figsize=(7, 4.5), layout="constrained")[1] if ax is None else ax


def _finish(ax: Axes, layers: np.ndarray) -> None:
    ax.set(xlabel="layer", ylabel="identifiability rate", xticks=layers, ylim=(0, 1.02))
    ax.grid(axis="y", alpha=0.25)
    ax.legend(frameon=False, fontsize=8)


def _shown(token: str) -> str:
    # A dollar would begin a formula in matplotlib's text.
    return token.replace("$", r"\$")


#: Result → the function above that draws it.
DRAWS = {
    "token_identifiability_same_layer": plot_token_rates,
    "token_identifiability_across_layers": plot_across_layers,
    "token_identifiability_against_contribution": plot_against_contribution,
    "token_identifiability_checkpoints": plot_checkpoints,
    "token_identifiability_fractions": plot_fractions,
    "token_identifiability_neighbours": plot_neighbours,
    "token_identifiability_previous_layer": plot_token_rates,
    "token_losses": plot_losses,
}
