"""How far methods agree, in a terminal."""

import numpy as np
import xarray as xr

from identiscope.views.tables.terminal import console, print_table
from identiscope.views.tables.tidy import tidy

_MEASURES = ("pearson", "spearman", "total_variation")


def print_comparison(result: xr.Dataset, most: int) -> None:
    """Of pairs of methods the mean and the least agreement, and where that is; of statistics the `most` that agree."""
    if "pair" in result.dims:
        _print_pairs(result)
    else:
        _print_statistics(result, most)


def _print_pairs(result: xr.Dataset) -> None:
    slices = [str(axis) for axis in result["pearson"].dims if axis != "pair"]
    columns = {"methods": "left"} | {name.replace("_", " "): "right" for name in _MEASURES}
    columns |= {f"least alike at {'.'.join(slices)}": "right"} if slices else {}
    rows = []
    for place, pair in enumerate(result["pair"].values):
        cells = [_in_short(result[name].values[place], name, bool(slices)) for name in _MEASURES]
        rows.append([str(pair), *cells, *([_where_least(result, place, slices)] if slices else [])])
    title = "How far methods agree"
    if slices:
        title += f": the mean over every {' and '.join(slices)} (and where they agree least)"
    print_table(title, columns, rows, console())


def _in_short(values: np.ndarray, measure: str, several: bool) -> str:
    """The mean, and what is worst."""
    known = values[~np.isnan(values)]
    if not known.size:
        return "–"
    worst = known.max() if measure == "total_variation" else known.min()
    return f"{known.mean():.3f} ({worst:.3f})" if several else f"{known.mean():.3f}"


def _where_least(result: xr.Dataset, place: int, slices: list[str]) -> str:
    values = result["spearman"].values[place]
    if np.isnan(values).all():
        return "–"
    least = np.unravel_index(np.nanargmin(values), values.shape)
    return ".".join(str(result[axis].values[one]) for axis, one in zip(slices, least, strict=True))


def _print_statistics(result: xr.Dataset, most: int) -> None:
    table = tidy(result)
    order = {name: place for place, name in enumerate(result["statistic"].values)}
    # Each pair once, and none with itself; those of two methods alone.
    apart = [
        order[one] < order[other] and one.partition(".")[0] != other.partition(".")[0]
        for one, other in zip(table["statistic"], table["other"], strict=True)
    ]
    pairs = table[apart]
    shown = pairs.reindex(pairs["spearman"].abs().sort_values(ascending=False, kind="stable").index)[:most]
    screen = console()
    print_table(
        f"How far statistics of different methods agree: the {len(shown)} closest of {len(pairs)} pairs",
        {"statistic": "left", "other": "left", "pearson": "right", "spearman": "right"},
        shown[["statistic", "other", "pearson", "spearman"]].to_numpy(dtype=object).tolist(),
        screen,
    )
    if len(shown) < len(pairs):
        screen.print("all pairs are in --json and --out", markup=False, style="dim")
