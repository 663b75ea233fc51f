"""Random attention as far from a given one as another is: what the size of a change alone does."""

import torch
from torch import Tensor

from identiscope.linalg.distances import total_variation


def random_rows(rows: Tensor, allowed: Tensor, distance: Tensor, seed: int) -> Tensor:
    """Each row [..., key] moved by a total variation [...] towards random weights on its allowed keys.

    The direction is towards random weights with the row's own sum; where these are nearer than the distance, towards
    all weight on the key that has least, which is as far as a row can go.
    """
    total = rows.sum(-1, keepdim=True)
    aim = random_aims(rows, allowed, torch.Generator().manual_seed(seed))
    least = torch.where(allowed, rows, torch.inf).argmin(-1, keepdim=True)
    corner = torch.zeros_like(rows).scatter_(-1, least, total)
    aim = torch.where((total_variation(aim, rows) < distance)[..., None], corner, aim)
    reach = total_variation(aim, rows)
    step = torch.where(reach > 0, distance / torch.where(reach > 0, reach, 1.0), 0.0).clamp(max=1.0)
    return rows + step[..., None] * (aim - rows)


def random_aims(rows: Tensor, allowed: Tensor, generator: torch.Generator) -> Tensor:
    """Random weights on the allowed keys of each row [..., key], with its sum."""
    drawn = torch.rand(rows.shape, generator=generator, dtype=torch.float64).clamp(min=1e-12).to(rows.device)
    # A power makes the weights uneven, and so far from most rows.
    drawn = torch.where(allowed, drawn**8, 0.0)
    return drawn / drawn.sum(-1, keepdim=True).clamp(min=1e-300) * rows.sum(-1, keepdim=True)
