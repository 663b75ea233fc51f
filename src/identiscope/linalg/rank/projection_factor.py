"""The output projection of each head, reduced once per model to the small triangle that matters."""

from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.tolerance import machine_epsilon


@dataclass(frozen=True)
class ProjectionFactor:
    """R_H of the thin QR Hᵀ = Q_H·R_H: T = V·H has the singular values and column space of V·R_Hᵀ.

    `triangle` is [head, channel, channel] in float64; rows beyond the model width, if any, are zero. `norm`
    [head] is its largest singular value.
    """

    triangle: Tensor
    norm: Tensor
    model: int

    def to(self, device: torch.device) -> "ProjectionFactor":
        """The same on a device."""
        return ProjectionFactor(self.triangle.to(device), self.norm.to(device), self.model)

    def of_head(self, head: int) -> "ProjectionFactor":
        """The factor of one head alone."""
        return ProjectionFactor(self.triangle[head : head + 1], self.norm[head : head + 1], self.model)


def projection_condition(projection: Tensor) -> float:
    """Condition number of the output projection [head, channel, model] as a matrix of head·channel rows.

    Infinite where it is singular, as it must be where it has more rows than columns.

    >>> projection_condition(torch.tensor([[[1.0, 0.0]], [[0.0, 4.0]]])), projection_condition(torch.ones(2, 2, 3))
    (4.0, inf)
    """
    heads, channels, model = projection.shape
    sizes = torch.linalg.svdvals(projection.double().flatten(0, 1))
    # What is left of a direction by the rounding of float64 is none.
    rounding = max(heads * channels, model) * machine_epsilon(torch.float64)
    if len(sizes) < heads * channels or float(sizes[-1]) <= rounding * float(sizes[0]):
        return float("inf")
    return float(sizes[0] / sizes[-1])


def projection_factor(projection: Tensor) -> ProjectionFactor:
    """Reduce H [head, channel, model]; needed once per model, whatever the number of texts.

    >>> factor = projection_factor(torch.eye(2, 5).expand(3, 2, 5))
    >>> factor.triangle.shape, factor.model
    (torch.Size([3, 2, 2]), 5)
    """
    if projection.ndim != 3:
        raise InputError(
            f"an output projection of shape {list(projection.shape)} was given, expected "
            "[head, channel, model]: one slice of the projection per head"
        )
    wide = projection.double()
    # A sum is not finite if a term is not, and far cheaper than looking at each.
    if not bool(torch.isfinite(wide.sum())):
        raise InputError("the output projection has entries that are not finite; check the weights")
    _, channels, model = projection.shape
    triangle = torch.linalg.qr(wide.mT, mode="r").R
    if model < channels:
        padding = triangle.new_zeros(len(triangle), channels - model, channels)
        triangle = torch.cat([triangle, padding], 1)
    return ProjectionFactor(triangle, torch.linalg.matrix_norm(triangle, 2), model)
