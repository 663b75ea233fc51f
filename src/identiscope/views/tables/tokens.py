"""Token results as tables for a terminal, and their plots as files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import xarray as xr
from rich.console import Console

from identiscope.token_text import shown_token
from identiscope.views.plots import tokens as token_plots
from identiscope.views.plots.plotting import save_figure
from identiscope.views.tables.terminal import print_table


def print_result(name: str, result: xr.Dataset, console: Console) -> None:
    """Print one result, with what was published beside it."""
    printer = _PRINTERS.get(name, _rates)
    printer(result, console)
    if "published" in result.attrs:
        console.print(
            f"published for BERT-base, whose layers the paper counts from 1: {result.attrs['published']}", markup=False
        )


def _table(title: str, columns: dict[str, str], rows: list[tuple[Any, ...]], console: Console) -> None:
    # Beside the table, since a title inside is wrapped to the table's width.
    console.print(title, style="bold", markup=False)
    print_table("", columns, rows, console)


def _percent(value: Any) -> str:
    return "–" if value != value else f"{100 * float(value):.1f}"


def _rates(result: xr.Dataset, console: Console) -> None:
    columns = {"probe": "left", "of": "left"} | {f"layer {layer}": "right" for layer in result.layer.values}
    rows: list[tuple[Any, ...]] = []
    for name in result.probe.values:
        one = result.sel(probe=name)
        rows.append((str(name), "test", *(_percent(value) for value in one.rate.values)))
        intervals = (
            f"{_percent(low)}–{_percent(high)}" for low, high in zip(one.low.values, one.high.values, strict=True)
        )
        rows.append(("", "95 %", *intervals))
        if "train_rate" in one:
            rows.append(("", "train", *(_percent(value) for value in one.train_rate.values)))
        if "ties" in one and int(one.ties.sum()):
            rows.append(("", "ties", *(str(int(value)) for value in one.ties.values)))
    _table("Token identifiability rate (%) by layer, interval over sentences", columns, rows, console)
    if "random_guess" in result:
        console.print(f"random guess: {_percent(result.random_guess.mean())} %", markup=False)


def _across(result: xr.Dataset, console: Console) -> None:
    columns = {"trained on": "right"} | {f"layer {layer}": "right" for layer in result.layer.values}
    for name in result.probe.values:
        one = result.sel(probe=name)
        rows = [
            (int(source), *(_percent(value) for value in one.rate.sel(trained_on=source).values))
            for source in one.trained_on.values
        ]
        _table(f"{name}: rate (%) on each layer of the probe trained on one", columns, rows, console)


def _along(axis: str, title: str) -> Callable[[xr.Dataset, Console], None]:
    def printer(result: xr.Dataset, console: Console) -> None:
        columns = {axis: "right"} | {f"layer {layer}": "right" for layer in result.layer.values}
        for name in result.probe.values:
            one = result.sel(probe=name)
            rows = [
                (str(value), *(_percent(rate) for rate in one.rate.sel({axis: value}).values))
                for value in one[axis].values
            ]
            _table(f"{name}: {title}", columns, rows, console)

    return printer


def _losses(result: xr.Dataset, console: Console) -> None:
    layers = {f"layer {layer}": "right" for layer in result.layer.values}
    total = int(result.position_tokens.sum())
    rows: list[tuple[Any, ...]] = [
        (str(reason), *(_percent(count / total) for count in result.taken_for.sel(reason=reason).values))
        for reason in result.reason.values
    ]
    _table(f"Lost tokens, % of {total} tested, by what they are taken for", {"": "left"} | layers, rows, console)
    for by in ("frequency", "tag", "position", "type"):
        if by not in result:
            continue
        counts = result[f"{by}_tokens"]
        order = range(len(counts)) if by in ("frequency", "position") else counts.argsort().values[::-1][:12]
        rows = [
            (
                shown_token(str(result[by].values[index])),
                int(counts[index]),
                *(_percent(1 - value / int(counts[index])) for value in result[f"{by}_identified"].values[:, index]),
            )
            for index in order
        ]
        _table(f"Lost (%) by {by}", {by: "left", "tokens": "right"} | layers, rows, console)
    if "confused" in result:
        pairs = zip(result.confusion.values, result.confused.values, strict=True)
        words = ", ".join(f"{shown_token(str(pair))} ({count})" for pair, count in list(pairs)[:10])
        console.print(f"commonest confusions at layer {result.layer.values[-1]}: {words}", markup=False)


_PRINTERS: dict[str, Callable[[xr.Dataset, Console], None]] = {
    "across-layers": _across,
    "neighbours": _along("offset", "rate (%) of the token at an offset"),
    "fractions": _along("fraction", "rate (%) by share of the training sentences"),
    "checkpoints": _along("checkpoint", "rate (%) from a layer to the one before"),
    "losses": _losses,
}


def save_plots(name: str, result: xr.Dataset, directory: Path) -> list[Path]:
    """The result's plots as PNG files."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    drawings: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {name: (token_plots.plot_token_rates, {})}
    if name == "same-layer":
        drawings["train-and-test"] = (token_plots.plot_token_rates, {"train": True})
    elif name in ("across-layers", "neighbours"):
        draw = token_plots.plot_across_layers if name == "across-layers" else token_plots.plot_neighbours
        drawings = {f"{name}-{str(one).replace(' ', '-')}": (draw, {"probe": str(one)}) for one in result.probe.values}
    elif name == "fractions":
        drawings = {name: (token_plots.plot_fractions, {})}
    elif name == "checkpoints":
        drawings = {name: (token_plots.plot_checkpoints, {})}
    elif name == "losses":
        drawings = {"losses-reasons": (token_plots.plot_reasons, {})}
        groups = (by for by in ("tag", "frequency", "position", "type") if by in result)
        for by in groups:
            least = 1 if by == "frequency" else 10
            drawings[f"losses-by-{by}"] = (token_plots.plot_losses, {"by": by, "least": least})
    paths = []
    for stem, (function, options) in drawings.items():
        figure, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
        function(result, ax, **options)
        paths.append(save_figure(figure, directory / f"{stem}.png"))
    return paths
