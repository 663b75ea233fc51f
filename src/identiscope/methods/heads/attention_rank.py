"""Rank of T and dimension of its null space: how many attention maps give a head the same output."""

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.linalg.rank.column_space import Spectrum, column_space
from identiscope.linalg.rank.coordinates import coordinates
from identiscope.linalg.rank.projection_factor import ProjectionFactor
from identiscope.linalg.tolerance import CLEAR_GAP
from identiscope.methods.maps.effective import as_factor


@dataclass(frozen=True)
class AttentionRank:
    """Per head: the spectrum of T and of [T,1], the dimensions of their left null spaces, and the bounds.

    `null_dimension` is dim LN(T) = n − rank(T) (eq. 6), `simplex_null_dimension` is dim LN([T,1]) (§3.3).
    The bounds hold for any weights and text: rank(T) ≤ `rank_bound` (eq. 3), and the two dimensions are at
    least `null_dimension_bound` and `simplex_null_dimension_bound`.
    """

    spectrum: Spectrum
    simplex_spectrum: Spectrum
    null_dimension: Tensor
    simplex_null_dimension: Tensor
    rank_bound: int
    null_dimension_bound: int
    simplex_null_dimension_bound: int

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Tensor]]:
        """By name, with their axes."""
        return {
            "rank": (("head",), self.spectrum.rank),
            "null_dimension": (("head",), self.null_dimension),
            "simplex_null_dimension": (("head",), self.simplex_null_dimension),
            "singular_values": (("head", "channel"), self.spectrum.singular_values),
            "cutoff": (("head",), self.spectrum.cutoff),
            "gap": (("head",), self.spectrum.gap),
            "rank_is_uncertain": (("head",), self.spectrum.uncertain),
        }


def attention_rank(
    value: Tensor,
    projection: Tensor | ProjectionFactor,
    precision: torch.dtype | None = None,
    value_bias: Tensor | None = None,
    layer: int | None = None,
    heads: Sequence[int] | None = None,
) -> AttentionRank:
    """Rank and null space of every head over all keys, in float64, with the cutoff of the pass's precision.

    `value` [kv_head, key, channel], `projection` [head, channel, model]. Warns where there is no gap
    in the spectrum at the cutoff, so that the rank is a matter of convention; `layer` and `heads` are the numbers
    that the warning calls them by.

    >>> found = attention_rank(torch.eye(4, 2)[None], torch.eye(2, 6)[None])
    >>> found.spectrum.rank, found.null_dimension, found.simplex_null_dimension
    (tensor([2]), tensor([2]), tensor([1]))
    """
    factor = as_factor(projection)
    keys, bound = value.shape[1], min(value.shape[1], value.shape[2], factor.model)
    plain = column_space(coordinates(value, factor, precision, value_bias=value_bias)).spectrum
    ones = column_space(coordinates(value, factor, precision, with_ones=True)).spectrum
    warn_of_uncertain(plain, layer, heads)
    return AttentionRank(
        plain, ones, keys - plain.rank, keys - ones.rank, bound, keys - bound, max(keys - bound - 1, 0)
    )


def warn_of_uncertain(spectrum: Spectrum, layer: int | None, heads: Sequence[int] | None) -> None:
    """Warn where there is no gap at the cutoff; `layer` and `heads` are what the heads of the spectrum are called."""
    unsure = spectrum.uncertain.nonzero()[:, 0].tolist()
    if unsure:
        named = unsure if heads is None else [heads[place] for place in unsure]
        warnings.warn(
            f"the rank of heads {named}{'' if layer is None else f' of layer {layer}'} is uncertain: their singular "
            f"values have no gap at the cutoff (`gap` is below {CLEAR_GAP:g}); compare `singular_values` with `cutoff` "
            "before relying on a dimension",
            stacklevel=_level_outside(),
        )


def _level_outside() -> int:
    """How many frames above its caller the first one outside identiscope is: a warning is shown with that line."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "identiscope":
        level, frame = level + 1, frame.f_back
    return level
