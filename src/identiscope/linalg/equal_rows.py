"""Which rows of a matrix are the same, up to the precision that they were computed in."""

import torch
from torch import Tensor

from identiscope.linalg.tolerance import equal_rows_tolerance


def equal_rows(points: Tensor, precision: torch.dtype) -> Tensor:
    """The number of the group of equal rows that each row of [key, channel] is of, in order of appearance.

    A row is compared with the first of each group before it.

    >>> equal_rows(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1e-9]]), torch.float32)
    tensor([0, 1, 0])
    """
    points = points.double()
    tolerance = equal_rows_tolerance(points.shape[1], precision)
    sizes = points.norm(dim=1)
    groups, firsts = torch.empty(len(points), dtype=torch.long), torch.empty(0, dtype=torch.long)
    for key, point in enumerate(points):
        apart = (points[firsts] - point).norm(dim=1)
        same = (apart <= tolerance * torch.maximum(sizes[firsts], sizes[key])).nonzero()[:, 0]
        if len(same):
            groups[key] = same[0]
        else:
            groups[key] = len(firsts)
            firsts = torch.cat([firsts, torch.tensor([key])])
    return groups
