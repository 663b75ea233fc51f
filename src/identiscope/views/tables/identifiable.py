"""A comparison of attentions as tables for a terminal, and its plots as files."""

from pathlib import Path

import numpy as np
import xarray as xr
from rich.console import Console

from identiscope.views.plots.identifiable import plot_comparison
from identiscope.views.plots.plotting import save_figure
from identiscope.views.tables.terminal import print_table

#: file name → what is drawn
PICTURES = {
    "accuracy": "accuracy",
    "difference": "difference",
    "null-space-by-length": "simplex_null_dimension",
    "realisable-by-length": "realisable_dimension",
    "identifiable-by-length": "identifiable",
}


def print_comparison(result: xr.Dataset, console: Console) -> None:
    """Accuracy, null spaces at some lengths, and the verdict with its criterion."""
    seeds, margin = result.sizes["seed"], 100 * float(result.attrs["margin"])
    first = str(result["variant"].values[0])
    console.print(
        f"{result.attrs['texts']} texts, {result.attrs['test_texts']} to test, labels"
        f" {', '.join(result.attrs['labels'][:12])}; {seeds} seeds",
        markup=False,
    )
    rows = []
    for place, name in enumerate(result["variant"].values):
        one = result.isel(variant=place)
        config = result.attrs["configs"][str(name)]
        key, value = widths(config)
        rows.append(
            (
                str(name), str(key), str(value), str(int(one["attention_parameters"])),
                _percent(one["accuracy_mean"]), f"{_percent(one['accuracy_low'])}–{_percent(one['accuracy_high'])}",
                "–" if not place else _signed(one["difference"]),
                "–" if not place else f"{_signed(one['difference_low'])} … {_signed(one['difference_high'])}",
                str(one["answer"].item()),
            )
        )  # fmt: skip
    columns = {
        "attention": "left", "d_k": "right", "d_v": "right", "its weights": "right", "accuracy": "right",
        "95 % (seeds)": "right", "difference": "right", "95 % (seeds and texts)": "right", "": "left",
    }  # fmt: skip
    console.print("\nAccuracy (%) and its difference to the first (points)", style="bold", markup=False)
    print_table("", columns, rows, console)
    lengths = _some(result["length"].values)
    for values, title in (
        ("simplex_null_dimension", "Dimension of a row's null space LN([T,1]) by length of the text, mean over heads"),
        ("layer_simplex_null_dimension", "The same for one query's rows of all heads, which may also trade attention"),
        ("realisable_dimension", "Dimension of the maps with the same output that d_k channels can produce (counted)"),
    ):
        chosen = result[values].mean("seed").sel(length=lengths)
        table = [
            (str(name), *(f"{value:.1f}" for value in chosen.sel(variant=name).values))
            for name in result["variant"].values
        ]
        console.print(f"\n{title}", style="bold", markup=False)
        print_table("", {"attention": "left"} | {f"n={length}": "right" for length in lengths}, table, console)
    unsure = float(result["uncertain"].max())
    if unsure > 0:
        console.print(f"up to {unsure:.0%} of the ranks of one length have no clear gap in the spectrum", markup=False)
    console.print("\nMore identifiable, equally accurate?", style="bold", markup=False)
    for place, name in enumerate(result["variant"].values):
        if place:
            one = result.isel(variant=place)
            gain, answer = str(one["more_identifiable"].item()), str(one["answer"].item())
            console.print(
                f"{name}: {one['claim'].item()} (more identifiable: {gain}; accuracy: {answer})", markup=False
            )
    console.print(
        f"Criterion: more identifiable is a smaller mean dimension at every length where that of {first} is not zero;"
        f" equally accurate is a 95 % interval of the difference, over seeds and test texts, within ±{margin:g} points."
        " Undecided is no proof of equality.",
        markup=False,
        style="dim",
    )


def widths(config: dict[str, object]) -> tuple[int, int]:
    """d_k and d_v of a configuration as it was saved."""
    width, heads = int(str(config["width"])), int(str(config["heads"]))
    usual = width if config["combine"] == "add" else width // heads
    key, value = config["key_width"], config["value_width"]
    return int(str(width // heads if key is None else key)), int(str(usual if value is None else value))


def save_comparison_plots(result: xr.Dataset, directory: Path) -> list[Path]:
    """Every plot of a comparison as a PNG file."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    paths = []
    for stem, values in PICTURES.items():
        figure, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
        plot_comparison(result, ax, values=values)
        paths.append(save_figure(figure, directory / f"{stem}.png"))
    return paths


def _some(lengths: np.ndarray, most: int = 9) -> list[int]:
    places = np.unique(np.linspace(0, len(lengths) - 1, most).round().astype(int))
    return [int(lengths[place]) for place in places]


def _percent(value: object) -> str:
    number = 100 * float(value)  # type: ignore[arg-type]
    return "–" if number != number else f"{number:.1f}"


def _signed(value: object) -> str:
    number = 100 * float(value)  # type: ignore[arg-type]
    return "–" if number != number else f"{number:+.1f}"
