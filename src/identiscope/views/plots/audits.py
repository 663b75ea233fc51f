"""Plots of audits: how far answers move under other descriptions, and what is left of them in random layers."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from identiscope.views.plots.plotting import expect_one_of

#: What can be drawn of an audit, in words.
VALUES = {
    "total_variation": "total variation of the scores",
    "merged_total_variation": "total variation of the scores, equal tokens added up",
    "row_total_variation": "largest total variation of a row of the answer",
    "row_mean_total_variation": "mean total variation of rows of the answer",
}


def plot_audit(result: xr.Dataset, ax: Axes, *, values: str = "total_variation") -> Axes:
    """A row for each method, a column for each description: how far the answer moves, and the verdict.

    values: `total_variation`, `merged_total_variation`, `row_total_variation` or `row_mean_total_variation`.
    """
    expect_one_of("values", values, VALUES)
    axis = str(result[values].dims[1])
    cells = result[values].values.astype(np.float64)
    image = ax.imshow(cells, cmap="cividis", vmin=0, vmax=1, interpolation="nearest", aspect="auto")
    ax.figure.colorbar(image, ax=ax, label=VALUES[values], fraction=0.04, pad=0.02)
    for row, column in np.ndindex(*cells.shape):
        number = cells[row, column]
        said = "–" if np.isnan(number) else "0" if number < 5e-4 else f"{number:.2f}" if number >= 0.005 else "<.01"
        light = not np.isnan(number) and number < 0.55
        ax.text(column, row, said, ha="center", va="center", fontsize="x-small", color="white" if light else "black")
    names = [f"{one}: {word}" for one, word in zip(result["method"].values, result["verdict"].values, strict=True)]
    ax.set_yticks(range(len(names)), names, fontsize="small")
    labels = [str(one).replace(",", ",\n") for one in result[axis].values]
    ax.set_xticks(range(len(labels)), labels, rotation=30, ha="right", fontsize="small")
    ax.tick_params(length=0)
    ax.set_title(str(result.attrs.get("says", result.attrs["method"])), loc="left", fontsize="medium", wrap=True)
    return ax


def plot_randomisation(result: xr.Dataset, ax: Axes) -> Axes:
    """What is left of each method's answer, mean over the draws, as layers are drawn anew from the top."""
    layers = result["redrawn"].values
    table = result["rank_correlation"].values.astype(np.float64)
    markers = "osD^vP*Xhd"
    for place, name in enumerate(result["method"].values):
        known = np.isfinite(table[place]).any(-1)
        if known.any():
            means = [np.nanmean(row) for row in table[place][known]]
            label = f"{name}: {result['verdict'].values[place]}"
            # Markers and dashes, so that colour is not needed.
            dashes = ("-", "--", ":", "-.")[place // len(markers) % 4]
            ax.plot(layers[known], means, dashes, marker=markers[place % len(markers)], markersize=4, label=label)
    ax.axhline(0, color="0.6", linewidth=0.8)
    ax.set(xlabel="layers drawn anew, from the top", ylabel="rank correlation with the answer", ylim=(-1.05, 1.05))
    ax.set_xticks(layers)
    ax.legend(fontsize="x-small", loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    return ax


DRAWS = {"null_audit": plot_audit, "gauge_audit": plot_audit, "randomisation": plot_randomisation}
