"""Random layers, what methods are given of them, and the parts of their states: the n²·d tensors that papers write."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from identiscope.linalg.jacobian.blocks import Norm
from identiscope.linalg.parts import LayerParts, Step, StreamParts
from identiscope.methods.sides import Side
from plain_models import Attended, Attends, Feeds, Heads, Layer, PlainNorm, Ran, run
from plain_models import Side as PlainSide


@dataclass(frozen=True)
class Shape:
    """Of random layers; norms: which of front, inner and outer there are; parallel: the feed-forward part reads x."""

    seed: int
    tokens: int
    layers: int = 2
    heads: int = 2
    group: int = 1
    width: int = 6
    channels: int = 3
    norms: tuple[str, ...] = ("outer",)
    centred: bool = True
    causal: bool = False
    parallel: bool = False
    cross: int = 0


shapes = st.builds(
    Shape,
    seed=st.integers(0, 2**20),
    tokens=st.integers(1, 5),
    layers=st.integers(1, 2),
    heads=st.integers(1, 2).map(lambda pairs: 2 * pairs),
    group=st.integers(1, 2),
    norms=st.sampled_from([(), ("outer",), ("front",), ("front", "inner"), ("inner", "outer")]),
    centred=st.booleans(),
    causal=st.booleans(),
)


class _Drawn:
    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator, dtype=torch.float64)


def random_side(shape: Shape) -> PlainSide:
    """Layers whose weights, biases and norms are drawn."""
    drawn = _Drawn(shape.seed)
    width, heads, channels = shape.width, shape.heads, shape.channels

    def norm(name: str) -> PlainNorm | None:
        made = PlainNorm(1 + drawn(width) / 2, drawn(width) if shape.centred else None, 1e-3, shape.centred)
        return made if name in shape.norms else None

    def attends(causal: bool) -> Attends:
        value, bias = (
            one.repeat_interleave(shape.group, 0)
            for one in (drawn(heads // shape.group, width, channels), drawn(heads // shape.group, 1, channels))
        )
        query, key = drawn(2, heads, width, channels)
        own = Heads(query, key, value, drawn(heads, channels, width), (bias * 0, bias * 0, bias), drawn(width))
        return Attends(own, norm("front"), norm("inner"), norm("outer"), causal=causal)

    layers = []
    for _ in range(shape.layers):
        up, down = drawn(width, 7) / 2, drawn(7, width) / 2
        parts = [attends(shape.causal), *([attends(False)] if shape.cross else [])]

        def function(x: Tensor, up: Tensor = up, down: Tensor = down) -> Tensor:
            return torch.tanh(x @ up) @ down

        feeds = Feeds(function, norm("front"), norm("inner"), norm("outer"), shape.parallel)
        layers.append((parts, feeds))
    return PlainSide(layers, norm("outer") if not shape.layers % 2 else None)


def random_run(shape: Shape) -> Ran:
    """What random layers do to random embeddings; those of an encoder are drawn, too, if there is one to read."""
    drawn = _Drawn(shape.seed + 1)
    encoder = drawn(shape.cross, shape.width) if shape.cross else None
    return run(random_side(shape), drawn(shape.tokens, shape.width), encoder=encoder)


# As methods are given it.


def _norm(norm: PlainNorm | None) -> Norm | None:
    return None if norm is None else Norm(norm.weight, norm.bias, norm.epsilon, norm.centred)


def _attend(attended: Attended) -> Step:
    inner, outer = _norm(attended.part.inner), _norm(attended.part.outer)
    return Step(0, attended.before, attended.addition, attended.after, inner, outer)


def _layer(layer: Layer) -> LayerParts:
    feeds = layer.feeds
    step = Step(-1, layer.before, layer.addition, layer.after, _norm(feeds.inner), _norm(feeds.outer))
    return LayerParts(tuple(map(_attend, layer.attended)), step, feeds, feeds.parallel)


def stream_parts(ran: Ran) -> StreamParts:
    """Of all layers."""
    return StreamParts(tuple(map(_layer, ran.layers)), _norm(ran.side.final))


def fields(ran: Ran, group: int = 1) -> tuple[list[Tensor], list[Tensor], list[Tensor], StreamParts]:
    """attention, value, projection and parts; values of a group of heads once."""
    first = [layer.attended[0] for layer in ran.layers]
    values = [one.value[::group] for one in first]
    return [one.maps for one in first], values, [one.output for one in first], stream_parts(ran)


@dataclass(frozen=True, eq=False)
class _Fields:
    attention: Tensor
    value: Tensor
    projection: Tensor


def side(ran: Ran) -> Side:
    """One side, as decompositions of two sides read it."""
    which: list[list[Any]] = [[], []]
    for layer in ran.layers:
        for place, one in enumerate(layer.attended):
            which[place].append(_Fields(one.maps, one.value, one.output))
    return Side(which[0], stream_parts(ran), which[1])


# What papers write.


def vectors(attended: Attended, *, outer: bool = True, stream: bool = True, layer: Layer | None = None) -> np.ndarray:
    """T_ij [query, key, model], one after the other: what key j brings to query i, behind the norms of the step.

    stream: x_i is part of T_ii. layer: behind the norm at the end of that layer, too.
    """
    queries, keys, width = len(attended.before), attended.maps.shape[2], attended.before.shape[1]
    found = np.zeros((queries, keys, width))
    for query in range(queries):
        for key in range(keys):
            part = attended.carried(attended.brought(query, key), query, outer=outer)
            if stream and query == key:
                own = attended.before[query]
                part = part + (attended.carried_stream(own, query) if outer else own)
            if layer is not None and layer.feeds.outer is not None:
                part = layer.feeds.outer.linear(part, layer.sum[query])
            found[query, key] = part.detach().numpy()
    return found


def shares(sizes: np.ndarray) -> np.ndarray:
    """Rows divided by their sums, where these are positive."""
    found = np.zeros_like(sizes)
    for place, row in enumerate(sizes):
        if row.sum() > 0:
            found[place] = row / row.sum()
    return found


def multiplied(steps: Sequence[np.ndarray]) -> np.ndarray:
    """R_l[i, j] = Σ_k S_l[i, k]·R_{l−1}[k, j]."""
    count = steps[0].shape[1]
    rolled, before = [], np.eye(count)
    for step in steps:
        now = np.zeros((len(step), count))
        for i in range(len(step)):
            for j in range(count):
                now[i, j] = sum(step[i, k] * before[k, j] for k in range(count))
        rolled.append(now)
        before = now
    return np.stack(rolled)
