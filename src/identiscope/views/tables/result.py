"""Any result as tables: its numbers where they are few, what range they have where they are many, and what it is of."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

#: Variables with more numbers than this are summed up instead of printed.
LARGEST_TABLE = 600

#: Name, columns and rows of a table.
Table = tuple[str, list[str], list[list[Any]]]


def result_tables(result: xr.Dataset) -> Iterator[Table]:
    """Variables of the same axes together; then those too large to print, and what the attributes say."""
    name = str(result.attrs.get("method", "result")).replace("_", " ")
    together: dict[tuple[str, ...], list[str]] = {}
    large: list[str] = []
    for variable, values in result.data_vars.items():
        if 0 < values.size <= LARGEST_TABLE:
            together.setdefault(tuple(map(str, values.dims)), []).append(str(variable))
        else:
            large.append(str(variable))
    for axes, variables in together.items():
        if axes:
            rows = result[variables].to_dataframe().reset_index()
            columns, cells = [str(column) for column in rows.columns], rows.to_numpy(dtype=object).tolist()
            yield f"{name} by {', '.join(axes)}", columns, cells
        else:
            yield name, ["name", "value"], [[variable, result[variable].item()] for variable in variables]
    if large:
        heading = f"{name}: what is too large to print" if together else name
        columns = ["name", "axes", "shape", "least", "median", "largest", "not a number"]
        yield heading, columns, [_summary(result, variable) for variable in large]
    # A verdict and its rule head the page.
    plain = {key: value for key, value in result.attrs.items() if isinstance(value, (str, int, float))}
    said = [[str(key), value] for key, value in plain.items() if key not in ("verdict", "rule")]
    if said:
        yield "What this is of", ["attribute", "value"], said


def _summary(result: xr.Dataset, variable: str) -> list[Any]:
    values = result[variable]
    described = [variable, ", ".join(map(str, values.dims)), " × ".join(map(str, values.shape))]
    if values.size == 0:
        return [*described, None, None, None, "empty"]
    if values.dtype.kind not in "biuf":
        return [*described, None, None, None, "text"]
    numbers = values.values.astype(np.float64).ravel()
    known = numbers[~np.isnan(numbers)]
    ranges = [float(of(known)) for of in (np.min, np.median, np.max)] if known.size else [None] * 3
    return [*described, *ranges, int(numbers.size - known.size)]


def plain_cell(value: Any) -> Any:
    """A cell in what JSON knows: what is not a number becomes null, an infinity its sign."""
    if value is None or value is pd.NaT:
        return None
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        if np.isinf(value):
            return "∞" if value > 0 else "−∞"
        return None if np.isnan(value) else float(value)
    return str(value)
