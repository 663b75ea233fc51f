"""Statistics of raw maps and of those that no rewriting of the model changes: both at once, and then apart."""

from collections.abc import Mapping

import torch
from torch import Tensor

from identiscope.linalg.allowed import Allowed
from identiscope.linalg.rank.projection_factor import ProjectionFactor
from identiscope.methods.maps.effective_simplex_span import simplex_map

#: What stands before the name of a statistic of the map that no rewriting changes.
OF_SIMPLEX = "simplex_"


def both_maps(
    attention: Tensor,
    value: Tensor,
    projection: Tensor | ProjectionFactor,
    allowed: Allowed = None,
    precision: torch.dtype | None = None,
    row_sum: Tensor | None = None,
) -> Tensor:
    """Raw maps and behind them their effective_simplex_span, [2·head, query, key]."""
    simplex = simplex_map(attention, value, projection, allowed, precision, row_sum)
    return torch.cat([attention.to(simplex), simplex])


def apart(numbers: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Numbers of both maps [2·head] as those of the raw ones, and of the others under other names: [head] each.

    >>> apart({"weight": torch.tensor([1.0, 2.0])})
    {'weight': tensor([1.]), 'simplex_weight': tensor([2.])}
    """
    half = {name: len(values) // 2 for name, values in numbers.items()}
    raw = {name: values[: half[name]] for name, values in numbers.items()}
    return raw | {f"{OF_SIMPLEX}{name}": values[half[name] :] for name, values in numbers.items()}
