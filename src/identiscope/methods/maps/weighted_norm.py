"""Attention weighted by the length of what it moves."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from identiscope.linalg.decomposition import Moved, part_sizes


@dataclass(frozen=True, eq=False)
class WeightedNorm:
    """By head [head, query, key], and of all heads together [query, key], made when asked for, of these parts."""

    heads: Tensor
    parts: Moved

    @property
    def main(self) -> Tensor:
        """What the method is about."""
        return self.heads

    @cached_property
    def together(self) -> Tensor:
        """Of all heads."""
        return part_sizes(self.parts)

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Tensor]]:
        """By name, with their axes."""
        return {"weighted_norm": (("head", "query", "key"), self.heads), "together": (("query", "key"), self.together)}


def weighted_norm(attention: Tensor, value: Tensor, projection: Tensor) -> WeightedNorm:
    """‖α_ij·f(x_j)‖ with f(x) = (x·W_V + b_V)·H: the length of what a head moves from j to i (Kobayashi et al. 2020).

    `together` is ‖Σ_h α_ij^h·f_h(x_j)‖, of the whole layer (their eq. 5). The bias of the values is in, that of the
    output is not: it comes from no token.

    >>> attention = torch.tensor([[[0.5, 0.5]], [[1.0, 0.0]]])
    >>> value = torch.tensor([[[3.0], [0.0]], [[-1.5], [7.0]]])
    >>> weighted_norm(attention, value, torch.ones(2, 1, 1)).together
    tensor([[0., 0.]], dtype=torch.float64)
    """
    group = len(projection) // len(value)
    lengths = torch.stack(
        [(value[head // group].double() @ one.double()).norm(dim=-1) for head, one in enumerate(projection)]
    )
    parts = Moved(attention.double(), value, projection, None, (), 1.0, None)
    return WeightedNorm(attention.double() * lengths[:, None], parts)
