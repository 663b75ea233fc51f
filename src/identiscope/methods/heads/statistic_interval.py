"""A statistic of attention with its interval: what it is, and what it could be with the same output."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.allowed import Allowed
from identiscope.linalg.devices import on_cpu
from identiscope.linalg.simplex.polytope import RowPolytope
from identiscope.linalg.simplex.ratio import ratio_bounds
from identiscope.linalg.simplex.row_bounds import row_extremes
from identiscope.linalg.simplex.row_programs import RowPrograms
from identiscope.methods.freedom.polytopes import head_rows
from identiscope.methods.maps.factored import RawRows
from identiscope.methods.selections import Selection, cells, positions

#: Rows that are taken together.
_ROWS = 64

_ENDS = ("statistic", "lower", "upper")


@dataclass(frozen=True, eq=False)
class StatisticInterval:
    """Of each row [head, query]: the statistic, the least and the most it can be; NaN for rows that were not looked at,
    and for those in which a quotient is not defined.

    The means over rows [head] come with their standard errors, which are zero where all rows were looked at, and with
    how many rows were `meant`, how many of them were `looked_at`, and in how many of those the statistic is defined.
    """

    rows: Tensor
    meant: int
    looked_at: int

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Tensor]]:
        """By name, with their axes."""
        known = ~self.rows.isnan()
        count = known.sum(-1)
        arrays: dict[str, tuple[tuple[str, ...], Tensor]] = {}
        for name, values in zip(_ENDS, self.rows, strict=True):
            arrays[name] = (("head",), values.nanmean(-1))
            arrays[f"row_{name}"] = (("head", "query"), values)
        for name, values, many in zip(_ENDS, self.rows, count, strict=True):
            spread = (values - values.nanmean(-1, keepdim=True)).square().nansum(-1) / (many - 1).clamp(min=1)
            error = self.error_scale * (spread / many.clamp(min=1)).sqrt()
            # One row that was drawn says nothing of how far the others are from it.
            arrays[f"{name}_error"] = (("head",), error.masked_fill(many < 2, torch.nan) if self.error_scale else error)
        for name, number in (("meant", self.meant), ("looked_at", self.looked_at)):
            arrays[f"rows_{name}"] = (("head",), torch.full_like(count[0], number))
        return arrays | {"rows": (("head",), count[0])}

    @property
    def error_scale(self) -> float:
        """What is left of an error if some of all rows have been drawn: nothing if all of them were."""
        return (1 - self.looked_at / self.meant) ** 0.5 if self.meant else 0.0


def statistic_interval(
    value: Tensor,
    projection: Tensor,
    raw: RawRows,
    queries: int,
    special: Tensor,
    key_tokens: Sequence[str],
    query_tokens: Sequence[str],
    allowed: Allowed = None,
    precision: torch.dtype | None = None,
    *,
    on: Selection | Tensor = "first",
    rows: Selection | None = None,
    minus: Selection | None = None,
    over: Selection | None = None,
    sample: int | None = None,
    seed: int = 0,
) -> StatisticInterval:
    """The mean weight that queries give to some keys, and between which bounds it lies for all maps with this output.

    Any linear statistic of attention is exact in this way, since rows can be exchanged one by one: [`lower`, `upper`]
    holds for the mean over rows, and the means of these over heads or layers hold for the mean over those. With `row_`
    each is given for every query. `rows_meant` were asked for, `rows_looked_at` of them were not left out by `sample`,
    and in `rows` of these the statistic is defined: the mean is over those.

    on: the keys whose weight is added up: positions, or words with commas between them: `first` (where attention sinks
    are), `last`, `special`, `ordinary`, `punctuation`, `all`, `self`, `previous`, `next`, a position `3`, a span `3:7`,
    or words of the text, wherever they stand; in Python a weight for each cell, [query, key], may be given as well.
    rows: the queries over which the mean is taken, in the same words; all of them by default. minus: keys whose weight
    is taken off. over: keys by whose weight that of `on` is divided, as in context ÷ (context + generated); in a row
    where that can be zero, or cannot be told from it, the quotient is not defined. sample: look at so many rows only,
    drawn at random, which gives `_error`s. seed: of these.

    >>> from identiscope.methods.maps.factored import rows_of
    >>> attention, none = torch.tensor([[[0.5, 0.25, 0.25]]]), torch.zeros(3, dtype=torch.bool)
    >>> given = torch.ones(1, 3, 1), torch.ones(1, 1, 1), rows_of(attention), 1, none, "abc", "a"
    >>> [float(part[1]) for name, part in statistic_interval(*given).arrays().items() if name in ("lower", "upper")]
    [0.0, 1.0]
    """
    flags = [bool(flag) for flag in special]
    same = list(key_tokens) == list(query_tokens)
    wanted = cells(on, queries, key_tokens, flags, same)
    if minus is not None:
        wanted = wanted - cells(minus, queries, key_tokens, flags, same)
    under = None if over is None else cells(over, queries, key_tokens, flags, same)
    chosen, meant = _chosen(rows, query_tokens, flags if same else [False] * queries, sample, seed)
    every = torch.full((3, len(projection), queries), torch.nan, dtype=torch.float64)
    heads = [head_rows(value, projection, raw, head, queries, allowed, precision) for head in range(len(projection))]
    for begin in range(0, len(chosen), _ROWS):
        some = chosen[begin : begin + _ROWS]
        weights = on_cpu(torch.cat([raw(slice(row, row + 1)) for row in some], 1)).double()
        for head, own in enumerate(heads):
            polytopes = [own.polytope(query, row) for query, row in zip(some, weights[head], strict=True)]
            cost = (wanted if wanted.ndim == 2 else wanted[head]).cpu().numpy()[some]
            if under is None:
                ends = _linear(polytopes, cost, shared=own.common is not None)
            else:
                ends = _quotient(polytopes, cost, under.numpy()[some])
            every[:, head, some] = torch.from_numpy(ends)
    return StatisticInterval(every, meant, len(chosen))


def _chosen(
    rows: Selection | None, tokens: Sequence[str], special: Sequence[bool], sample: int | None, seed: int
) -> tuple[list[int], int]:
    """The queries that are looked at, and how many were meant."""
    chosen = list(range(len(tokens))) if rows is None else positions(rows, tokens, special)
    if sample is None:
        return chosen, len(chosen)
    if sample < 2:
        raise InputError(f"sample={sample} was given; an error bar needs at least 2 rows.")
    if sample >= len(chosen):
        return chosen, len(chosen)
    drawn = torch.randperm(len(chosen), generator=torch.Generator().manual_seed(seed))[:sample]
    return [chosen[place] for place in drawn.sort().values.tolist()], len(chosen)


def _linear(polytopes: Sequence[RowPolytope], costs: np.ndarray, *, shared: bool) -> np.ndarray:
    """Statistic and bounds [end, row]; rows that share their keys share their constraints."""
    ends = np.empty((3, len(polytopes)))
    size = len(polytopes) if shared else 1
    for begin in range(0, len(polytopes), size):
        some = slice(begin, begin + size)
        weights = np.stack([polytope.row for polytope in polytopes[some]])
        bounds = row_extremes(polytopes[begin].basis, weights, costs[some][:, polytopes[begin].allowed])
        ends[:, some] = bounds.weight, bounds.lower, bounds.upper
    return ends


def _quotient(polytopes: Sequence[RowPolytope], over: np.ndarray, under: np.ndarray) -> np.ndarray:
    """Quotient and bounds [end, row]; NaN where the denominator can be zero."""
    ends = np.full((3, len(polytopes)), np.nan)
    for place, polytope in enumerate(polytopes):
        above, below = over[place, polytope.allowed], under[place, polytope.allowed]
        bounds = ratio_bounds(RowPrograms(polytope.basis, polytope.row), above, below)
        if bounds is not None:
            now = float(above @ polytope.row) / float(below @ polytope.row)
            ends[:, place] = now, min(bounds[0], now), max(bounds[1], now)
    return ends
