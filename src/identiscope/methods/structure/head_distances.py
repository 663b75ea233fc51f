"""How alike heads attend: Jensen–Shannon distances between all of them, and a map of heads in two dimensions."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

#: Pairs of heads that are compared at once, times rows and keys.
_NUMBERS = 2**22


def head_distances(rows: Tensor) -> Tensor:
    """Mean over rows of the Jensen–Shannon divergence in bits between every two heads, [head, head].

    rows [head, row, key]. Clark et al. 2019, §6, add up rows where here is their mean, which does not depend on how
    long texts are.

    >>> head_distances(torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]]))
    tensor([[0., 1.],
            [1., 0.]])
    """
    entropy = -torch.special.xlogy(rows, rows).sum(-1).mean(-1)
    heads, size = len(rows), max(1, _NUMBERS // rows.numel())
    distances = torch.zeros(heads, heads, dtype=rows.dtype, device=rows.device)
    for begin in range(0, heads, size):
        middle = 0.5 * (rows[begin : begin + size, None] + rows)
        distances[begin : begin + size] = -torch.special.xlogy(middle, middle).sum(-1).mean(-1)
    bits = (distances - 0.5 * (entropy[:, None] + entropy)) / np.log(2.0)
    symmetric: Tensor = (0.5 * (bits + bits.T)).clamp(min=0).fill_diagonal_(0)
    return symmetric


def scaled_to_plane(distances: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Classical multidimensional scaling: places [head, 2], and the share of the squared distances that they show.

    >>> places, share = scaled_to_plane(np.array([[0.0, 3.0, 5.0], [3.0, 0.0, 4.0], [5.0, 4.0, 0.0]]))
    >>> round(float(np.hypot(*(places[0] - places[2]))), 6), round(share, 6)
    (5.0, 1.0)
    """
    count = len(distances)
    centre = np.eye(count) - 1 / count
    values, vectors = np.linalg.eigh(-0.5 * centre @ distances**2 @ centre)
    largest = np.clip(values[::-1][:2], 0, None)
    places = np.zeros((count, 2))
    kept = vectors[:, ::-1][:, :2]
    # A direction has no sign of its own: the largest entry is positive.
    signs = np.sign(kept[np.abs(kept).argmax(0), np.arange(kept.shape[1])])
    places[:, : kept.shape[1]] = kept * signs * np.sqrt(largest)
    total = float(np.abs(values).sum())
    return places, float(largest.sum()) / total if total > 0 else 1.0
