"""Norms of Jacobian blocks from the tangents that make them up."""

import torch
from torch import Tensor

# Tokens whose responses are squared at a time.
FEW_TOKENS = 4
NORMS = ("frobenius", "spectral", "ones")


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """What squares of numbers of a dtype are kept in: half precision has no room for them."""
    return torch.promote_types(dtype, torch.float32)


def squared_responses(tangents: Tensor, norm: str) -> Tensor:
    """‖J·v‖², or (1ᵀJ·v)² for `ones`, of tangents [output, model, input, direction]: [output, input, direction],
    in float32 at least.

    A sum that rounding explains is zero: behind a LayerNorm of unit weight 1ᵀJ vanishes, and what is left of it
    in floating point says nothing.
    """
    precision, tangents = tangents.dtype, tangents.to(at_least_float32(tangents.dtype))
    if norm == "ones":
        total = tangents.sum(1)
        rounding = tangents.abs().sum(1) * (tangents.shape[1] * torch.finfo(precision).eps)
        return torch.where(total.abs() > rounding, total, 0.0).square()
    # A few tokens at a time, so that the squares stay near the processor.
    return torch.cat([part.square().sum(1) for part in tangents.split(FEW_TOKENS)])


def block_norms(tangents: Tensor, norm: str) -> Tensor:
    """The squared norm of each block, or of the columns of it that are given: [output, input], in float64.

    tangents [output, model, input, direction] along unit vectors. `spectral` needs all columns of a block.
    """
    if norm == "spectral":
        blocks = tangents.to(at_least_float32(tangents.dtype)).permute(0, 2, 1, 3)
        return torch.stack([torch.linalg.svdvals(row)[:, 0].double().square() for row in blocks])
    if norm == "frobenius":
        # Along the directions first, which lie together in memory.
        sizes: Tensor = torch.linalg.vector_norm(tangents, dim=3, dtype=at_least_float32(tangents.dtype))
        return sizes.double().square().sum(1)
    return squared_responses(tangents, norm).sum(-1, dtype=torch.float64)
