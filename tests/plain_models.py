"""Transformers in plain float64 operations on one text: what references stand on, sharing no code with the package.

Everything that a layer computes on its way is kept, attention and values can be changed, and derivatives pass.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

#: From the number of a layer, the number of the attention in it (1: to the encoder), and what it was to what it is.
Change = Callable[[int, int, Tensor], Tensor]


def unchanged(layer: int, which: int, given: Tensor) -> Tensor:
    """As it is."""
    return given


@dataclass(frozen=True, eq=False)
class PlainNorm:
    """(x − mean)·weight / √(variance + ε) + bias; without the mean where it is not centred."""

    weight: Tensor
    bias: Tensor | None
    epsilon: float
    centred: bool

    def deviation(self, x: Tensor) -> Tensor:
        """What it divides by, [..., 1]."""
        x = x - x.mean(-1, keepdim=True) if self.centred else x
        return torch.sqrt((x * x).mean(-1, keepdim=True) + self.epsilon)

    def linear(self, part: Tensor, at: Tensor) -> Tensor:
        """What it does to a part of its input `at`: the deviation is that of the whole, and there is no bias."""
        part = part - part.mean(-1, keepdim=True) if self.centred else part
        return part / self.deviation(at) * self.weight

    def __call__(self, x: Tensor) -> Tensor:
        made = self.linear(x, x)
        return made if self.bias is None else made + self.bias


def normed(norm: PlainNorm | None, x: Tensor) -> Tensor:
    """Behind a norm, if there is one."""
    return x if norm is None else norm(x)


@dataclass(frozen=True, eq=False)
class Heads:
    """The weights of one attention: query, key, value [head, model, channel], their biases [head, 1, channel], output
    [head, channel, model] and its bias [model]."""

    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor
    biases: tuple[Tensor, Tensor, Tensor]
    bias: Tensor
    rotated: int = 0
    softcap: float | None = None
    scale: float | None = None

    def maps(self, x: Tensor, read: Tensor, allowed: Tensor) -> Tensor:
        """[head, query, key]."""
        query, key = x @ self.query + self.biases[0], read @ self.key + self.biases[1]
        if self.rotated:
            query, key = (turned(one, self.rotated) for one in (query, key))
        logits = query @ key.mT * (query.shape[-1] ** -0.5 if self.scale is None else self.scale)
        if self.softcap is not None:
            logits = self.softcap * torch.tanh(logits / self.softcap)
        return logits.masked_fill(~allowed, -math.inf).softmax(-1)

    def values(self, read: Tensor) -> Tensor:
        """[head, key, channel]."""
        return read @ self.value + self.biases[2]


def turned(x: Tensor, width: int) -> Tensor:
    """Rotary positions on the first `width` channels: pairs (c, c + width/2) turned by the position times a speed."""
    half = width // 2
    # The speeds and angles are float32 in every family, whatever the weights are.
    speeds = 1.0 / (10000.0 ** (torch.arange(0, width, 2, dtype=torch.float32) / width))
    angles = torch.arange(x.shape[-2], dtype=torch.float32)[:, None] * speeds
    cosine, sine = angles.cos().double(), angles.sin().double()
    one, other, rest = x[..., :half], x[..., half:width], x[..., width:]
    return torch.cat([one * cosine - other * sine, other * cosine + one * sine, rest], -1)


@dataclass(frozen=True, eq=False)
class Attends:
    """One attention of a layer: its weights, the norm in front, that of what it adds, and that of the sum."""

    heads: Heads
    front: PlainNorm | None = None
    inner: PlainNorm | None = None
    outer: PlainNorm | None = None
    window: int | None = None
    causal: bool = False


@dataclass(frozen=True, eq=False)
class Feeds:
    """The feed-forward part of a layer; parallel: it reads what the layer was given."""

    function: Callable[[Tensor], Tensor]
    front: PlainNorm | None = None
    inner: PlainNorm | None = None
    outer: PlainNorm | None = None
    parallel: bool = False

    def __call__(self, state: Tensor) -> Tensor:
        return self.function(normed(self.front, state))


@dataclass(frozen=True, eq=False)
class Side:
    """Encoder, decoder, or all there is: layers of attentions and a feed-forward part, and a norm at the end."""

    layers: Sequence[tuple[Sequence[Attends], Feeds]]
    final: PlainNorm | None = None


@dataclass(frozen=True, eq=False)
class Attended:
    """What one attention did: x → y = outer(x + inner(Σ_h A_h·V_h·O_h + b))."""

    part: Attends
    before: Tensor
    maps: Tensor
    value: Tensor
    addition: Tensor
    after: Tensor

    @property
    def output(self) -> Tensor:
        """[head, channel, model]."""
        return self.part.heads.output

    @property
    def sum(self) -> Tensor:
        """What the outer norm is given, if there is one."""
        return self.before + normed(self.part.inner, self.addition)

    def carried(self, part: Tensor, query: int, *, outer: bool = True) -> Tensor:
        """A part of what attention adds to a query [model], as it arrives behind the norms."""
        if self.part.inner is not None:
            part = self.part.inner.linear(part, self.addition[query])
        return self.carried_stream(part, query) if outer else part

    def carried_stream(self, part: Tensor, query: int) -> Tensor:
        """A part of the sum, as it arrives behind its norm."""
        return part if self.part.outer is None else self.part.outer.linear(part, self.sum[query])

    def brought(self, query: int, key: int, head: int | None = None) -> Tensor:
        """α_ij·V_j·O of one head, or of all together, [model]."""
        heads = range(len(self.maps)) if head is None else [head]
        return sum(self.maps[h, query, key] * (self.value[h, key] @ self.output[h]) for h in heads)  # type: ignore[return-value]


@dataclass(frozen=True, eq=False)
class Layer:
    """What one layer did."""

    attended: Sequence[Attended]
    feeds: Feeds
    before: Tensor
    addition: Tensor
    after: Tensor

    @property
    def sum(self) -> Tensor:
        """What the last norm of the layer is given, if there is one."""
        return self.before + normed(self.feeds.inner, self.addition)


@dataclass(frozen=True, eq=False)
class Ran:
    """What one pass of a side did; last is behind the final norm."""

    side: Side
    embeddings: Tensor
    layers: list[Layer] = field(default_factory=list)

    @property
    def states(self) -> list[Tensor]:
        """As transformers shows them."""
        found = [self.embeddings, *(layer.after for layer in self.layers)]
        return [*found[:-1], normed(self.side.final, found[-1])]

    @property
    def last(self) -> Tensor:
        """[token, model]."""
        return self.states[-1]


def run(
    side: Side,
    embeddings: Tensor,
    *,
    encoder: Tensor | None = None,
    maps: Change = unchanged,
    values: Change = unchanged,
) -> Ran:
    """One pass from embeddings [token, model], with attention or values changed; encoder: what a decoder reads."""
    ran, x = Ran(side, embeddings), embeddings
    for number, (attends, feeds) in enumerate(side.layers):
        attended, given = [], x
        for which, part in enumerate(attends):
            read = normed(part.front, x) if which == 0 else encoder
            assert read is not None
            places = torch.arange(len(x))[:, None] - torch.arange(len(read))
            allowed = (places >= 0) | torch.tensor(not part.causal)
            allowed = allowed if part.window is None else allowed & (places.abs() < part.window)
            weights = maps(number, which, part.heads.maps(normed(part.front, x), read, allowed))
            value = values(number, which, part.heads.values(read))
            addition = (weights @ value @ part.heads.output).sum(0) + part.heads.bias
            after = normed(part.outer, x + normed(part.inner, addition))
            attended.append(Attended(part, x, weights, value, addition, after))
            x = after
        added = feeds(given if feeds.parallel else x)
        after = normed(feeds.outer, x + normed(feeds.inner, added))
        ran.layers.append(Layer(attended, feeds, x, added, after))
        x = after
    return ran
