"""Σ over keys of weight·b·bᵀ for many rows of weights at once: the curvature of every dual in this package."""

from dataclasses import dataclass

import torch
from torch import Tensor

#: Numbers of outer products that are kept (32 MB); more are formed again each time, in pieces of that size.
_KEPT_NUMBERS = 2**22


@dataclass(frozen=True)
class WeightedGram:
    """A basis [key, direction] that, called with weights [row, key], gives [row, direction, direction]."""

    basis: Tensor
    transposed: Tensor
    outer: Tensor | None

    def __call__(self, weights: Tensor) -> Tensor:
        """Σ weight·b·bᵀ as one matrix product."""
        keys, columns = self.basis.shape
        if self.outer is not None:
            return torch.mm(weights, self.outer).view(-1, columns, columns)
        size = max(1, _KEPT_NUMBERS // columns**2)
        total = weights.new_zeros(len(weights), columns**2)
        for begin in range(0, keys, size):
            total += weights[:, begin : begin + size] @ _outer(self.basis[begin : begin + size])
        return total.view(-1, columns, columns)


def weighted_gram(basis: Tensor) -> WeightedGram:
    """Prepare a basis.

    >>> weighted_gram(torch.eye(2))(torch.tensor([[1.0, 3.0]]))
    tensor([[[1., 0.],
             [0., 3.]]])
    """
    keep = basis.shape[0] * basis.shape[1] ** 2 <= _KEPT_NUMBERS
    return WeightedGram(basis, basis.mT.contiguous(), _outer(basis) if keep else None)


def _outer(piece: Tensor) -> Tensor:
    return (piece[:, :, None] * piece[:, None, :]).flatten(1)
