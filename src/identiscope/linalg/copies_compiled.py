"""Sums over groups of keys, row by row. Everything here is plain loops over arrays (`compiling.py`)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from identiscope.linalg.compiling import Numbers, compiled


@compiled
def group_squares(
    raw: NDArray[Any], places: NDArray[np.int64], kept: NDArray[Any], groups: NDArray[np.int64], found: Numbers
) -> None:
    """Write to `found` [2, head, row] the squared lengths of raw − kept and of raw, added up by group.

    Rows of `kept` [head, row, key] are those of `raw` that `places` [head, row] says; `groups` [head, key] are numbers
    of groups, from 0.
    """
    heads, rows, keys = kept.shape
    count = groups.max() + 1
    null, whole = np.zeros(count), np.zeros(count)
    for head in range(heads):
        group = groups[head]
        for row in range(rows):
            null[:], whole[:] = 0.0, 0.0
            weights, left = raw[head, places[head, row]], kept[head, row]
            for key in range(keys):
                place, weight = group[key], weights[key]
                null[place] += weight - left[key]
                whole[place] += weight
            squares, total = 0.0, 0.0
            for place in range(count):
                squares += null[place] * null[place]
                total += whole[place] * whole[place]
            found[0, head, row], found[1, head, row] = squares, total


@compiled
def group_rows(values: NDArray[Any], groups: NDArray[np.int64], found: NDArray[Any]) -> None:
    """Add the rows of `values` [head, key, column] to those of `found` [head, group, column]; groups [head, key]."""
    heads, keys, _ = values.shape
    for head in range(heads):
        for key in range(keys):
            found[head, groups[head, key]] += values[head, key]


@compiled
def kept_squares(
    raw: NDArray[Any], places: NDArray[np.int64], kept: NDArray[Any], groups: NDArray[np.int64], found: Numbers
) -> None:
    """The same as `group_squares`, of `kept` [head, row, group] whose columns have been added up before."""
    heads, rows, count = kept.shape
    keys = groups.shape[1]
    whole = np.zeros(count)
    for head in range(heads):
        group = groups[head]
        for row in range(rows):
            whole[:] = 0.0
            weights, left = raw[head, places[head, row]], kept[head, row]
            for key in range(keys):
                whole[group[key]] += weights[key]
            squares, total = 0.0, 0.0
            for place in range(count):
                null = whole[place] - left[place]
                squares += null * null
                total += whole[place] * whole[place]
            found[0, head, row], found[1, head, row] = squares, total
