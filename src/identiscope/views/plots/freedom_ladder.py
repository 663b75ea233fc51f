"""The ladder of freedom, layer by layer: one line for each rung."""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

#: Wong's palette: told apart by colour-blind readers, and by their marks.
COLOURS = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7")
MARKS = "osD^v*P"


def plot_freedom_ladder(result: xr.Dataset, ax: Axes) -> Axes:
    """How far attention may go in each layer: with the same head output, nearly the same, and the same prediction."""
    lines = [("same head output", result["merged_exact_width"].values)]
    for place, epsilon in enumerate(result["epsilon"].values):
        lines.append((f"head output within {float(epsilon):g}", result["merged_epsilon_width"].values[:, place]))
    if "reach" in result:
        for place, criterion in enumerate(result["criterion"].values):
            name = str(criterion) if str(criterion) == "same choice" else f"within {criterion}"
            lines.append((f"prediction: {name}", result["merged_reach_within"].values[:, place]))
    return draw_lines(ax, result["layer"].values, lines, "how far attention can move")


def draw_lines(ax: Axes, layers: np.ndarray, lines: list[tuple[str, np.ndarray]], label: str) -> Axes:
    """Lines over layers, with a legend beside them."""
    for place, (name, values) in enumerate(lines):
        style: dict[str, Any] = {"color": COLOURS[place % len(COLOURS)], "marker": MARKS[place % len(MARKS)]}
        ax.plot(range(len(layers)), values, label=name, markersize=4, linewidth=1.2, **style)
    every = max(1, len(layers) // 12)
    ax.set_xticks(range(0, len(layers), every), [str(layer) for layer in layers[::every]])
    ax.set(xlabel="layer", ylabel=label, ylim=(0, None))
    ax.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
    return ax


def draw_load(result: xr.Dataset, ax: Axes) -> Axes:
    """The weights that matter most: what each is, what it may be to first order, and the least with which the outcome
    was seen to stay."""
    weight, least, most, held = (
        result[name].values for name in ("merged_weight", "merged_lower", "merged_upper", "held_lower")
    )
    places = np.arange(len(weight))
    ax.vlines(places, least, most, color=COLOURS[2], linewidth=4, label="may be, to first order")
    ax.plot(places, weight, linestyle="", marker="o", color=COLOURS[0], markersize=5, label="weight")
    ax.plot(places, held, linestyle="", marker="_", color=COLOURS[5], markersize=12, markeredgewidth=2,
            label="least that held when run")  # fmt: skip
    names = ("layer_of_cell", "head_of_cell", "query", "key")
    labels = [
        "{}.{}: {}→{}".format(*(int(result[name][place]) for name in names)) for place in range(len(weight))
    ]  # fmt: skip
    ax.set_xticks(places, labels, rotation=60, ha="right", fontsize="small")
    ax.set(xlabel="layer.head: query→key", ylabel="weight of a token in its row", ylim=(-0.02, 1.05))
    ax.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
    return ax


DRAWS = {"freedom_ladder": plot_freedom_ladder}
