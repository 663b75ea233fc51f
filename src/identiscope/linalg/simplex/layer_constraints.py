"""What the rows of all heads together must keep for the output of a layer to stay the same."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from identiscope.linalg.rank.projection_factor import ProjectionFactor
from identiscope.linalg.simplex.constraints import head_constraints
from identiscope.linalg.tolerance import output_resolution


@dataclass(frozen=True, eq=False)
class LayerConstraints:
    """Orthonormal basis [head·key, direction] of what a layer sees, and the dimension of what its heads alone see."""

    basis: np.ndarray
    alone: int

    @property
    def between_heads(self) -> int:
        """In how many directions attention can move between heads: by so much less is seen of them together."""
        return max(self.alone - int(self.basis.shape[1]), 0)


def layer_constraints(
    value: Tensor, projection: Tensor, factor: ProjectionFactor, precision: torch.dtype
) -> LayerConstraints:
    """What a layer's output and every head's row sum see of the rows of its heads, and what each head by itself does.

    value [kv_head, key, channel], projection [head, channel, model] and its factor.
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
    return LayerConstraints(np.ascontiguousarray(left[:, :kept].numpy()), alone)
