"""Explanations by many methods, method by word."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import Normalize

from identiscope.errors import InputError
from identiscope.token_text import drawn_token
from identiscope.views.plots.attention import SIGNED


def plot_explanation(result: xr.Dataset, ax: Axes, *, special: bool = False) -> Axes:
    """A row for each method, a column for each word: shares of the row's largest, red for it and blue against.

    special: whether special tokens are drawn too, which often have all the weight.
    """
    flags = result["input_special"].values.astype(bool)
    kept = np.arange(len(flags)) if special or flags.all() else np.flatnonzero(~flags)
    asked = np.array([place for place, failed in enumerate(result["failed"].values) if not str(failed)], np.int64)
    if not len(asked):
        raise InputError("no method of this result said anything; `failed` says why.")
    shares = result["share"].values[np.ix_(asked, kept)]
    largest = np.nanmax(np.abs(shares), 1, keepdims=True, initial=0.0)
    scaled = shares / np.where(largest > 0, largest, 1.0)
    image = ax.imshow(scaled, cmap=SIGNED, norm=Normalize(-1, 1), interpolation="nearest", aspect="auto")
    ax.figure.colorbar(image, ax=ax, label="share of the method's largest", fraction=0.03, pad=0.01)
    tokens = [drawn_token(token) for token in result["input_token"].values[kept]]
    many = len(tokens) > 24
    ax.set_xticks(range(len(tokens)), tokens, rotation=90 if many or max(map(len, tokens)) > 3 else 0)
    ax.tick_params(axis="x", labelsize="x-small" if many else "small", length=0)
    ax.set_yticks(range(len(asked)), [str(result["method"].values[place]) for place in asked], fontsize="small")
    ax.tick_params(axis="y", length=0)
    ax.set_xticks(np.arange(-0.5, len(tokens)), minor=True)
    ax.set_yticks(np.arange(-0.5, len(asked)), minor=True)
    ax.grid(which="minor", color="white", linewidth=0.6)
    ax.tick_params(which="minor", length=0)
    ax.set_title(str(result.attrs["outcome"]), loc="left", fontsize="medium")
    return ax


DRAWS = {"explain": plot_explanation}
