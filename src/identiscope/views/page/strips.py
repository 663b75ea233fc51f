"""Rows of numbers over a text, as a section: what words are made of, numbers of tokens by layer, scores."""

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr

from identiscope.views.page.data import labels_of, tokens_of
from identiscope.views.page.packing import Chunk
from identiscope.views.page.shapes import Label, StripData, StripVariable


def strips(
    result: xr.Dataset, variables: Sequence[str], columns: str, words: str | None = None
) -> tuple[StripData, Mapping[str, bytes]]:
    """Variables of the same axes: `columns` over the text, one strip for each of `words`; another axis has the rows."""
    axes = [str(axis) for axis in result[variables[0]].dims]
    row = next((axis for axis in axes if axis not in (columns, words)), None)
    order = [axis for axis in (words, row, columns) if axis is not None]
    rows: list[Label] = [str(result.attrs.get("outcome", ""))] if row is None else labels_of(result, row)
    chunk = Chunk()
    described: list[StripVariable] = []
    for name in variables:
        error = result.get(f"{name}_error")
        known = error is not None and set(error.dims) == set(axes) and bool((error.values > 0).any())
        described.append(
            {
                "name": name,
                "values": chunk.numbers(result[name].transpose(*order).values),
                "error": chunk.numbers(error.transpose(*order).values) if known and error is not None else None,
            }
        )
    data: StripData = {
        "axes": [axis for axis in (row or "outcome", columns, words) if axis is not None],
        "rows": rows,
        "columns": tokens_of(result, columns),
        "words": None if words is None else tokens_of(result, words),
        "chunk": "values",
        "variables": described,
        "note": "estimated" if result.attrs.get("mode") == "estimate" else "",
    }
    return data, {"values": chunk.compressed()}


def is_drawable(values: xr.DataArray) -> bool:
    """Whether there is a number to draw, and no infinity, which no colour stands for."""
    if values.dtype.kind not in "biuf" or not values.size:
        return False
    numbers = np.asarray(values.values, dtype=np.float64)
    return not bool(np.isinf(numbers).any() or np.isnan(numbers).all())
