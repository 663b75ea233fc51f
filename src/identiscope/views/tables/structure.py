"""Structure results as tables for a terminal, and their plots as files."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from rich.console import Console

from identiscope.token_text import shown_token
from identiscope.views.plots import structure as structure_plots
from identiscope.views.plots.plotting import save_figure
from identiscope.views.plots.structure import DISTANCE_NAMES
from identiscope.views.tables.terminal import print_table


def print_structure(result: xr.Dataset, console: Console, *, heads: Sequence[tuple[int, int]] = ()) -> None:
    """What was extracted from how many texts, then a row a head; for some heads also why its l is recommended."""
    options, attrs = result.attrs["options"], result.attrs
    console.print(
        f"{attrs['model']}: W of {result.sizes['layer']} layers × {result.sizes['head']} heads from"
        f" {attrs['texts']} texts; cells are averaged by {_LAYOUTS[options['layout']]}",
        markup=False,
    )
    if "representatives" in attrs:
        console.print(f"representatives: {attrs['representatives']}\n", markup=False)
    rows = [_head_row(result.isel(layer=layer, head=head)) for layer, head in np.ndindex(*_shape(result))]
    columns = {
        "layer": "right", "head": "right", "pattern": "left", "score": "right", "next best": "left",
        "l": "right", "as good from – to": "right", "separation": "right", "attention on W": "right",
    }  # fmt: skip
    console.print("Structure of each head", style="bold", markup=False)
    print_table("", columns, rows, console)
    console.print(
        "score: how far W is that pattern alone, above chance (1: nothing else). separation: share of the variance of"
        " the mean weights that the cut at l explains. attention on W: where small, W is what texts have in common, not"
        " what the head mostly does.\n",
        markup=False, style="dim",
    )  # fmt: skip
    for layer, head in heads:
        one = result.sel(layer=layer, head=head)
        console.print(
            f"Layer {layer}, head {head}: l = {float(one['recommended']):.3g} {one['reason'].item()}.\n", markup=False
        )


_LAYOUTS = {
    "absolute": "their place",
    "relative": "offset",
    "roles": "role (special tokens, sentences)",
    "aligned": "offset within a sentence and role elsewhere",
}


def _shape(result: xr.Dataset) -> tuple[int, int]:
    return result.sizes["layer"], result.sizes["head"]


def _head_row(one: xr.Dataset) -> tuple[Any, ...]:
    scores = one["pattern_score"].values
    order = np.argsort(-scores, kind="stable")
    kinds = [str(name) for name in one["kind_of_pattern"].values]
    name = str(one["pattern"].values)
    if name == "vertical":
        name += f" to {shown_token(str(one['key_token'].values[int(one['vertical_key'])]))}"
    second = f"{kinds[order[1]]} {scores[order[1]]:.2f}" if scores[order[1]] >= 0.005 else "–"
    return (
        int(one["layer"]), int(one["head"]), name, f"{scores[order[0]]:.2f}", second, f"{float(one['threshold']):.3f}",
        f"{float(one['stable_from']):.3f} – {float(one['stable_to']):.3f}", f"{float(one['separation']):.2f}",
        f"{float(one['weight_on_structure']):.0%}",
    )  # fmt: skip


def print_subspaces(result: xr.Dataset, console: Console, *, most: int = 4) -> None:
    """The shared subspace of the commonest lengths: when the hard R fills, and how evenly the soft R is used."""
    attrs = result.attrs
    left = [f"{attrs[name]} {name} ones left out" for name in ("shorter", "longer") if attrs[name]]
    if attrs["when_longer"] == "first_keys" and attrs["longer"]:
        left[-1] = f"the first {attrs['common_length']} keys taken of {attrs['longer']} longer ones"
    console.print("Shared subspace R of the texts", style="bold", markup=False)
    console.print(f"{attrs['texts']} texts used{', ' + ', '.join(left) if left else ''}", markup=False)
    order = np.argsort(-result["samples"].values, kind="stable")[:most]
    rows: list[tuple[Any, ...]] = []
    for place in order:
        one = result.isel(length=int(place))
        for layer in one["layer"].values:
            head = one.sel(layer=layer)
            filled = head["filled_at"].values
            rows.append(
                (
                    int(one["length"]), int(one["samples"]), int(layer), _range(head["dimension"].values),
                    _range(filled[filled > 0]) if (filled > 0).any() else "not yet", _range(head["mean_rank"].values),
                    f"{float(head['always'].mean()):.0%}", f"{float(head['never'].mean()):.0%}",
                    _least(head["eigenvalue"].values), _least(one["chance"].values),
                )
            )  # fmt: skip
    columns = {
        "keys": "right", "texts": "right", "layer": "right", "dim R": "right", "filled by text": "right",
        "mean rank": "right", "used by ≥ 90 %": "right", "by ≤ 10 %": "right", "least used": "right",
        "by chance": "right",
    }  # fmt: skip
    print_table("", columns, rows, console)
    console.print(
        "dim R: of the hard R, over heads. The last columns are of the soft R: shares of its directions, the share of"
        " texts that use the least used one of any head, and what that would be if the texts had nothing in common.\n",
        markup=False, style="dim",
    )  # fmt: skip


def _least(values: np.ndarray) -> str:
    return f"{float(np.nanmin(values)):.2f}"


def _range(values: np.ndarray) -> str:
    low, high = float(values.min()), float(values.max())
    return f"{low:.0f}" if round(low) == round(high) else f"{low:.0f}–{high:.0f}"


def print_effects(result: xr.Dataset, console: Console) -> None:
    """Which distance predicted the effect of perturbations, and whether breaking the structure hurt more."""
    attrs = result.attrs
    console.print(
        f"Perturbations of layer {attrs['layer']}, head {attrs['head']} ({attrs['pattern']})",
        style="bold",
        markup=False,
    )
    for outcome in result["outcome"].values:
        one = result.sel(outcome=outcome)
        rows: list[tuple[Any, ...]] = []
        for name in one["distance"].values:
            row = one.sel(distance=name)
            rows.append(
                (
                    DISTANCE_NAMES.get(str(name), str(name)), _interval(row, "correlation", "low", "high"),
                    _interval(row, "difference", "difference_low", "difference_high", sign=True),
                    _interval(row, "agreement", "agreement_low", "agreement_high"),
                    _interval(row, "correlation_any", "correlation_any_low", "correlation_any_high"),
                )
            )  # fmt: skip
        columns = {
            "distance": "left", "rank correlation": "right", "minus that of ‖·‖_S": "right",
            "right at equal size": "right", "of undirected noise alone": "right",
        }  # fmt: skip
        print_table(f"\nwith the change of {str(outcome).replace('_', ' ')}", columns, rows, console)
        console.print(
            f"Breaking the structure changes {float(one.break_over_keep):.2f} times as much as keeping it at the same"
            f" Frobenius size ({float(one.break_over_keep_low):.2f} – {float(one.break_over_keep_high):.2f});"
            f" more in {float(one.break_over_keep_share):.0%} of the pairs.",
            markup=False,
        )
    console.print(
        f"{attrs['texts']} texts × {attrs['sets']} sets of three perturbations; intervals are 95 %, over"
        " texts.\n", markup=False, style="dim",
    )  # fmt: skip


def _interval(row: xr.Dataset, name: str, low: str, high: str, sign: bool = False) -> str:
    value = float(row[name])
    if value != value:
        return "–"
    form = "+.2f" if sign else ".2f"
    return f"{value:{form}} ({float(row[low]):{form}} – {float(row[high]):{form}})"


def save_structure_plots(result: xr.Dataset, directory: Path, *, heads: list[tuple[int, int]]) -> list[Path]:
    """The patterns of all heads, the silhouettes, and mean, W and sweep of some heads, as PNG files."""
    drawings: dict[str, Callable[[Axes], Any]] = {
        "patterns": lambda ax: structure_plots.plot_structure(result, ax),
    }
    if result.sizes.get("candidate", 0) > 1:
        drawings["silhouettes"] = lambda ax: structure_plots.plot_structure(result, ax, values="silhouettes")
    for layer, head in heads:
        for values in ("mean", "structure", "sweep"):
            drawings[f"{values}-{layer}-{head}"] = _drawing(result, values, layer, head)
    return [_saved(draw, directory / f"{name}.png", wide=name == "patterns") for name, draw in drawings.items()]


def _drawing(result: xr.Dataset, values: str, layer: int, head: int) -> Callable[[Axes], Any]:
    return lambda ax: structure_plots.plot_structure(result, ax, values=values, layer=layer, head=head)


def save_subspace_plots(result: xr.Dataset, directory: Path) -> list[Path]:
    """The shared directions of the commonest length, as a PNG file."""
    return [_saved(lambda ax: structure_plots.plot_shared_subspaces(result, ax), directory / "subspaces.png")]


def save_effect_plots(result: xr.Dataset, directory: Path) -> list[Path]:
    """Correlations, agreement at equal size, and effects against two distances, as PNG files."""
    place = f"{result.attrs['layer']}-{result.attrs['head']}"
    drawings: dict[str, Callable[[Axes], Any]] = {
        "effects": lambda ax: structure_plots.plot_perturbation_effects(result, ax),
        "equal-size": lambda ax: structure_plots.plot_perturbation_effects(result, ax, values="agreement"),
        "by-structure": lambda ax: structure_plots.plot_effect_by_distance(result, ax),
        "by-effective": lambda ax: structure_plots.plot_effect_by_distance(result, ax, distance="effective"),
    }
    return [_saved(draw, directory / f"{name}-{place}.png") for name, draw in drawings.items()]


def _saved(draw: Callable[[Axes], Any], path: Path, wide: bool = False) -> Path:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(9.5, 4.8) if wide else (7, 5), layout="constrained")
    draw(ax)
    return save_figure(figure, path)
