"""Plots of the model that reverses: its map (Fig. 1 of the draft), W over thresholds (Fig. 2), and what breaks it."""

import math
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from identiscope.views.plots.plotting import expect_one_of, plot, save_figure

# Wong's palette, and a marker of its own for each kind of noise.
NOISE = {"keep": ("#009E73", "o"), "break": ("#D55E00", "s"), "any": ("#0072B2", "^")}
WORDS = {"keep": "keeps the structure", "break": "breaks the structure", "any": "of any kind"}


def plot_reversal_structure(
    result: xr.Dataset, ax: Axes, *, values: str = "example", threshold: float | None = None
) -> Axes:
    """One map as an image. values: `example` (Fig. 1), `mean`, or with a threshold W of that threshold (Fig. 2)."""
    if threshold is None:
        expect_one_of("values", values, ["example", "mean"])
    else:
        expect_one_of("threshold", float(threshold), result["threshold"].values.tolist())
    cells = result[values] if threshold is None else result["weights"].sel(threshold=threshold)
    image = ax.imshow(cells.values, cmap="viridis", vmin=0, vmax=1, interpolation="nearest")
    ax.figure.colorbar(image, ax=ax, label="attention" if threshold is None else "W", shrink=0.9)
    if values == "example" and threshold is None:
        size = max(4.0, 9 - result.sizes["key"] / 8)
        ax.set_xticks(range(result.sizes["key"]), [str(token) for token in result["key_token"].values], fontsize=size)
        ax.set_yticks(
            range(result.sizes["query"]), [_written(token, result) for token in result["query_token"].values],
            fontsize=size,
        )  # fmt: skip
        ax.set(xlabel="token read by the encoder", ylabel="token read by the decoder", title="attention on one input")
    else:
        title = f"W, l = {threshold:g}" if threshold is not None else f"mean of {result.attrs['samples']} samples"
        ax.set(xlabel="position read", ylabel="position written", title=title)
        ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        ax.yaxis.set_major_locator(MaxNLocator(8, integer=True))
    return ax


def _written(token: Any, result: xr.Dataset) -> str:
    return "start" if str(token) == str(result.attrs["vocabulary"]) else str(token)


def thresholds_figure(result: xr.Dataset) -> Figure:
    """Fig. 2: W at every threshold, side by side, with the share of cells and of empty rows."""
    chosen = result["threshold"].values
    columns = min(4, len(chosen))
    rows = math.ceil(len(chosen) / columns)
    figure, axes = plt.subplots(rows, columns, figsize=(2.9 * columns + 0.8, 3.1 * rows + 0.5), layout="constrained",
                                squeeze=False)  # fmt: skip
    image = None
    for place, ax in enumerate(axes.flat):
        if place >= len(chosen):
            ax.axis("off")
            continue
        one = result.isel(threshold=place)
        image = ax.imshow(one["weights"].values, cmap="viridis", vmin=0, vmax=1, interpolation="nearest")
        ax.set_title(f"l = {chosen[place]:g}", fontsize=11)
        kept = f"{100 * float(one['cells']):.0f} % of cells kept"
        empty = float(one["empty_rows"])
        ax.set_xlabel(kept + (f", {100 * empty:.0f} % of rows empty" if empty > 0 else ""), fontsize=8)
        ax.tick_params(labelsize=7)
        ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    if image is not None:
        figure.colorbar(image, ax=axes, label="W", shrink=0.7)
    low, high = result.attrs["stable_from"], result.attrs["stable_to"]
    figure.suptitle(
        f"W from {result.attrs['samples']} samples by threshold; recommended l = {result.attrs['recommended']:.2f}"
        f" (as good from {low:.2f} to {high:.2f})"
    )
    return figure


def plot_reversal_damage(result: xr.Dataset, ax: Axes) -> Axes:
    """Accuracy against the Frobenius size of the noise, one line a kind; noise that keeps the structure ends early."""
    for kind in result["noise"].values:
        colour, marker = NOISE[str(kind)]
        one = result.sel(noise=kind)
        ax.plot(one["size"], 100 * one["accuracy"], color=colour, marker=marker, markersize=5, label=WORDS[str(kind)])
    reach = float(result["size"].sel(noise="keep").max())
    ax.axvline(reach, color=NOISE["keep"][0], linewidth=0.9, linestyle=":")
    ax.annotate("farthest that noise which\nkeeps the structure can go", (reach, 30), xytext=(6, 0),
                textcoords="offset points", fontsize=8, color=NOISE["keep"][0])  # fmt: skip
    ax.set(xlabel="size of the noise (Frobenius)", ylabel="tokens written right (%)", ylim=(-3, 103))
    ax.set_title("noise on the attention map, on the simplex", fontsize=10)
    ax.grid(alpha=0.25)
    ax.legend(frameon=False, fontsize=9, title="noise", loc="upper right", bbox_to_anchor=(1, 0.92))
    return ax


def save_reversal_plots(results: dict[str, xr.Dataset], directory: Path) -> list[Path]:
    """Every plot of the demonstration as a PNG file."""
    plt.switch_backend("Agg")
    figures: dict[str, Figure] = {}
    for stem, values in (("figure-1-map", "example"), ("mean-map", "mean")):
        figure, ax = plt.subplots(figsize=(6.2, 5.2), layout="constrained")
        plot_reversal_structure(results["structure"], ax, values=values)
        figures[stem] = figure
    figures["figure-2-thresholds"] = thresholds_figure(results["structure"])
    if "damage" in results:
        figures["noise"], ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
        plot_reversal_damage(results["damage"], ax)
    if "perturbations" in results:
        figures["distances"], ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
        plot(results["perturbations"], ax)
    return [save_figure(figure, directory / f"{stem}.png") for stem, figure in figures.items()]


#: Result → the function above that draws it.
DRAWS = {
    "reversal_damage": plot_reversal_damage,
    "reversal_structure": plot_reversal_structure,
}
