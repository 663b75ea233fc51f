"""Which head of one model is which of another: by what heads write, whatever their order and coordinates are."""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from torch import Tensor


def centred_grams(context: Tensor, projection: Tensor) -> Tensor:
    """Inner products of what each head writes at every two tokens, less its mean over them: [head, token·token].

    context [head, token, channel], projection [head, channel, model]. The mean is taken out since a bias of values may
    be moved between heads and the output bias; inner products are the same in all coordinates of the stream.

    >>> centred_grams(torch.tensor([[[1.0], [3.0]]]), torch.ones(1, 1, 1))
    tensor([[ 1., -1., -1.,  1.]], dtype=torch.float64)
    """
    rows, maps = context.double(), projection.double()
    rows = rows - rows.mean(1, keepdim=True)
    return (rows @ (maps @ maps.mT) @ rows.mT).flatten(1)


def cosines(one: Tensor, other: Tensor) -> Tensor:
    """Between all rows of two matrices [a, n], [b, n] → [a, b]; NaN where a row is zero.

    >>> cosines(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
    tensor([[1., 0.]])
    """
    lengths: Tensor = one.norm(dim=1)[:, None] * other.norm(dim=1)
    return one @ other.mT / lengths


def output_changes(one: Tensor, other: Tensor) -> Tensor:
    """‖o_b − o_a‖ ÷ ‖o_a‖ of what all heads write, [a, n] and [b, n] → [a, b]; NaN where o_a is zero.

    >>> output_changes(torch.tensor([[3.0, 4.0]]), torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0., 1.]])
    """
    # One head at a time: squares that are multiplied out would lose what is nearly equal.
    return torch.stack([(other - row).norm(dim=1) / row.norm() for row in one])


def row_changes(one: Tensor, other: Tensor, rows: int) -> Tensor:
    """½·Σ|a − b| of a row in the mean over rows, of all flattened maps with each other, [a, n] and [b, n] → [a, b].

    >>> row_changes(torch.tensor([[1.0, 0.0, 0.5, 0.5]]), torch.tensor([[0.0, 1.0, 0.5, 0.5]]), 2)
    tensor([[0.5000]])
    """
    return torch.stack([(other - maps).abs().sum(1) for maps in one]) / (2 * rows)


def matched(similarity: NDArray[np.float64]) -> NDArray[np.int64]:
    """For each row the column that it is matched with, so that the sum of similarities is the largest; −1 for rows
    that are left over. What is no number is like nothing.

    >>> matched(np.array([[0.9, 0.8], [0.9, 0.1]])).tolist()
    [1, 0]
    """
    rows, columns = linear_sum_assignment(np.nan_to_num(similarity, nan=-1.0), maximize=True)
    found = np.full(len(similarity), -1, np.int64)
    found[rows] = columns
    return found
