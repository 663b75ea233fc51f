"""The same output from few keys: rows over no more keys than T has dimensions, and keys that no row needs."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from identiscope.linalg.allowed import Allowed
from identiscope.linalg.simplex.polytope import RowPolytope, worst_certificate
from identiscope.methods.freedom.polytopes import head_rows
from identiscope.methods.maps.factored import RawRows
from identiscope.progress import Progress

#: How much a sum of shares other than one weighs beside the distance, where the nearest point is sought.
_SUM = 1e3


@dataclass(frozen=True, eq=False)
class FewKeys:
    """A map [query, key] with the same output, and how many keys each row has in it [query]; `most` [query] is the
    number that always suffices. `common` is a map of which all rows have weight only on the keys that are `kept` [key];
    `dropping_bound` [key] is 0 for these."""

    few: Tensor
    common: Tensor
    count: Tensor
    raw_count: Tensor
    most: Tensor
    kept: Tensor
    dropping_bound: Tensor
    facts: dict[str, Any]

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Tensor]]:
        """By name, with their axes."""
        return {
            "few": (("query", "key"), self.few),
            "common": (("query", "key"), self.common),
            "count": (("query",), self.count),
            "raw_count": (("query",), self.raw_count),
            "most": (("query",), self.most),
            "kept": (("key",), self.kept),
            "dropping_bound": (("key",), self.dropping_bound),
        }


def few_keys(
    value: Tensor,
    projection: Tensor,
    raw: RawRows,
    queries: int,
    allowed: Allowed = None,
    precision: torch.dtype | None = None,
    *,
    progress: Progress | None = None,
) -> FewKeys:
    """Attention over few keys with identical output, and keys that no row of the text needs.

    `few` [query, key] has rows over at most rank([T,1]) keys (Carathéodory; `most`), `count` of them: an upper bound of
    the fewest, which are hard to find; `raw_count` is how many had a weight. `common` has all its rows on the same few
    keys, `kept` [key]: the others were dropped one by one, the least looked at first, as long as every row could go
    without. Another order may keep fewer. All this is certified for the rows of this text, by `output_error_relative`
    and its kin in the attributes.

    For later queries there is only a bound: a row that gives a dropped key j the weight w has a row over the kept keys
    whose output differs by at most w·`dropping_bound`[j], the distance of T_j from the convex hull of theirs.

    >>> from identiscope.methods.maps.factored import rows_of
    >>> found = few_keys(torch.ones(1, 3, 1), torch.ones(1, 1, 1), rows_of(torch.tensor([[[0.5, 0.25, 0.25]]])), 1)
    >>> found.few, found.kept
    (tensor([[1., 0., 0.]], dtype=torch.float64), tensor([ True, False, False]))
    """
    rows = head_rows(value, projection, raw, 0, queries, allowed, precision)
    polytopes = [rows.polytope(query) for query in range(queries)]
    keys = value.shape[1]
    # Of all corners the one that has most of the weight where it was.
    few = [polytope.best(-polytope.row) for polytope in polytopes]
    common, kept = _common(polytopes, list(few), keys, progress)
    points = rows.value[0].double().numpy() @ rows.factor.triangle[0].numpy().T
    every = [*zip(polytopes, few, strict=True), *zip(polytopes, common, strict=True)]
    return FewKeys(
        torch.stack([polytope.full(row) for polytope, row in zip(polytopes, few, strict=True)]),
        torch.stack([polytope.full(row) for polytope, row in zip(polytopes, common, strict=True)]),
        torch.tensor([int((row > 0).sum()) for row in few]),
        torch.tensor([int((polytope.row > 0).sum()) for polytope in polytopes]),
        torch.tensor([polytope.basis.shape[1] for polytope in polytopes]),
        torch.from_numpy(kept),
        torch.from_numpy(_bounds(points, kept)),
        asdict(worst_certificate([polytope.certificate(row) for polytope, row in every])),
    )


def _common(
    polytopes: list[RowPolytope], rows: list[np.ndarray], keys: int, progress: Progress | None
) -> tuple[list[np.ndarray], np.ndarray]:
    """Rows on keys that suffice for all of them, and which keys these are."""
    received, place_of = np.zeros(keys), []
    for polytope in polytopes:
        received[polytope.allowed] += polytope.row
        places = np.full(keys, -1)
        places[polytope.allowed] = np.arange(len(polytope.allowed))
        place_of.append(places)
    dropped = np.zeros(keys, dtype=bool)
    for done, key in enumerate(np.argsort(received, kind="stable"), 1):
        dropped[key] = True
        changed: dict[int, np.ndarray] = {}
        for index, (polytope, places) in enumerate(zip(polytopes, place_of, strict=True)):
            if places[key] < 0 or rows[index][places[key]] == 0:
                continue
            without = polytope.best(dropped[polytope.allowed].astype(np.float64))
            if without[dropped[polytope.allowed]].any():
                dropped[key] = False
                break
            changed[index] = without
        if dropped[key]:
            for index, row in changed.items():
                rows[index] = row
        if progress is not None:
            progress(done, keys)
    # A key that no row may see is not needed either, but was never in question.
    return rows, ~dropped


def _bounds(points: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Distance [key] of each dropped point from the convex hull of those that are kept, never too small."""
    bounds = np.zeros(len(points))
    scale = float(np.abs(points).max()) or 1.0
    hull = points[kept].T / scale
    system = np.concatenate([hull, np.full((1, hull.shape[1]), _SUM)])
    for key in np.flatnonzero(~kept):
        shares, _ = nnls(system, np.append(points[key] / scale, _SUM))
        # Whatever shares these are, made to sum to one they are a point of the hull: its distance is a bound.
        shares /= shares.sum()
        bounds[key] = scale * float(np.linalg.norm(points[key] / scale - hull @ shares))
    return bounds
