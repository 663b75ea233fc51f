"""Plots of a Run: a column by layer and head, against the length of the texts, or as a histogram; agreement."""

from typing import Any

import matplotlib as mpl
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from identiscope.errors import InputError
from identiscope.views.plots.plotting import expect_one_of


def plot_run_means(result: xr.Dataset, ax: Axes, *, column: str, kind: str = "mean") -> Axes:
    """A column over all texts: kind "mean", a cell for each head or a line over the layers; or "histogram"."""
    if column not in result["column"].values.tolist():
        raise InputError(f"there is no column {column!r}; there are {', '.join(result['column'].values)}.")
    expect_one_of("kind", kind, ["mean", "histogram"])
    part = result.sel(column=column)
    if kind == "histogram":
        return _histogram(part, ax, column)
    return _heads(part, ax, column) if "head" in part.dims else _line(part, ax, column)


def plot_run_table(result: xr.Dataset, ax: Axes, *, column: str) -> Axes:
    """A column of every text against its length, one colour a layer; heads are averaged."""
    if column not in result:
        raise InputError(f"there is no column {column!r}; there are {', '.join(map(str, result.data_vars))}.")
    values = result[column].mean("head") if "head" in result[column].dims else result[column]
    for layer, colour in zip(values["layer"].values, _colours(values.sizes["layer"]), strict=True):
        ax.plot(result["tokens"], values.sel(layer=layer), ".", color=colour, markersize=4, alpha=0.7, label=f"{layer}")
    ax.set(xlabel="tokens", ylabel=_spoken(column), title=_title(result))
    ax.legend(title="layer", fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return ax


def _heads(part: xr.Dataset, ax: Axes, column: str) -> Axes:
    values = part["mean"].values
    low, high = np.nanmin(values), np.nanmax(values)
    options: dict[str, Any] = {"cmap": "viridis"}
    if low < 0:
        # Signed values: white is zero, and both sides have one scale.
        reach = max(-low, high)
        options = {"cmap": "RdBu_r", "vmin": -reach, "vmax": reach}
    image = ax.imshow(values, aspect="auto", origin="lower", interpolation="nearest", **options)
    for axis, name, labels in ((ax.xaxis, "head", part["head"]), (ax.yaxis, "layer", part["layer"])):
        axis.set_ticks(range(len(labels)), [str(label) for label in labels.values])
        axis.set_label_text(name)
    ax.set_title(_title(part))
    ax.figure.colorbar(image, ax=ax, label=f"mean {_spoken(column)}")
    return ax


def _line(part: xr.Dataset, ax: Axes, column: str) -> Axes:
    layers, mean, deviation = part["layer"].values, part["mean"].values, part["deviation"].values
    # Near its end a share lies to one side of its mean: no text was outside these, so no band goes there.
    low, high = np.maximum(mean - deviation, part["least"].values), np.minimum(mean + deviation, part["most"].values)
    colour = _colours(3)[1]
    ax.fill_between(layers, low, high, color=colour, alpha=0.25, linewidth=0,
                    label="± one standard deviation over texts,\nno further than any text lies")  # fmt: skip
    ax.plot(layers, mean, "o-", color=colour, label="mean")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel="layer", ylabel=_spoken(column), title=_title(part))
    ax.legend(fontsize="small", frameon=False)
    return ax


def _histogram(part: xr.Dataset, ax: Axes, column: str) -> Axes:
    counts = part["histogram"].sum("head") if "head" in part.dims else part["histogram"]
    for layer, colour in zip(counts["layer"].values, _colours(counts.sizes["layer"]), strict=True):
        own = counts.sel(layer=layer).values
        ax.stairs(own / max(own.sum(), 1), part["edge"].values, color=colour, label=f"{layer}")
    seen = counts.sum("layer").values.nonzero()[0]
    if len(seen):
        ax.set_xlim(part["edge"].values[seen[0]], part["edge"].values[seen[-1] + 1])
    ax.set(xlabel=_spoken(column), ylabel="share", title=_title(part))
    ax.legend(title="layer", fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return ax


def _colours(count: int) -> Any:
    return mpl.colormaps["viridis"](np.linspace(0, 0.92, count))


def _spoken(column: str) -> str:
    return column.replace("_", " ")


def _title(result: xr.Dataset) -> str:
    corpus = str(result.attrs["corpus"]).rpartition("/")[2]
    return f"{result.attrs['model']}, {corpus}, {result.attrs['texts']} texts"


def plot_run_agreement(result: xr.Dataset, ax: Axes) -> Axes:
    """How far each two methods agree over a corpus: the mean over texts of their rank correlation."""
    names, mean = [str(name).replace("_", " ") for name in result["method"].values], result["mean"].values
    image = ax.imshow(mean, cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest")
    ax.figure.colorbar(image, ax=ax, label="mean of Spearman's correlation", shrink=0.8)
    ax.set_xticks(range(len(names)), names, rotation=90, fontsize="small")
    ax.set_yticks(range(len(names)), names, fontsize="small")
    ax.tick_params(length=0)
    if len(names) <= _MOST_NUMBERS:
        for (row, column), value in np.ndenumerate(mean):
            if np.isfinite(value):
                letters = "white" if abs(value) > 0.6 else "black"
                ax.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize="x-small", color=letters)
    ax.set_title(_title(result), loc="left", fontsize="medium")
    return ax


#: Methods whose agreement is written into the cells, too.
_MOST_NUMBERS = 14

#: Result → the function above that draws it.
DRAWS = {
    "run_agreement": plot_run_agreement,
    "run_*_means": plot_run_means,
    "run_*": plot_run_table,
}
