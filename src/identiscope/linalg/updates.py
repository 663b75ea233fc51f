"""A number that is read from the last state, followed down the stream: what each step added to it.

With the norms taken by their linear parts at this input, the last state is a sum of what the steps have added, each
carried through the norms that follow. So a direction in which the last state is read becomes one for each step, and
what a step adds is worth its product with that. Biases of norms and of projections are worth what they are worth, and
come from no token.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.linalg.jacobian.blocks import Norm
from identiscope.linalg.parts import LayerParts, Step, StreamParts, linear_part


@dataclass(frozen=True, eq=False)
class LayerDirections:
    """Where one layer's additions are read, each [token, model]: what attention returned, what the feed-forward part
    returned, and what the stream was before the layer. bias: what the norms' biases of the layer are worth."""

    attends: tuple[Tensor, ...]
    feeds: Tensor
    before: Tensor
    bias: float


def directions(parts: StreamParts, read: Tensor) -> tuple[list[LayerDirections], float]:
    """The directions of every layer for a last state that is read along `read` [token, model]; and what the bias of
    the last norm is worth."""
    by_layer: list[LayerDirections] = []
    last = parts.layers[-1].feeds.after
    direction, final = _behind(parts.final, last, read.double())
    for layer in reversed(parts.layers):
        by_layer.insert(0, _of_layer(layer, direction))
        direction = by_layer[0].before
    return by_layer, final


def _of_layer(layer: LayerParts, direction: Tensor) -> LayerDirections:
    at_feed, direction, bias = _of_step(layer.feeds, direction)
    attends: list[Tensor] = []
    for step in reversed(layer.attends):
        at_step, direction, more = _of_step(step, direction)
        attends.insert(0, at_step)
        bias += more
    return LayerDirections(tuple(attends), at_feed, direction, bias)


def _of_step(step: Step, direction: Tensor) -> tuple[Tensor, Tensor, float]:
    """Where the addition is read, where the stream before the step is, and what the norms' biases are worth."""
    direction, bias = _behind(step.outer, step.sum, direction)
    addition, more = _behind(step.inner, step.addition, direction * step.factor)
    return addition, direction, bias + more


def _behind(norm: Norm | None, at: Tensor, direction: Tensor) -> tuple[Tensor, float]:
    """A direction behind a norm as it is before it, and what the norm's bias is worth along it."""
    linear = linear_part(norm, at)
    if norm is None or linear is None:
        return direction, 0.0
    bias = 0.0 if norm.bias is None else float((direction * norm.bias.double()).sum())
    return linear.back(direction), bias


def token_worths(attention: Tensor, value: Tensor, projection: Tensor, direction: Tensor) -> Tensor:
    """What each head brings along a direction, by the key it is from: Σ_i α_hij·f_h(x_j)·u_i, [head, key].

    No vector is made for a pair: f_h(x_j)·u_i = V_j·(H_h·u_i).
    """
    group = len(projection) // len(value)
    worths = []
    for head, one in enumerate(projection):
        along = direction @ one.double().T
        worth = along @ value[head // group].double().T
        worths.append((attention[head].double() * worth).sum(0))
    return torch.stack(worths)
