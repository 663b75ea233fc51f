"""Between which bounds an attention weight may lie, the output being what it is."""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.allowed import Allowed
from identiscope.linalg.rank.projection_factor import ProjectionFactor
from identiscope.linalg.simplex.polytope import RowPolytope
from identiscope.methods.equal_keys import Equal
from identiscope.methods.freedom.polytopes import HeadRows, head_rows, whole_number, whole_numbers
from identiscope.methods.maps.factored import RawRows
from identiscope.progress import Progress


@dataclass(frozen=True)
class Intervals:
    """Cells (query, key) with their weight and the least and most it can be; each field is [cell].

    `lower_row` and `upper_row` [cell, key] are attention rows with the same output that attain the bounds.
    `freedom` is dim LN([T,1]) of the cell's row: 0 means that the interval is the weight itself. `copies` is how many
    keys of the row are equal to the cell's, itself included; `merged_weight`, `merged_lower` and `merged_upper` are of
    their weights added up. Where the output may move (`gap` is given), `gap` [cell] is by how much either bound may be
    farther out at most, and `box` [cell, 4] the outer and inner bounds that boxes give, least and most of each.
    """

    query: Tensor
    key: Tensor
    weight: Tensor
    lower: Tensor
    upper: Tensor
    freedom: Tensor
    lower_row: Tensor
    upper_row: Tensor
    copies: Tensor
    merged_weight: Tensor
    merged_lower: Tensor
    merged_upper: Tensor
    gap: Tensor | None = None
    box: Tensor | None = None

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Tensor]]:
        """By name, with their axes."""
        by_cell = ["query", "key", "weight", "lower", "upper", "freedom", "copies"]
        by_cell += ["merged_weight", "merged_lower", "merged_upper"]
        by_cell += [] if self.gap is None else ["gap"]
        arrays: dict[str, tuple[tuple[str, ...], Tensor]]
        arrays = {name: (("cell",), getattr(self, name)) for name in by_cell} | {
            name: (("cell", "all_keys"), getattr(self, name)) for name in ("lower_row", "upper_row")
        }
        if self.box is not None:
            names = ("outer_lower", "outer_upper", "inner_lower", "inner_upper")
            arrays |= {name: (("cell",), column) for name, column in zip(names, self.box.T, strict=True)}
        return arrays


def intervals(
    value: Tensor,
    projection: Tensor | ProjectionFactor,
    raw: RawRows,
    queries: int | None = None,
    allowed: Allowed = None,
    precision: torch.dtype | None = None,
    *,
    head: int,
    query: int | None = None,
    keys: Sequence[int] | None = None,
    cells: Sequence[tuple[int, int]] | None = None,
    top: int | None = None,
    equal: Equal = "tokens",
    copies: Tensor | None = None,
    radii: Tensor | None = None,
    box: bool = False,
    progress: Progress | None = None,
) -> Intervals:
    """[min, max] of weights over {a ≥ 0, a·[T,1] = A·[T,1]}: two linear programs per weight, often only one.

    Which weights: those of one `query` (all its allowed keys, or `keys`), some `cells` (query, key), the
    `top` largest weights of the head, or, with none of these, the whole head. They come in the order of `keys`
    or `cells`, the largest first with `top`. Which keys are copies of each other is `equal`: of one token (`copies`
    [key] numbers these), or with the same row of T. `progress(done, total)` is called after each weight. With `radii`
    [query] the output of a row may move by so much, and the programs are over a second-order cone; `box`: give the
    bounds of boxes, too.

    >>> from identiscope.methods.maps.factored import rows_of
    >>> attention = torch.tensor([[[0.5, 0.25, 0.25]]])
    >>> found = intervals(torch.ones(1, 3, 1), torch.ones(1, 1, 1), rows_of(attention), head=0, query=0, queries=1)
    >>> found.lower.tolist(), found.upper.tolist()
    ([0.0, 0.0, 0.0], [1.0, 1.0, 1.0])
    """
    if sum(choice is not None for choice in (query, cells, top)) > 1 or (keys is not None and query is None):
        raise InputError(
            "more than one of query, cells and top were given, or keys without a query; choose one query "
            "(with keys= for some of its weights), or cells, or top, or nothing for the whole head"
        )
    rows = head_rows(value, projection, raw, head, queries, allowed, precision, radii)
    groups = rows.groups(equal, copies).numpy()
    chosen = _chosen(rows, query, keys, cells, top)
    # Row by row, since all programs of a row share their constraints; put back in order at the end.
    wanted: dict[int, list[int]] = {}
    places: dict[int, list[int]] = {}
    for place, (row, key) in enumerate(chosen):
        wanted.setdefault(row, []).append(key)
        places.setdefault(row, []).append(place)
    for row, columns in wanted.items():
        _check_allowed(rows, row, columns)
    total, done = len(chosen), 0
    parts = []
    for row, columns in wanted.items():

        def one_done() -> None:
            nonlocal done
            done += 1
            if progress is not None:
                progress(done, total)

        parts.append(_of_row(rows.polytope(row), row, columns, groups, one_done))
        if box:
            parts[-1] += (_box_of_row(rows.polytope(row), columns),)
    order = torch.tensor([place for part in places.values() for place in part]).argsort()
    fields = [torch.cat(field)[order] for field in zip(*parts, strict=True)]
    # Where the output stays, programs are exact, and there is no gap to speak of.
    return Intervals(*fields) if radii is not None else Intervals(*fields[:12])


