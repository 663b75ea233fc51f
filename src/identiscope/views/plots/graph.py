"""Graphs of tokens and layers: routes of a prediction, and the attribution tree."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from identiscope.errors import InputError
from identiscope.token_text import drawn_token

#: Wong's palette: attention, and what stays in its own stream.
_ATTENTION, _STREAM = "#0072B2", "#999999"
_WIDEST, _LARGEST = 5.0, 40


def plot_graph(result: xr.Dataset, ax: Axes, *, edges: int = 150) -> Axes:
    """Tokens from left to right, layers from below: blue is attention, grey a token's own stream; the wider an edge,
    the more it carries; the root of a tree is orange.

    edges: at most so many, the strongest.
    """
    if "edge_weight" not in result:
        raise InputError("this result has no graph; flow_routes and attribution_tree have one.")
    if edges < 1:
        raise InputError(f"edges={edges} was given; expected at least 1.")
    weight = result["edge_weight"].values
    layer, query, key = (result[f"edge_{name}"].values for name in ("layer", "query", "key"))
    order = np.argsort(np.abs(weight), kind="stable")[-edges:]
    largest = float(np.abs(weight).max(initial=0.0)) or 1.0
    lines = [((key[at], layer[at]), (query[at], layer[at] + 1)) for at in order]
    strength = np.abs(weight[order]) / largest
    colours = [_STREAM if query[at] == key[at] else _ATTENTION for at in order]
    width = np.sqrt(strength)  # so that those that carry a hundredth are still seen
    ax.add_collection(
        LineCollection(lines, linewidths=0.5 + _WIDEST * width, colors=colours, alpha=0.4 + 0.6 * width, zorder=2)
    )
    tree = "token_text" in result.coords
    tokens = [drawn_token(token) for token in result["token_text" if tree else "input_token"].values]
    ends = np.array(sorted({point for line in lines for point in line}), np.float64).reshape(-1, 2)
    ax.scatter(ends[:, 0], ends[:, 1], s=8, color="black", zorder=3)
    top = int(layer.max(initial=0)) + 1
    if tree:
        # What a token brings, it had in its own stream from the input on.
        since = {int(result.attrs["root"]): top} | {int(one): int(at) for one, at in zip(key, layer, strict=True)}
        ax.vlines(list(since), 0, list(since.values()), color=_STREAM, linewidth=0.8, zorder=1)
        ax.plot([result.attrs["root"]], [top], "o", color="#D55E00", markersize=8, zorder=4)
    small = "x-small" if len(tokens) > _LARGEST else "small"
    ax.set_xticks(range(len(tokens)), tokens, rotation=90, fontsize=small)
    ax.set_yticks(range(top + 1), ["input", *map(str, range(top))])
    ax.set(xlim=(-0.7, len(tokens) - 0.3), ylim=(-0.3, top + 0.3), ylabel="after layer")
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.set_title(str(result.attrs.get("outcome", "")), loc="left", fontsize="medium")
    return ax


DRAWS = {"attribution_tree": plot_graph}
