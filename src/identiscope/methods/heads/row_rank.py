"""Rank and null space of each row of attention over its own allowed keys."""

from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.linalg.allowed import Allowed, describe_allowed
from identiscope.linalg.rank.coordinates import coordinates
from identiscope.linalg.rank.projection_factor import ProjectionFactor
from identiscope.linalg.rank.row_projection import project_rows
from identiscope.methods.maps.effective import as_factor


@dataclass(frozen=True)
class RowRank:
    """Each [head, query]: rank of the row's T and [T,1], dimensions of their left null spaces; bounds [query]."""

    rank: Tensor
    simplex_rank: Tensor
    null_dimension: Tensor
    simplex_null_dimension: Tensor
    null_dimension_bound: Tensor
    simplex_null_dimension_bound: Tensor

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Tensor]]:
        """By name, with their axes."""
        by_row = ("rank", "simplex_rank", "null_dimension", "simplex_null_dimension")
        bounds = ("null_dimension_bound", "simplex_null_dimension_bound")
        return {name: (("head", "query"), getattr(self, name)) for name in by_row} | {
            name: (("query",), getattr(self, name)) for name in bounds
        }


def row_rank(
    value: Tensor,
    projection: Tensor | ProjectionFactor,
    queries: int | None = None,
    allowed: Allowed = "causal",
    precision: torch.dtype | None = None,
    value_bias: Tensor | None = None,
) -> RowRank:
    """Rank per row: causal row i has the null space of its prefix, empty until it has more than d_v keys.

    >>> row_rank(torch.eye(4, 2)[None], torch.eye(2, 6)[None]).null_dimension
    tensor([[0, 0, 1, 2]])
    """
    factor = as_factor(projection)
    keys = value.shape[1]
    described = describe_allowed(allowed, keys if queries is None else queries, keys, value.device)
    plain = coordinates(value, factor, precision, value_bias=value_bias)
    ones = coordinates(value, factor, precision, with_ones=True)
    ranks = []
    for points in (plain, ones):
        heads, columns = points.triangle.shape[:2]
        nothing = points.points.new_zeros(heads, described.queries, columns)
        ranks.append(project_rows(points, nothing, described).rank)
    count = described.count()
    bound = count.clamp(max=min(value.shape[2], factor.model))
    return RowRank(
        ranks[0], ranks[1], count - ranks[0], count - ranks[1], count - bound,
        (count - bound - 1).clamp(min=0),
    )  # fmt: skip
