"""The weights of a transformer block in the few shapes that most families share, and where a pass puts them.

    a = attention(attention_norm(x))       y = sum_norm(x + a)
    f = feed_forward(feed_norm(y))         z = out_norm(y + f)

Every norm may be absent: BERT has the norms of the sums, GPT-2 and Llama those in front.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import linear


@dataclass(frozen=True, eq=False)
class Norm:
    """LayerNorm, or RMSNorm where `centred` is false; weight and bias [model]."""

    weight: Tensor | None
    bias: Tensor | None
    epsilon: float
    centred: bool


@dataclass(frozen=True, eq=False)
class Rotation:
    """Rotary positions: x·cosine + half_turn(x)·sine on the first channels of each head; [token, channel]."""

    cosine: Tensor
    sine: Tensor


@dataclass(frozen=True, eq=False)
class AttentionWeights:
    """Projections [out, in] of all heads one below the other, and what is added to the logits.

    `added` [head or 1, query, key] holds position biases, and −inf where a key is not seen. With `causal`
    a query sees no key behind it, whether or not `added` says so.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor
    query_bias: Tensor | None
    key_bias: Tensor | None
    value_bias: Tensor | None
    output_bias: Tensor | None
    heads: int
    key_value_heads: int
    scale: float
    added: Tensor | None
    causal: bool
    rotation: Rotation | None


@dataclass(frozen=True, eq=False)
class FeedForward:
    """down(activation(up(x))), or down(activation(gate(x)) · up(x)) where there is a gate; weights [out, in]."""

    up: Tensor
    up_bias: Tensor | None
    down: Tensor
    down_bias: Tensor | None
    activation: Callable[[Tensor], Tensor]
    gate: Tensor | None = None
    gate_bias: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Block:
    """One layer."""

    attention: AttentionWeights
    feed_forward: FeedForward
    attention_norm: Norm | None = None
    sum_norm: Norm | None = None
    feed_norm: Norm | None = None
    out_norm: Norm | None = None


@dataclass(frozen=True, eq=False)
class Blocks:
    """All layers of one stream.

    `entry` stands before the first layer, if the input is the sum of embeddings; `final` is applied to the
    last state, as transformers reports it.
    """

    layers: tuple[Block, ...]
    entry: Norm | None = None
    final: Norm | None = None

    @property
    def causal(self) -> bool:
        """Whether no token depends on one behind it."""
        return all(block.attention.causal for block in self.layers)


def half_turn(x: Tensor, channel: int) -> Tensor:
    """(x1, x2) → (−x2, x1) for the two halves of an axis."""
    first, second = x.chunk(2, dim=channel)
    return torch.cat([-second, first], dim=channel)


def rotate(rotation: Rotation | None, x: Tensor, token: int, channel: int) -> Tensor:
    """Rotary positions on a tensor that has a token axis and a channel axis; the others are broadcast."""
    if rotation is None:
        return x
    width = rotation.cosine.shape[-1]
    shape = [1] * x.dim()
    shape[token], shape[channel] = rotation.cosine.shape
    cosine, sine = rotation.cosine, rotation.sine
    if token % x.dim() > channel % x.dim():
        cosine, sine = cosine.T, sine.T
    cosine, sine = cosine.reshape(shape), sine.reshape(shape)
    turned, rest = x.narrow(channel, 0, width), x.narrow(channel, width, x.shape[channel] - width)
    turned = turned * cosine + half_turn(turned, channel) * sine
    return torch.cat([turned, rest], dim=channel) if rest.shape[channel] else turned


def normalise(norm: Norm | None, x: Tensor) -> Tensor:
    """The norm applied to [token, model]."""
    if norm is None:
        return x
    unit = unit_scale(norm, x)[0]
    unit = unit if norm.weight is None else unit * norm.weight
    return unit if norm.bias is None else unit + norm.bias


def unit_scale(norm: Norm, x: Tensor) -> tuple[Tensor, Tensor]:
    """x̂ before weight and bias, [token, model], and the 1/σ it was scaled with, [token, 1]."""
    x = x - x.mean(-1, keepdim=True) if norm.centred else x
    inverse = (x.square().mean(-1, keepdim=True) + norm.epsilon).rsqrt()
    return x * inverse, inverse


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[token, head·channel] to [head, token, channel]."""
    return x.reshape(x.shape[0], heads, -1).transpose(0, 1)


def feed(feed_forward: FeedForward, x: Tensor) -> Tensor:
    """The feed-forward part applied to [token, model]."""
    inner = linear(x, feed_forward.up, feed_forward.up_bias)
    if feed_forward.gate is None:
        inner = feed_forward.activation(inner)
    else:
        inner = feed_forward.activation(linear(x, feed_forward.gate, feed_forward.gate_bias)) * inner
    return linear(inner, feed_forward.down, feed_forward.down_bias)
