"""Random matrices that a model can be rewritten with: well conditioned, drawn from a seed, in float64."""

import torch
from torch import Tensor

#: The largest ratio of singular values of a matrix that is drawn: rounding grows by no more than this.
CONDITION = 10.0


def orthogonal(size: int, generator: torch.Generator) -> Tensor:
    """An orthogonal matrix, uniformly: the signs that QR leaves open are drawn with the rest.

    >>> matrix = orthogonal(3, torch.Generator().manual_seed(0))
    >>> torch.allclose(matrix @ matrix.T, torch.eye(3, dtype=torch.float64))
    True
    """
    drawn = torch.randn(size, size, generator=generator, dtype=torch.float64)
    matrix, triangle = torch.linalg.qr(drawn)
    turned: Tensor = matrix * triangle.diagonal().sign()
    return turned


def orthogonal_with_mean(size: int, generator: torch.Generator) -> Tensor:
    """An orthogonal matrix that leaves the vector of ones where it is, and so every mean.

    >>> torch.allclose(orthogonal_with_mean(4, torch.Generator()).sum(0), torch.ones(4, dtype=torch.float64))
    True
    """
    if size < 2:
        return torch.ones(size, size, dtype=torch.float64)
    # A reflection that takes the first axis to the direction of ones, the turn of all other axes, and back.
    along = torch.full((size,), -(size**-0.5), dtype=torch.float64)
    along[0] += 1
    mirror = torch.eye(size, dtype=torch.float64) - 2 * torch.outer(along, along) / (along @ along)
    turn = torch.eye(size, dtype=torch.float64)
    turn[1:, 1:] = orthogonal(size - 1, generator)
    return mirror @ turn @ mirror


def invertible(count: int, size: int, generator: torch.Generator) -> Tensor:
    """Some invertible matrices [count, size, size] of condition at most `CONDITION`."""
    scales = factors((count, size), generator)
    left, right = (torch.stack([orthogonal(size, generator) for _ in range(count)]) for _ in range(2))
    return left * scales[:, None] @ right


def commuting_with_rotation(count: int, size: int, generator: torch.Generator) -> Tensor:
    """Some matrices [count, size, size] that commute with every rotary position: a turn and a scale per frequency.

    Channels i and i + size/2 are turned together (as transformers' `rotate_half` pairs them).
    """
    half = size // 2
    scale, angle = factors((count, half), generator), 2 * torch.pi * _uniform((count, half), generator)
    near, across = torch.diag_embed(scale * angle.cos()), torch.diag_embed(scale * angle.sin())
    return torch.cat([torch.cat([near, across], 2), torch.cat([-across, near], 2)], 1)


def factors(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Positive numbers, of which the largest possible is `CONDITION` times the smallest."""
    return CONDITION ** (_uniform(shape, generator) - 0.5)


def signs(size: int, generator: torch.Generator) -> Tensor:
    """Ones and minus ones."""
    return torch.randint(0, 2, (size,), generator=generator).double() * 2 - 1


def other_order(size: int, generator: torch.Generator) -> Tensor:
    """A permutation that is not the identity, where there is one."""
    order = torch.randperm(size, generator=generator)
    while size > 1 and torch.equal(order, torch.arange(size)):
        order = torch.randperm(size, generator=generator)
    return order


def _uniform(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.rand(shape, generator=generator, dtype=torch.float64)