def _chosen(
    rows: HeadRows,
    query: int | None,
    keys: Sequence[int] | None,
    cells: Sequence[tuple[int, int]] | None,
    top: int | None,
) -> list[tuple[int, int]]:
    """The cells (query, key) that were asked for, in order."""
    if cells is not None:
        return _pairs(cells)
    if top is not None:
        return _largest(rows, whole_number(top, "top", "how many of the largest weights"))
    if query is None:
        return [(row, key) for row in range(rows.allowed.queries) for key in _allowed(rows, row)]
    row = whole_number(query, "query", "one query position")
    given = _allowed(rows, row) if keys is None else whole_numbers(keys, "keys", f"key positions of query {row}")
    return [(row, key) for key in given]


def _pairs(cells: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    expected = "expected at least one pair (query, key) of whole numbers, such as [(4, 7)]"
    try:
        pairs = [(operator.index(query), operator.index(key)) for query, key in cells]
    except (TypeError, ValueError):
        raise InputError(f"cells={cells!r} was given, {expected}") from None
    if not pairs:
        raise InputError(f"no cells were given, {expected}")
    return pairs


def _check_allowed(rows: HeadRows, query: int, keys: list[int]) -> None:
    """Refuse what cannot be answered before the first linear program."""
    known = set(_allowed(rows, query))
    missing = [key for key in keys if key not in known]
    if missing:
        raise InputError(f"keys {missing} of query {query} were asked for, but that query may not look at them")


def _of_row(
    polytope: RowPolytope, query: int, columns: list[int], groups: np.ndarray, one_done: Callable[[], None]
) -> tuple[Tensor, ...]:
    position = {int(key): index for index, key in enumerate(polytope.allowed)}
    row, places = polytope.row, [position[key] for key in columns]
    single = np.eye(len(row))[places]
    highest, gaps = [], np.zeros(len(places))
    for index, cost in enumerate(single):
        row_of_most, gaps[index] = polytope.best_with_gap(-cost)
        highest.append(row_of_most)
        one_done()
    known, lowest = list(highest), []
    for index, cost in enumerate(single):
        row_of_least, gap = _least(polytope, cost, known)
        lowest.append(row_of_least)
        gaps[index] = max(gaps[index], gap)
    own = groups[polytope.allowed]
    together = np.array([own == own[place] for place in places], dtype=np.float64)
    sizes = together.sum(1)
    # A key that has no copy is its own group. Copies ask for the same twice.
    merged_highest, merged_lowest = list(highest), list(lowest)
    asked: dict[int, tuple[np.ndarray, np.ndarray, float]] = {}
    for index in np.flatnonzero(sizes > 1).tolist():
        group, cost = int(own[places[index]]), together[index]
        if group not in asked:
            most, gap_of_most = polytope.best_with_gap(-cost)
            least, gap_of_least = _least(polytope, cost, known)
            asked[group] = most, least, max(gap_of_most, gap_of_least)
        merged_highest[index], merged_lowest[index], gap = asked[group]
        gaps[index] = max(gaps[index], gap)

    def weights(costs: np.ndarray, rows: list[np.ndarray]) -> Tensor:
        return torch.from_numpy((costs * np.stack(rows)).sum(1))

    return (
        torch.full((len(places),), query),
        torch.tensor(columns, dtype=torch.long),
        torch.from_numpy(row[places]),
        weights(single, lowest),
        weights(single, highest),
        torch.full((len(places),), polytope.freedom),
        torch.stack([polytope.full(corner) for corner in lowest]),
        torch.stack([polytope.full(corner) for corner in highest]),
        torch.from_numpy(sizes).long(),
        torch.from_numpy(together @ row),
        weights(together, merged_lowest),
        weights(together, merged_highest),
        torch.from_numpy(gaps),
    )


def _box_of_row(polytope: RowPolytope, columns: list[int]) -> Tensor:
    """Outer and inner bounds of some weights by boxes, [cell, 4]."""
    bounds = [polytope.box((polytope.allowed == key).astype(np.float64)) for key in columns]
    return torch.tensor([[*outer, *inner] for outer, inner in bounds], dtype=torch.float64)


def _least(polytope: RowPolytope, cost: np.ndarray, known: list[np.ndarray]) -> tuple[np.ndarray, float]:
    """A row of least cost ≥ 0, and its gap. One of the corners that are known may do: with no weight where there is a
    cost."""
    zero = next((corner for corner in known if float(cost @ corner) == 0.0), None)
    if zero is not None:
        return zero, 0.0
    row, gap = polytope.best_with_gap(cost)
    known.append(row)
    return row, gap


def _allowed(rows: HeadRows, query: int) -> list[int]:
    keys: list[int] = rows.allowed.row(query).nonzero()[:, 0].tolist()
    return keys


def _largest(rows: HeadRows, top: int) -> list[tuple[int, int]]:
    """The cells of largest raw weight of a head, largest first."""
    count = int(rows.allowed.count().sum())
    if not 1 <= top <= count:
        raise InputError(f"the top {top} weights were asked for, expected between 1 and {count}")
    cells = []
    for query in range(rows.allowed.queries):
        keys, row = _allowed(rows, query), rows.row(query)
        cells += sorted(((float(row[key]), query, key) for key in keys), key=lambda cell: -cell[0])[:top]
    return [(query, key) for _, query, key in sorted(cells, key=lambda cell: -cell[0])[:top]]
