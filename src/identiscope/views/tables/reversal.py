"""What the model that reverses shows, as tables for a terminal."""

from typing import Any

import xarray as xr
from rich.console import Console

from identiscope.views.tables.terminal import print_table


def print_structure(result: xr.Dataset, console: Console) -> None:
    """What W keeps at each threshold, the threshold recommended, and what was published."""
    rows = [
        (
            f"{float(one['threshold']):g}", _percent(one["cells"]), _percent(one["empty_rows"]),
            _percent(one["antidiagonal_weight"]),
        )
        for one in (result.isel(threshold=place) for place in range(result.sizes["threshold"]))
    ]  # fmt: skip
    console.print(
        f"Structure W from {result.attrs['samples']} samples: {result.attrs['pattern']}", style="bold", markup=False
    )
    columns = dict.fromkeys(("l", "cells kept %", "rows empty %", "of W on the antidiagonal %"), "right")
    print_table("", columns, rows, console)
    console.print(f"recommended l = {result.attrs['recommended']:.3f}: {result.attrs['reason']}", markup=False)
    most = int(result["offset_share"].idxmax())
    where = "on the antidiagonal" if most == 0 else f"{abs(most)} to the {'right' if most > 0 else 'left'} of it"
    console.print(f"mean attention is strongest {where} ({_percent(result['offset_share'].max())} %)", markup=False)
    console.print(f"published: {result.attrs['published']}\n", markup=False, style="dim")


def print_damage(result: xr.Dataset, console: Console) -> None:
    """Tokens written right as each kind of noise grows."""
    columns = {"noise": "left", "of its way": "right", "Frobenius": "right", "‖·‖_S": "right", "right %": "right"}
    rows: list[tuple[Any, ...]] = []
    shares = result["share"].values
    for kind in result["noise"].values:
        for share in shares[[len(shares) // 2 - 1, -1]] if len(shares) > 2 else shares:
            one = result.sel(noise=kind, share=share)
            rows.append(
                (
                    str(kind), f"{100 * share:.0f} %", f"{float(one['size']):.2f}",
                    f"{float(one['structure_distance']):.5f}", _percent(one["accuracy"]),
                )
            )  # fmt: skip
    console.print("Tokens written right with noise on the map", style="bold", markup=False)
    print_table("", columns, rows, console)
    console.print("", markup=False)


def print_perturbations(result: xr.Dataset, console: Console) -> None:
    """Which distance predicts how much the output changes, and whether breaking the structure changes more."""
    outcomes = [str(name) for name in result["outcome"].values]
    console.print(
        f"Which distance predicts the change? Spearman's correlation over {result.attrs['sets']} sets of perturbations"
        f" of each of {result.attrs['texts']} texts",
        style="bold", markup=False,
    )  # fmt: skip
    columns = {"distance": "left"}
    for name in outcomes:
        columns |= {name: "right", f"95 % ({name})": "right"}
    rows = []
    for distance in result["distance"].values:
        row = [str(distance)]
        for name in outcomes:
            one = result.sel(distance=distance, outcome=name)
            row += [f"{float(one['correlation']):.3f}", f"{float(one['low']):.3f}–{float(one['high']):.3f}"]
        rows.append(tuple(row))
    print_table("", columns, rows, console)
    for name in outcomes:
        one = result.sel(outcome=name)
        console.print(
            f"{name}: at equal Frobenius size, breaking the structure changes {float(one['break_over_keep']):.2f} times"
            f" as much as keeping it (95 %: {float(one['break_over_keep_low']):.2f}–"
            f"{float(one['break_over_keep_high']):.2f})",
            markup=False,
        )
    if result.attrs["unchanged"]:
        console.print(f"no perturbation changed anything in: {', '.join(result.attrs['unchanged'])}", markup=False)


def _percent(value: Any) -> str:
    number = 100 * float(value)
    return "–" if number != number else f"{number:.1f}"
