"""Subspaces given by orthonormal columns: their restriction to some coordinates, and what two do not share."""

import torch
from torch import Tensor

from identiscope.linalg.tolerance import machine_epsilon

#: Below this cosine two directions are orthogonal: bases that come from a float32 pass are known to about as much.
ORTHOGONAL = 64 * machine_epsilon(torch.float32)


def restricted(basis: Tensor, inside: Tensor) -> Tensor:
    """An orthonormal basis of what is left of a subspace on the coordinates `inside` [key]: [key inside, direction].

    >>> restricted(torch.eye(3, 2), torch.tensor([True, False, False])).shape
    torch.Size([1, 1])
    """
    left, values, _ = torch.linalg.svd(basis[inside].double(), full_matrices=False)
    # The columns were orthonormal before the restriction, so rounding is on the scale of one.
    kept: Tensor = left[:, values > max(basis.shape) * machine_epsilon(torch.float64)]
    return kept


def orthogonal_part(basis: Tensor, other: Tensor) -> Tensor:
    """Orthonormal columns that span the directions of one subspace that are orthogonal to all of another.

    `other` may have columns of zeros.

    >>> orthogonal_part(torch.eye(3), torch.eye(3, 1)).shape
    torch.Size([3, 2])
    """
    _, cosines, turned = torch.linalg.svd(other.mT @ basis, full_matrices=True)
    part: Tensor = basis @ turned[int((cosines > ORTHOGONAL).sum()) :].mT
    return part


def reaches(eigenvalues: Tensor, cut: float) -> Tensor:
    """Whether eigenvalues of a mean of projectors are at least `cut`, one that rounding left just below included."""
    return eigenvalues >= cut - eigenvalues.shape[-1] * machine_epsilon(torch.float64)
