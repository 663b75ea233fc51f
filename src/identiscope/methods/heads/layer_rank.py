"""Null space of a whole layer: attention may move between heads, not only within one."""

from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.linalg.rank.column_space import Spectrum
from identiscope.linalg.rank.coordinates import coordinates
from identiscope.linalg.rank.projection_factor import projection_condition, projection_factor
from identiscope.linalg.rank.stacked import stacked_spectrum


@dataclass(frozen=True)
class LayerRank:
    """Spectrum of the stacked T (head·key × model) and the dimensions of its left null spaces.

    `null_dimension` counts the directions in which one query's rows of all heads may move together without
    changing the layer's output; `simplex_null_dimension` those that also keep every head's row sum. The
    `separate_*` figures are the sums over heads moving alone, and `between_heads` is what there is beyond those.
    `projection_condition` is that of the output projection, head·channel × model: infinite where it is singular, as it
    must be where it has more rows than columns. Bounds as for one head, with all heads.
    """

    spectrum: Spectrum
    simplex_spectrum: Spectrum
    null_dimension: int
    simplex_null_dimension: int
    separate_null_dimension: int
    separate_simplex_null_dimension: int
    rank_bound: int
    null_dimension_bound: int
    simplex_null_dimension_bound: int
    projection_condition: float

    @property
    def between_heads(self) -> int:
        """How many directions move attention between heads, row sums kept."""
        return max(self.simplex_null_dimension - self.separate_simplex_null_dimension, 0)

    def arrays(self) -> dict[str, tuple[tuple[str, ...], float]]:
        """By name, with their axes: each is one number for the layer."""
        names = (
            "null_dimension", "simplex_null_dimension", "separate_null_dimension", "separate_simplex_null_dimension",
            "null_dimension_bound", "simplex_null_dimension_bound", "between_heads", "projection_condition",
        )  # fmt: skip
        return {"rank": ((), int(self.spectrum.rank))} | {name: ((), getattr(self, name)) for name in names}


def layer_rank(
    value: Tensor,
    projection: Tensor,
    precision: torch.dtype | None = None,
    value_bias: Tensor | None = None,
) -> LayerRank:
    """Rank of all heads of a layer stacked: the layer adds Σ_h A_h·T_h, so [T_1; …; T_h] is what counts.

    Two heads that write to the same direction may trade attention:

    >>> found = layer_rank(torch.ones(2, 3, 1), torch.ones(2, 1, 4))
    >>> found.null_dimension, found.separate_null_dimension
    (5, 4)
    """
    factor = projection_factor(projection)
    heads, channels, model = projection.shape
    keys = value.shape[1]
    plain = coordinates(value, factor, precision, value_bias=value_bias)
    ones = coordinates(value, factor, precision, with_ones=True)
    alone, together = stacked_spectrum(plain, projection)
    alone_ones, together_ones = stacked_spectrum(ones, projection)
    width = min(keys, channels, model)
    bound = min(heads * width, model)
    return LayerRank(
        together, together_ones,
        heads * keys - int(together.rank), heads * keys - int(together_ones.rank),
        heads * keys - int(alone.sum()), heads * keys - int(alone_ones.sum()),
        bound, heads * keys - bound, max(heads * keys - bound - heads, 0), projection_condition(projection),
    )  # fmt: skip
