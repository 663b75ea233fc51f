"""Other attention rows with the same output: along a direction, as far as can be found, without a token."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from identiscope.errors import InputError, MathError
from identiscope.linalg.devices import on_cpu
from identiscope.linalg.distances import jensen_shannon, largest_step, total_variation
from identiscope.linalg.simplex.polytope import Certificate, RowPolytope
from identiscope.linalg.tolerance import DIRECTION_FLOOR
from identiscope.methods.freedom.polytopes import HeadRows, whole_numbers


@dataclass(frozen=True)
class Alternative:
    """An attention row [key] with the output and row sum of another, and the certificate that it is one.

    `total_variation` and `jensen_shannon` (nats) say how far it is from the raw row. `lambda_max` (§3.3) is how far
    it went along a direction whose part in the null space has length one; None where there was no direction.
    """

    query: int
    row: Tensor
    certificate: Certificate
    total_variation: float
    jensen_shannon: float
    lambda_max: float | None = None


def alternative_along(
    rows: HeadRows,
    direction: Tensor,
    *,
    query: int,
) -> Alternative:
    """The row a + λ_max·ã (§3.3), with ã the projection of `direction` [key] on LN([T,1]) of the row's keys.

    Near a one-hot row λ_max is close to zero, and so is the distance: a dimension alone says nothing there.

    >>> from identiscope.methods.freedom.polytopes import head_rows
    >>> from identiscope.methods.maps.factored import rows_of
    >>> map = rows_of(torch.tensor([[[0.75, 0.25]]]))
    >>> rows = head_rows(torch.ones(1, 2, 1), torch.ones(1, 1, 1), map, 0, 1)
    >>> alternative_along(rows, torch.tensor([1.0, 0.0]), query=0).row
    tensor([1., 0.], dtype=torch.float64)
    """
    polytope = rows.polytope(query)
    if direction.shape != (polytope.keys,):
        raise InputError(f"a direction of shape {list(direction.shape)} was given, expected [key={polytope.keys}]")
    if not bool(torch.isfinite(direction).all()):
        raise InputError("the direction has NaN or infinite entries; give a finite number for each key")
    wanted = on_cpu(direction).double().numpy()[polytope.allowed]
    # Only where it points matters; of its own size a norm may overflow.
    wanted = wanted / (np.abs(wanted).max() or 1.0)
    inward = wanted - polytope.basis @ (polytope.basis.T @ wanted)
    # Once more: the first projection leaves a rounding error relative to what was taken away.
    inward = inward - polytope.basis @ (polytope.basis.T @ inward)
    size = float(np.linalg.norm(inward))
    if polytope.freedom == 0 or size <= DIRECTION_FLOOR * float(np.linalg.norm(wanted)):
        raise MathError(
            f"the direction has no part in LN([T,1]) of query {query}, whose dimension is {polytope.freedom}; "
            "take one from null_space_basis, or a row with more allowed keys than channels plus one"
        )
    inward = inward / size
    row = torch.from_numpy(polytope.row)
    step = float(largest_step(row, torch.from_numpy(inward)))
    return _alternative(polytope, query, np.maximum(polytope.row + step * inward, 0), step)


def alternative_avoiding(
    rows: HeadRows,
    *,
    query: int,
    keys: Sequence[int],
) -> Alternative:
    """The row with the same output and the least weight on some keys together (a linear program).

    >>> from identiscope.methods.freedom.polytopes import head_rows
    >>> from identiscope.methods.maps.factored import rows_of
    >>> map = rows_of(torch.tensor([[[0.75, 0.25]]]))
    >>> alternative_avoiding(head_rows(torch.ones(1, 2, 1), torch.ones(1, 1, 1), map, 0, 1), query=0, keys=[0]).row
    tensor([0., 1.], dtype=torch.float64)
    """
    polytope = rows.polytope(query)
    return _alternative(polytope, query, polytope.best(_indicator(polytope, query, keys)))


def alternative_favouring(
    rows: HeadRows,
    *,
    query: int,
    keys: Sequence[int],
) -> Alternative:
    """The row with the same output and the most weight on some keys together (a linear program)."""
    polytope = rows.polytope(query)
    return _alternative(polytope, query, polytope.best(-_indicator(polytope, query, keys)))


def alternative_farthest(
    rows: HeadRows,
    *,
    query: int,
    measure: Literal["total_variation", "jensen_shannon"] = "total_variation",
    starts: int = 6,
    seed: int = 0,
    groups: Tensor | None = None,
) -> Alternative:
    """The farthest row with the same output that was found: its distance is a lower bound on the farthest.

    Both distances are convex, so the farthest row is a vertex, and finding it is hard in general. From several
    vertices (away from the row itself, and in `starts` random directions) the distance is replaced by its
    tangent and a linear program solved, until nothing gains: each step goes farther, none is known to be last.

    groups [key]: keys of one number count as one, their weights added up, where the distance is taken.
    """
    if measure not in ("total_variation", "jensen_shannon"):
        raise InputError(f"measure={measure!r} was given, expected 'total_variation' or 'jensen_shannon'")
    polytope = rows.polytope(query)
    row, best = polytope.row, polytope.row
    if polytope.fixed:
        return _alternative(polytope, query, row)
    together = _together(polytope, groups)
    generator = np.random.default_rng(seed)
    directions = [row, *(generator.standard_normal(len(row)) for _ in range(starts))]
    for direction in directions:
        corner, distance = row, -1.0
        cost = direction
        while True:
            new = polytope.best(cost)
            reached = _distance(measure, together(row), together(new))
            # A gain that is rounding only would let two vertices of equal distance alternate for ever.
            if reached <= distance * (1 + DIRECTION_FLOOR):
                break
            corner, distance = new, reached
            cost = -together.spread(_tangent(measure, together(row), together(corner)))
        if distance > _distance(measure, together(row), together(best)):
            best = corner
    return _alternative(polytope, query, best)


@dataclass(frozen=True, eq=False)
class _Together:
    """Weights of keys [key] added up by group, and numbers of groups given back to their keys."""

    groups: np.ndarray

    def __call__(self, row: np.ndarray) -> np.ndarray:
        return np.bincount(self.groups, weights=row)

    def spread(self, numbers: np.ndarray) -> np.ndarray:
        """The number of its group for each key."""
        each: np.ndarray = numbers[self.groups]
        return each


def _together(polytope: RowPolytope, groups: Tensor | None) -> _Together:
    own = np.arange(len(polytope.row)) if groups is None else groups.numpy()[polytope.allowed]
    return _Together(np.unique(own, return_inverse=True)[1])


def _tangent(measure: str, row: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Gradient of the distance in the second row, from the side that is open at weights of zero."""
    if measure == "total_variation":
        return np.where(other >= row, 1.0, -1.0)
    tiny = 1e-12
    gradient: np.ndarray = np.log((other + tiny) / (0.5 * (row + other) + tiny))
    return gradient


def _distance(measure: str, row: np.ndarray, other: np.ndarray) -> float:
    function = total_variation if measure == "total_variation" else jensen_shannon
    return float(function(torch.from_numpy(row), torch.from_numpy(other)))


def _indicator(polytope: RowPolytope, query: int, keys: Sequence[int]) -> np.ndarray:
    wanted = whole_numbers(keys, "keys", f"key positions of query {query}")
    chosen = np.isin(polytope.allowed, wanted)
    if chosen.sum() != len(set(wanted)):
        raise InputError(
            f"keys {wanted} of query {query} were given, expected some of its {len(polytope.allowed)} allowed keys"
        )
    return chosen.astype(float)


def _alternative(polytope: RowPolytope, query: int, row: np.ndarray, lambda_max: float | None = None) -> Alternative:
    return Alternative(
        query,
        polytope.full(row),
        polytope.certificate(row),
        _distance("total_variation", polytope.row, row),
        _distance("jensen_shannon", polytope.row, row),
        lambda_max,
    )
