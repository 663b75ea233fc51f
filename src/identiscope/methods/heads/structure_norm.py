"""A norm that weighs each cell of an attention map by how much the task depends on it."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from identiscope.errors import InputError


@dataclass(frozen=True)
class StructureNorm:
    """Norms of each map [...]: ‖·‖_S, and beside it the largest column sum, row sum, Frobenius and spectral norm.

    `kind` is "norm", or "seminorm" where `zero_weights` cells have no weight: other maps than zero then have
    ‖·‖_S = 0.
    """

    structure: Tensor
    one: Tensor
    infinity: Tensor
    frobenius: Tensor
    spectral: Tensor
    zero_weights: int
    kind: Literal["norm", "seminorm"]

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Tensor]]:
        """By name, with their axes."""
        names = ("structure", "one", "infinity", "frobenius", "spectral")
        return {f"{name}_norm": (("head",), getattr(self, name)) for name in names}


def structure_norm(attention: Tensor, *, weights: Tensor | None = None) -> StructureNorm:
    """‖A‖_S = 1/n² · Σ w_ij·|a_ij| (eq. 5 of the structure-aware draft), and the classical norms.

    `attention` [..., query, key], of any sign. For a map that is not square, n² is the number of cells.

    weights: [query, key], not negative; without them all are one.

    >>> found = structure_norm(torch.eye(4), weights=torch.full((4, 4), 0.1).fill_diagonal_(1.0))
    >>> found.structure, found.kind
    (tensor(0.2500, dtype=torch.float64), 'norm')
    """
    if attention.ndim < 2 or not attention.numel() or not attention.is_floating_point():
        raise InputError(
            f"attention of shape {list(attention.shape)} and dtype {attention.dtype} was given, expected floats"
            " [..., query, key]"
        )
    cells = attention.double()
    if not bool(torch.isfinite(cells).all()):
        raise InputError("the attention has entries that are not finite; drop padding and check the forward pass")
    given = cells.new_ones(cells.shape[-2:]) if weights is None else checked_weights(weights, cells)
    sizes = cells.abs()
    zero = int((given == 0).sum())
    return StructureNorm(
        structure=(given * sizes).mean((-2, -1)),
        one=sizes.sum(-2).amax(-1),
        infinity=sizes.sum(-1).amax(-1),
        frobenius=torch.linalg.matrix_norm(cells),
        spectral=torch.linalg.matrix_norm(cells, 2),
        zero_weights=zero,
        kind="seminorm" if zero else "norm",
    )


def structure_distance(first: Tensor, second: Tensor, weights: Tensor | None = None) -> StructureNorm:
    """‖A − B‖ in each of the norms of `structure_norm`.

    >>> structure_distance(torch.eye(4), torch.eye(4).flip(0)).frobenius
    tensor(2.8284, dtype=torch.float64)
    """
    if first.shape[-2:] != second.shape[-2:]:
        raise InputError(
            f"maps of shape {list(first.shape)} and {list(second.shape)} were given, expected the same queries and keys"
        )
    return structure_norm(first.double() - second.double(), weights=weights)


def checked_weights(weights: Tensor, cells: Tensor) -> Tensor:
    """Weights [query, key] in float64, if they fit the cells and none is negative."""
    if weights.shape != cells.shape[-2:]:
        raise InputError(f"weights of shape {list(weights.shape)} were given, expected {list(cells.shape[-2:])}")
    exact = weights.double()
    if not bool(torch.isfinite(exact).all()) or float(exact.min()) < 0:
        raise InputError(
            f"weights from {float(exact.min()):.3g} to {float(exact.max()):.3g} were given, expected finite ones that"
            " are not negative: a negative weight is no norm"
        )
    return exact
