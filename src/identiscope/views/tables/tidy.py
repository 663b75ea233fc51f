"""A result as one tidy table: a row for each head, cell, token or layer, as its kind demands.

`Dataset.to_dataframe()` gives a row for each combination of *all* axes: 304,128 for the 72 heads of a small model on a
short text, if one array has singular values and another has queries. Here the axes of the kind make the rows; arrays of
fewer axes are repeated, and one with further axes is left out, or spread over columns if these axes have few names.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from identiscope.errors import InputError
from identiscope.methods.kinds import KINDS

#: An axis with at most so many names, such as types of tokens, or sizes, such as shares, becomes columns.
MOST_COLUMNS = 12
#: Positions say where, and not how much.
_PLACES = ("query", "key", "row", "column", "input", "output")


def tidy(result: xr.Dataset, *, largest: int | None = None) -> pd.DataFrame:
    """A table with a row for each head, cell, token or layer of a result; tokens are columns beside their positions.

    >>> tidy(identiscope.head_summary(trace))          # a row for each head
    >>> tidy(identiscope.effective(trace), largest=20)  # the largest cells, the largest first

    largest: only so many rows, those of the greatest size by `main_variable`. `table.attrs` holds `axes`, the `rows`
    there were, and what was `left_out`: variable → its axes.
    """
    if largest is not None and largest < 1:
        raise InputError(f"largest={largest} was given; expected at least 1, or None for all rows.")
    axes = row_axes(result)
    sizes = [result.sizes[axis] for axis in axes]
    rows = prod(sizes)
    places = np.arange(rows)
    main = main_variable(result)
    if largest is not None and main is not None and rows > largest:
        places = _largest(result[main].transpose(*axes).values, largest)
    where = dict(zip(axes, np.unravel_index(places, sizes), strict=True)) if axes else {}
    columns: dict[str, Any] = {}
    for axis in axes:
        labels = result[axis].values if axis in result.coords else np.arange(result.sizes[axis])
        columns[axis] = labels[where[axis]]
        for name, beside in result.coords.items():
            if beside.dims == (axis,) and name != axis:
                columns[str(name)] = beside.values[where[axis]]
    left_out: dict[str, tuple[str, ...]] = {}
    for name, values in result.data_vars.items():
        further = tuple(str(axis) for axis in values.dims if axis not in axes)
        if not _few_names(result, further):
            left_out[str(name)] = tuple(map(str, values.dims))
            continue
        for ending, one in _spread(values, further).items():
            picked = one.values[tuple(where[str(axis)] for axis in one.dims)]
            columns[f"{name}{ending}"] = picked if one.dims else np.full(len(places), one.values)
    table = pd.DataFrame(columns)
    table.attrs = {"axes": axes, "rows": rows, "left_out": left_out}
    return table


def row_axes(result: xr.Dataset) -> tuple[str, ...]:
    """The axes whose combinations are the rows: those of the result's kind, as far as it has them.

    A method of the kind that gives nothing on these axes, such as ranks of every row of a head, has the axes of the
    first array that it gives; and so has a result that says no kind.
    """
    if not result.data_vars:
        return ()
    kind = KINDS.get(str(result.attrs.get("kind", "")))
    if kind is not None:
        own = [set(map(str, values.dims)) for values in result.data_vars.values()]
        within = set().union(*(axes for axes in own if axes <= set(kind.axes)))
        if within:
            return tuple(axis for axis in kind.axes if axis in within)
    return tuple(map(str, next(iter(result.data_vars.values())).dims))


def main_variable(result: xr.Dataset) -> str | None:
    """What a result is about: the array of the method's own name, or else the first with numbers in every row."""
    axes = set(row_axes(result))
    numbers = {
        str(name): values.dtype.kind
        for name, values in result.data_vars.items()
        if set(values.dims) == axes and values.dtype.kind in "iuf" and name not in _PLACES
    }
    own = str(result.attrs.get("method", ""))
    # A whole number may be a position, such as that of the nearest token, which has no size.
    measured = [name for name, kind in numbers.items() if kind == "f"]
    return own if own in numbers else next(iter([*measured, *numbers]), None)


def _largest(values: np.ndarray, count: int) -> np.ndarray:
    """Places of the greatest sizes, the greatest first; of equals the first, and what is not a number last."""
    cells = np.abs(values.astype(np.float64)).ravel()
    cells = np.where(np.isnan(cells), -1.0, cells)
    least = np.partition(cells, len(cells) - count)[len(cells) - count]
    above, equal = np.flatnonzero(cells > least), np.flatnonzero(cells == least)
    chosen = np.sort(np.concatenate([above, equal[: count - len(above)]]))
    order: np.ndarray = chosen[np.argsort(-cells[chosen], kind="stable")]
    return order


def _few_names(result: xr.Dataset, axes: Sequence[str]) -> bool:
    """Whether axes can be columns: they have names or sizes, and not many. Whole numbers say places."""
    named = all(axis in result.coords and result[axis].dtype.kind in "OUf" for axis in axes)
    return named and prod(result.sizes[axis] for axis in axes) <= MOST_COLUMNS


def _spread(values: xr.DataArray, axes: Sequence[str]) -> Mapping[str, xr.DataArray]:
    """An array for each combination of names on some axes, under what is to be added to its own name."""
    parts = {"": values}
    for axis in axes:
        parts = {
            f"{ending}_{_name(label)}": one.isel({axis: place}, drop=True)
            for ending, one in parts.items()
            for place, label in enumerate(values[axis].values)
        }
    return parts


def _name(label: Any) -> str:
    return f"{label:g}" if isinstance(label, np.floating) else str(label)
