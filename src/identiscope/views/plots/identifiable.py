"""Plots of identifiable attention against regular: accuracy, differences, and null spaces by length."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from identiscope.views.plots.plotting import expect_one_of

# Wong's palette: told apart by colour-blind readers; each variant has a line style of its own too.
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)))
LABELS = {
    "simplex_null_dimension": "dimension of the null space of a row, LN([T,1])",
    "null_dimension": "dimension of the null space of a row, LN(T)",
    "realisable_dimension": "dimension of realisable maps with the same output",
    "layer_simplex_null_dimension": "dimension of the null space of all heads' rows together",
    "identifiable": "share of heads that are identifiable",
}


def plot_comparison(result: xr.Dataset, ax: Axes, *, values: str = "difference") -> Axes:
    """One panel of a comparison.

    values: `difference` in accuracy to the first variant, with its interval and the margin as a band; `accuracy`, one
    point a seed; or, by length, `simplex_null_dimension`, `null_dimension`, `realisable_dimension`, `identifiable`.
    """
    expect_one_of("values", values, ["difference", "accuracy", *(name for name in LABELS if name in result)])
    if values == "difference":
        return _differences(result, ax)
    if values == "accuracy":
        return _accuracies(result, ax)
    return _by_length(result, ax, values)


def _accuracies(result: xr.Dataset, ax: Axes) -> Axes:
    names = [str(name) for name in result["variant"].values]
    for place, colour in zip(range(len(names)), _cycle(COLOURS), strict=False):
        one = result.isel(variant=place)
        accuracy = 100 * one["accuracy"].values
        shift = np.linspace(-0.12, 0.12, len(accuracy)) if len(accuracy) > 1 else np.zeros(1)
        ax.scatter(place + shift, accuracy, color=colour, s=16, alpha=0.6, linewidths=0)
        mean = 100 * float(one["accuracy_mean"])
        reach = [[mean - 100 * float(one["accuracy_low"])], [100 * float(one["accuracy_high"]) - mean]]
        ax.errorbar([place + 0.25], [mean], yerr=None if np.isnan(reach).any() else reach, fmt="o", color=colour,
                    capsize=4)  # fmt: skip
    ax.set_xticks(range(len(names)), names)
    ax.set(ylabel="test accuracy (%)", xlim=(-0.5, len(names) - 0.3))
    ax.set_title(f"one point a seed; mean with 95 % interval over {result.sizes['seed']} seeds", fontsize=10)
    ax.grid(axis="y", alpha=0.25)
    return ax


def _differences(result: xr.Dataset, ax: Axes) -> Axes:
    margin = 100 * float(result.attrs["margin"])
    names = [str(name) for name in result["variant"].values]
    ax.axvspan(-margin, margin, color="#56B4E9", alpha=0.2, linewidth=0, label=f"margin of ±{margin:g} points")
    ax.axvline(0, color="#555555", linewidth=0.8)
    for place, colour in zip(range(1, len(names)), _cycle(COLOURS[1:]), strict=False):
        one = result.isel(variant=place)
        mean, low, high = (100 * float(one[name]) for name in ("difference", "difference_low", "difference_high"))
        reach = None if np.isnan(low) else [[mean - low], [high - mean]]
        ax.errorbar([mean], [place], xerr=reach, fmt="o", color=colour, capsize=4)
        ax.annotate(
            str(one["answer"].item()), (mean, place), xytext=(0, 8), textcoords="offset points", ha="center", fontsize=9
        )
    ax.set_yticks(range(1, len(names)), names[1:])
    ax.set(xlabel=f"accuracy minus that of {names[0]} (points)", ylim=(0.5, len(names) - 0.3))
    ax.invert_yaxis()
    ax.set_title("95 % interval over seeds and test texts", fontsize=10)
    ax.legend(frameon=False, fontsize=8, loc="lower right")
    return ax


def _by_length(result: xr.Dataset, ax: Axes, values: str) -> Axes:
    names = [str(name) for name in result["variant"].values]
    styles = zip(_cycle(COLOURS), _cycle(STYLES), strict=False)
    for place, (colour, style) in zip(range(len(names)), styles, strict=False):
        one = result[values].isel(variant=place)
        # Lines may lie on each other: the first are drawn wider.
        ax.plot(
            one["length"], one.mean("seed"), color=colour, linestyle=style, linewidth=4.5 - 1.2 * min(place, 2.5),
            alpha=0.85, label=names[place],
        )  # fmt: skip
    ax.set(
        xlabel="words in the text",
        ylabel=LABELS.get(values, values),
        ylim=(None if values != "identifiable" else -0.02, None),
    )
    ax.grid(alpha=0.25)
    ax.legend(frameon=False, fontsize=9, handlelength=3.5)
    return ax


def _cycle(values: tuple[object, ...]) -> list[object]:
    return list(values) * 4


#: Result → the function above that draws it.
DRAWS = {
    "identifiable_comparison": plot_comparison,
}
