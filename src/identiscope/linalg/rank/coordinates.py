"""The rows of T, or of [T,1], in as few columns as they need: what every projection works on."""

from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.rank.projection_factor import ProjectionFactor
from identiscope.linalg.tolerance import GRAM_FLOOR, machine_epsilon, relative_cutoff


@dataclass(frozen=True)
class Coordinates:
    """Points X [kv_head, key, column] and triangles R [head, column, column]: T of a head is X·Rᵀ, rotated.

    With ones, X = [V, unit·1] and R has one more row and column, so X·Rᵀ has the column space of [T,1]. The
    scale of the added column does not change that space; it is set so that no rank decision hangs on units.
    `norm` [head] is the largest singular value of R, and `bias_norm` [head] is ‖R·b‖ of a value bias that was
    subtracted: its rounding stays in the values.
    """

    points: Tensor
    triangle: Tensor
    norm: Tensor
    unit: Tensor | None
    bias: Tensor | None
    bias_norm: Tensor
    channels: int
    model: int
    precision: torch.dtype

    @property
    def group(self) -> int:
        """Number of heads that share one value head."""
        return len(self.triangle) // len(self.points)

    def of_head(self, per_value_head: Tensor) -> Tensor:
        """Repeat [kv_head, …] to [head, …]."""
        return per_value_head if self.group == 1 else per_value_head.repeat_interleave(self.group, 0)

    def weighted(self, weights: Tensor) -> Tensor:
        """A·X [head, row, column] of weights [head, row, key] on the first keys: one product for a group of heads."""
        heads, rows, keys = weights.shape
        grouped = weights.reshape(len(self.points), self.group * rows, keys)
        return (grouped @ self.points[:, :keys]).view(heads, rows, -1)

    def cutoff(self, keys: int) -> float:
        """Relative cutoff of the singular values when `keys` keys are allowed."""
        return relative_cutoff(keys, self.channels, self.model, self.precision)

    def reference(self, largest: Tensor, keys: int | Tensor) -> Tensor:
        """What a cutoff of [head, …] is relative to: the largest singular value of what the model computed."""
        shape = (-1,) + (1,) * (largest.ndim - 1)
        produced = self.bias_norm.view(shape) * torch.as_tensor(keys, dtype=torch.float64).sqrt()
        return torch.maximum(largest, produced.expand_as(largest))

    def target(self, context: Tensor, row_sum: Tensor | None) -> Tensor:
        """A·X [head, query, column] from the context O = A·V and the row sums of A (None: exactly one)."""
        expected = (len(self.triangle), self.channels)
        if context.ndim != 3 or (context.shape[0], context.shape[2]) != expected:
            raise InputError(
                f"a context of shape {list(context.shape)} was given, expected [head={expected[0]}, query, "
                f"channel={expected[1]}]: attention times values, before the output projection"
            )
        context = context.double()
        if self.unit is None and self.bias is None:
            return context
        total = context.new_ones(context.shape[:2]) if row_sum is None else row_sum.double()
        if total.shape != context.shape[:2]:
            raise InputError(f"row sums of shape {list(total.shape)} were given, expected {list(context.shape[:2])}")
        if self.bias is not None:
            context = context - total[..., None] * self.of_head(self.bias)[:, None]
        if self.unit is None:
            return context
        return torch.cat([context, (total * self.of_head(self.unit)[:, None])[..., None]], -1)


def coordinates(
    value: Tensor,
    factor: ProjectionFactor,
    precision: torch.dtype | None = None,
    *,
    value_bias: Tensor | None = None,
    with_ones: bool = False,
) -> Coordinates:
    """Check V [kv_head, key, channel] against the heads' factor, and take it to float64.

    >>> from identiscope.linalg.rank.projection_factor import projection_factor
    >>> found = coordinates(torch.ones(1, 3, 2), projection_factor(torch.eye(2)[None]), with_ones=True)
    >>> found.points.shape
    torch.Size([1, 3, 3])
    """
    heads, channels = len(factor.triangle), factor.triangle.shape[-1]
    if value.ndim != 3 or value.shape[2] != channels or value.shape[1] < 1 or heads % max(len(value), 1):
        raise InputError(
            f"values of shape {list(value.shape)} were given for {heads} heads, expected [kv_head, key, "
            f"channel={channels}] with at least one key and a number of value heads that divides {heads}"
        )
    points, triangle = value.double(), factor.triangle
    # A sum is not finite if a term is not, and far cheaper than looking at each.
    if not bool(torch.isfinite(points.sum())):
        raise InputError("the values have entries that are not finite; drop padding and check the forward pass")
    precision = value.dtype if precision is None else precision
    machine_epsilon(precision)
    bias_norm, bias = triangle.new_zeros(heads), None
    if value_bias is not None:
        if value_bias.shape != (len(value), channels):
            raise InputError(
                f"a value bias of shape {list(value_bias.shape)} was given, expected "
                f"[kv_head={len(value)}, channel={channels}]"
            )
        bias = value_bias.double()
        points = points - bias[:, None]
        repeated = bias.repeat_interleave(heads // len(value), 0)
        bias_norm = (triangle @ repeated[..., None])[..., 0].norm(dim=-1)
    plain = Coordinates(points, triangle, factor.norm, None, bias, bias_norm, channels, factor.model, precision)
    return _append_ones(plain) if with_ones else plain


def _append_ones(plain: Coordinates) -> Coordinates:
    points, triangle = plain.points, plain.triangle
    heads, keys, channels = len(triangle), points.shape[1], plain.channels
    gram = points.mT @ points
    # The norm of W = V·Rᵀ from the Gram matrix; divided by sqrt(min(keys, channels)) it is at most its
    # largest singular value, so the column of ones never sets the scale of the cutoff by itself.
    squares = ((triangle @ plain.of_head(gram)) * triangle).sum((1, 2))
    # Terms that cancel, of values that the projection all but drops, leave rounding: then from W itself.
    most = plain.norm.square() * plain.of_head(gram.diagonal(dim1=1, dim2=2).sum(1))
    for head in (squares < GRAM_FLOOR * most).nonzero()[:, 0].tolist():
        squares[head] = (points[head // plain.group] @ triangle[head].mT).square().sum()
    norm = squares.sqrt()
    unit = gram.diagonal(dim1=1, dim2=2).sum(1).sqrt() / (keys * channels) ** 0.5
    unit = torch.where(unit > 0, unit, torch.ones_like(unit))
    column = norm / (keys * min(keys, channels)) ** 0.5
    column = torch.where(column > 0, column / plain.of_head(unit), torch.ones_like(column))
    points = torch.cat([points, unit[:, None, None].expand(-1, keys, 1)], -1)
    extended = triangle.new_zeros(heads, channels + 1, channels + 1)
    extended[:, :channels, :channels] = triangle
    extended[:, channels, channels] = column
    extended_norm = torch.maximum(plain.norm, column)
    return Coordinates(
        points, extended, extended_norm, unit, plain.bias, plain.bias_norm, channels, plain.model, plain.precision
    )
