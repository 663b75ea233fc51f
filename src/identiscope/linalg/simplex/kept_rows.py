"""Rows that keep their sum and a few linear numbers, such as what an outcome changes by to first order."""

import numpy as np
import torch
from torch import Tensor

from identiscope.linalg.devices import on_cpu
from identiscope.linalg.simplex.row_programs import PERIOD


def kept_rows(rows: Tensor, allowed: Tensor, kept: Tensor, costs: Tensor) -> Tensor:
    """Of all rows ≥ 0 with the sum of a row and its kept·row a corner of least cost·row, for rows [row, key].

    allowed [row, key]: the keys that a row may have weight on. kept [number, row, key]: the numbers of each row. A row
    whose program is lost in rounding stays as it is, which is feasible.

    >>> row, every = torch.tensor([[0.5, 0.5, 0.0]]), torch.ones(1, 3, dtype=torch.bool)
    >>> kept_rows(row, every, torch.tensor([[[0.0, 2.0, 1.0]]]), torch.tensor([[1.0, 0.0, 0.0]]))
    tensor([[0., 0., 1.]], dtype=torch.float64)
    """
    from identiscope.linalg.simplex.kept_rows_compiled import kept_corners

    own, cells, numbers, cost = (
        np.ascontiguousarray(on_cpu(part).numpy(), dtype)
        for part, dtype in ((rows, np.float64), (allowed, np.bool_), (kept, np.float64), (costs, np.float64))
    )
    corners = own.copy()
    kept_corners(own, cells, numbers, cost, PERIOD, corners)
    return torch.from_numpy(corners)
