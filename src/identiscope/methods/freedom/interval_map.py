"""What every weight of a head may be, its output being what it is: the map of intervals."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from identiscope.linalg.allowed import Allowed
from identiscope.linalg.devices import on_cpu
from identiscope.linalg.simplex.row_bounds import RowBounds, cone_bounds, row_bounds
from identiscope.methods.equal_keys import Equal
from identiscope.methods.freedom.polytopes import HeadRows, head_rows, output_radii
from identiscope.methods.maps.factored import RawRows
from identiscope.progress import Progress

#: Rows that are asked for at once, between two words of progress.
_ROWS = 8


@dataclass(frozen=True, eq=False)
class IntervalMap:
    """Maps [query, key] of one head: the weight, the least and the most it may be, and the same of a key and its copies
    together; `freedom` [query] is dim LN([T,1]) of a row, and `copies` [key] numbers the groups of equal keys."""

    weight: Tensor
    lower: Tensor
    upper: Tensor
    merged_weight: Tensor
    merged_lower: Tensor
    merged_upper: Tensor
    freedom: Tensor
    copies: Tensor

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Tensor]]:
        """By name, with their axes."""
        maps = {
            "weight": self.weight, "lower": self.lower, "upper": self.upper, "width": self.upper - self.lower,
            "merged_weight": self.merged_weight, "merged_lower": self.merged_lower,
            "merged_upper": self.merged_upper, "merged_width": self.merged_upper - self.merged_lower,
        }  # fmt: skip
        arrays = {name: (("query", "key"), cells) for name, cells in maps.items()}
        return arrays | {"freedom": (("query",), self.freedom), "copies": (("key",), self.copies)}


def interval_map(
    value: Tensor,
    projection: Tensor,
    raw: RawRows,
    queries: int,
    allowed: Allowed = None,
    precision: torch.dtype | None = None,
    copies: Tensor | None = None,
    output_size: Tensor | None = None,
    *,
    equal: Equal = "tokens",
    epsilon: float = 0.0,
    progress: Progress | None = None,
) -> IntervalMap:
    """The least and the most that every weight of one head may be, over all rows with the same output.

    `lower`, `upper` and `width` are of each weight alone; with `merged_` of a key and its copies together, the same for
    all of them. Keys that a query may not see have zeros. `attention_intervals` gives the rows that attain a bound.

    equal: which keys are copies: those of one token (`tokens`), or those whose rows of T are equal at the precision of
    the pass (`values`). epsilon: by which share of the attention block's output the head may move it, as for
    `attention_intervals`; 0 is not at all.

    >>> from identiscope.methods.maps.factored import rows_of
    >>> attention = torch.tensor([[[0.5, 0.25, 0.25]]])
    >>> interval_map(torch.ones(1, 3, 1), torch.ones(1, 1, 1), rows_of(attention), 1).upper
    tensor([[1., 1., 1.]], dtype=torch.float64)
    """
    radii = output_radii(epsilon, output_size)
    rows = head_rows(value, projection, raw, 0, queries, allowed, precision, radii)
    groups = rows.groups(equal, copies)
    keys = value.shape[1]
    maps = np.zeros((6, queries, keys))
    freedom = np.zeros(queries, dtype=np.int64)
    for some in _together(rows, queries):
        block = on_cpu(raw(slice(some[0], some[-1] + 1))[0])
        polytopes = [rows.polytope(query, row) for query, row in zip(some, block, strict=True)]
        basis, places = polytopes[0].basis, polytopes[0].allowed
        weights = np.stack([polytope.row for polytope in polytopes])
        _, own = np.unique(groups.numpy()[places], return_inverse=True)
        if radii is None:
            bounds = partial(row_bounds, basis, weights)
        else:
            bounds = partial(cone_bounds, polytopes[0].points, weights, radii[some].numpy())
        alone = bounds()
        merged = bounds(own) if own.max() + 1 < len(own) else alone
        cells = np.ix_(np.array(some), places)
        for index, part in enumerate(_parts(alone)):
            maps[index][cells] = part
        for index, part in enumerate(_parts(merged), 3):
            maps[index][cells] = part[:, own]
        freedom[some] = polytopes[0].freedom
        if progress is not None:
            progress(some[-1] + 1, queries)
    weight, lower, upper, merged_weight, merged_lower, merged_upper = torch.from_numpy(maps)
    return IntervalMap(
        weight, lower, upper, merged_weight, merged_lower, merged_upper, torch.from_numpy(freedom), groups
    )


def _parts(bounds: RowBounds) -> tuple[np.ndarray, ...]:
    return bounds.weight, bounds.lower, bounds.upper


def _together(rows: HeadRows, queries: int) -> list[list[int]]:
    """Queries that share their keys, a few at a time; else one by one."""
    size = _ROWS if rows.common is not None else 1
    return [list(range(begin, min(begin + size, queries))) for begin in range(0, queries, size)]
