"""The token-wise parts of a block, linearised at one input: what they do to tangents, and their matrices.

Tangents are [token, model, column], one column for each direction that is followed. `push` multiplies a
Jacobian from the left with tangents, `pull` multiplies rows from the right with it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import linear

from identiscope.linalg.jacobian.blocks import FeedForward, Norm, unit_scale
from identiscope.linalg.jacobian.workspace import Workspace


@dataclass(frozen=True, eq=False)
class LinearNorm:
    """diag(gain)·(I − basisᵀ·basis/d) for each token: gain [token, model], basis [token, 1 or 2, model]."""

    gain: Tensor
    basis: Tensor

    def push(self, tangents: Tensor, into: Tensor | None = None) -> Tensor:
        """The Jacobian times tangents [token, model, column]; in place, unless there is somewhere else to put it."""
        inside = torch.bmm(self.basis, tangents)
        if into is not None:
            tangents = into.copy_(tangents)
        tangents.baddbmm_(self.basis.transpose(1, 2), inside, alpha=-1.0 / self.gain.shape[1])
        return tangents.mul_(self.gain[:, :, None])

    def pull(self, rows: Tensor) -> Tensor:
        """Rows [row, model] or [token, row, model] times the Jacobian: [token, row, model]."""
        return self.pull_in_place(rows * self.gain.new_ones(len(self.gain), 1, 1))

    def pull_in_place(self, rows: Tensor) -> Tensor:
        """As `pull`, for rows [token, row, model] that are not needed any more."""
        rows.mul_(self.gain[:, None])
        inside = torch.bmm(rows, self.basis.transpose(1, 2))
        return rows.baddbmm_(inside, self.basis, alpha=-1.0 / self.gain.shape[1])

    def at(self, tokens: slice) -> "LinearNorm":
        """Only these tokens."""
        return LinearNorm(self.gain[tokens], self.basis[tokens])


def linear_norm(norm: Norm | None, x: Tensor) -> LinearNorm | None:
    """dx̂ = (dx − mean(dx) − x̂·mean(x̂·dx))/σ, with σ² = mean square + ε; RMSNorm has no mean(dx)."""
    if norm is None:
        return None
    unit, inverse = unit_scale(norm, x)
    gain = inverse.expand_as(x) if norm.weight is None else inverse * norm.weight
    basis = torch.stack([torch.ones_like(unit), unit], 1) if norm.centred else unit[:, None]
    return LinearNorm(gain, basis)


def push_norm(norm: LinearNorm | None, tangents: Tensor, space: Workspace | None = None) -> Tensor:
    """`LinearNorm.push`, where there is a norm: in place, or into a buffer of its own where a space is given."""
    if norm is None:
        return tangents
    return norm.push(tangents, None if space is None else space.take("normed", tangents, *tangents.shape))


@dataclass(frozen=True, eq=False)
class LinearFeed:
    """Σ down·diag(slope)·weight for each token: slope [token, inner] and weight [inner, model], one or two of each."""

    down: Tensor
    weights: tuple[Tensor, ...]
    slopes: tuple[Tensor, ...]

    def push(self, tangents: Tensor, into: Tensor, space: Workspace) -> Tensor:
        """The Jacobian times tangents [token, model, column]."""
        inner = _each(self.weights[0], tangents, "inner", space).mul_(self.slopes[0][:, :, None])
        for weight, slope in zip(self.weights[1:], self.slopes[1:], strict=True):
            inner.addcmul_(_each(weight, tangents, "gated", space), slope[:, :, None])
        return torch.bmm(self.down.expand(len(tangents), -1, -1), inner, out=into)

    def matrix(self, into: Tensor) -> Tensor:
        """The Jacobian, [token, model, model]: half the work of pushing the unit vectors."""
        scaled = torch.empty_like(self.down)
        for token in range(len(into)):
            torch.mul(self.down, self.slopes[0][token], out=scaled)
            torch.mm(scaled, self.weights[0], out=into[token])
            for weight, slope in zip(self.weights[1:], self.slopes[1:], strict=True):
                into[token].addmm_(torch.mul(self.down, slope[token], out=scaled), weight)
        return into

    def at(self, tokens: slice) -> "LinearFeed":
        """Only these tokens."""
        return LinearFeed(self.down, self.weights, tuple(slope[tokens] for slope in self.slopes))


def linear_feed(feed_forward: FeedForward, x: Tensor) -> LinearFeed:
    """The feed-forward part at [token, model]."""
    inner = linear(x, feed_forward.up, feed_forward.up_bias)
    if feed_forward.gate is None:
        slope = _with_slope(feed_forward, inner)[1]
        return LinearFeed(feed_forward.down, (feed_forward.up,), (slope,))
    value, slope = _with_slope(feed_forward, linear(x, feed_forward.gate, feed_forward.gate_bias))
    return LinearFeed(feed_forward.down, (feed_forward.gate, feed_forward.up), (slope * inner, value))


def _with_slope(feed_forward: FeedForward, x: Tensor) -> tuple[Tensor, Tensor]:
    """The activation and its derivative: element by element, so one backward pass gives all of them."""
    with torch.enable_grad():
        point = x.detach().requires_grad_()
        value = feed_forward.activation(point)
        (slope,) = torch.autograd.grad(value.sum(), point)
    return value.detach(), slope


def _each(matrix: Tensor, tangents: Tensor, name: str, space: Workspace) -> Tensor:
    """One matrix for all tokens, times tangents."""
    into = space.take(name, tangents, len(tangents), len(matrix), tangents.shape[-1])
    return torch.bmm(matrix.expand(len(tangents), -1, -1), tangents, out=into)
