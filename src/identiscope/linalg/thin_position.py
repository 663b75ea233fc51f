"""A position bias in few numbers, where it says the same of all pairs of tokens that are as far apart."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from identiscope.linalg.tolerance import THIN_POSITION

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False, repr=False)
class ThinPosition:
    """What is added to logits: values [head, number], of the key alone or of its distance from the query.

    By distance, the number is key − query + queries − 1, so that the first is of the last query and the first key.
    """

    by: Literal["distance", "key"]
    values: Array

    def of_head(self, head: int, queries: int, keys: int) -> Array:
        """What is added to the logits of one head, [query, key] or, of keys alone, [1, key].

        >>> ThinPosition("distance", np.array([[-1.0, 0.0, 1.0]])).of_head(0, 2, 2).tolist()
        [[0.0, 1.0], [-1.0, 0.0]]
        """
        values: Array = self.values[head]
        bias: Array = values[None] if self.by == "key" else values[_distances(queries, keys)]
        return bias


def thin_position(position: Array, allowed: Array | None, heads: int, queries: int, keys: int) -> ThinPosition | None:
    """The thin form of a bias [head or 1, query or 1, key], or None if it has none; allowed [query, key], or all.

    What is added where a query may not look does not matter, nor does rounding (`THIN_POSITION`).

    >>> thin_position(np.array([[[0.0, 1.0], [-1.0, 0.0]]]), None, 1, 2, 2).values.tolist()
    [[-1.0, 0.0, 1.0]]
    >>> thin_position(np.array([[[0.0, 1.0], [-1.0, 5.0]]]), None, 1, 2, 2) is None
    True
    """
    inside = np.ones((queries, keys), dtype=bool) if allowed is None else allowed
    columns = np.broadcast_to(np.arange(keys), (queries, keys))
    cells = np.broadcast_to(position, (len(position), queries, keys))
    forms: tuple[tuple[Literal["distance", "key"], Array], ...] = (
        ("key", columns),
        ("distance", _distances(queries, keys)),
    )
    for by, places in forms:
        values = _values(cells, places, inside)
        if values is not None:
            return ThinPosition(by, np.broadcast_to(values, (heads, values.shape[1])))
    return None


def _values(cells: Array, places: Array, inside: Array) -> Array | None:
    """One number [head, place] for all cells of a place; None if cells of a place differ."""
    by_place = np.zeros((len(cells), int(places.max()) + 1))
    for values, head in zip(by_place, cells, strict=True):
        values[places[inside]] = head[inside]
        if not (np.abs(values[places] - head) <= THIN_POSITION)[inside].all():
            return None
    return by_place


def _distances(queries: int, keys: int) -> Array:
    distances: Array = np.arange(keys) - np.arange(queries)[:, None] + queries - 1
    return distances
