"""What the rows of all heads together must keep for the output of a layer to stay the same."""

import numpy as np
import torch
from torch import Tensor

from identiscope.linalg.rank.projection_factor import ProjectionFactor
from identiscope.linalg.simplex.constraints import head_constraints
from identiscope.linalg.tolerance import output_resolution


def layer_basis(
    value: Tensor, projection: Tensor, factor: ProjectionFactor, precision: torch.dtype
) -> np.ndarray | None:
    """Orthonormal basis [head·key, direction] of what a layer's output and every head's row sum see.

    value [kv_head, key, channel], projection [head, channel, model] and its factor. None where that is no less than
    what the heads' outputs, each for itself, see: then no attention can move between heads.
    """
    heads, _, model = projection.shape
    keys = value.shape[1]
    values = value.double().repeat_interleave(heads // len(value), 0)
    stacked = torch.zeros(heads, keys, model + heads, dtype=torch.float64)
    stacked[..., :model] = values @ projection.double()
    # Columns of ones as large as T is, so that neither sets the scale of the other's cutoff.
    size = float(torch.linalg.matrix_norm(stacked.flatten(0, 1), 2)) or 1.0
    for head in range(heads):
        stacked[head, :, model + head] = size / keys**0.5
    left, sizes, _ = torch.linalg.svd(stacked.flatten(0, 1), full_matrices=False)
    kept = int((sizes > output_resolution(precision) * sizes[0]).sum())
    alone = sum(head_constraints(value, factor, head, precision).basis.shape[1] for head in range(heads))
    return np.ascontiguousarray(left[:, :kept].numpy()) if kept < alone else None
