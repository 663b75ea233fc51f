"""Orthogonal probes: directions for a Jacobian's norm that are random when few and complete when all."""

import math

import torch
from torch import Tensor


def orthogonal_probes(width: int, begin: int, end: int, *, seed: int, like: Tensor) -> Tensor:
    """Columns begin … end of a random orthogonal matrix, scaled by √width: [width, end − begin].

    The matrix is the discrete cosine transform with random signs for its rows and a random order for its
    columns. For any J, ‖J·column‖² over the columns is then a finite population with mean ‖J‖_F², of which
    the first k columns are a sample without replacement: unbiased, and exact when k reaches width.
    Columns cost nothing to make one at a time, and a later call continues where an earlier one ended.

    >>> all_of_them = orthogonal_probes(6, 0, 6, seed=0, like=torch.ones(1, dtype=torch.float64))
    >>> torch.allclose(all_of_them @ all_of_them.T, 6 * torch.eye(6, dtype=torch.float64))
    True
    """
    generator = torch.Generator().manual_seed(seed)
    signs = torch.randint(0, 2, (width,), generator=generator).double() * 2 - 1
    frequency = torch.randperm(width, generator=generator)[begin:end].double()
    place = torch.arange(width, dtype=torch.float64)
    columns = torch.cos(math.pi / width * (place[:, None] + 0.5) * frequency)
    scale = torch.full_like(frequency, math.sqrt(2.0)).masked_fill(frequency == 0, 1.0)
    return (columns * scale * signs[:, None]).to(like)
