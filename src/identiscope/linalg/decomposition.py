"""What attention moves from key to query, as vectors of the stream: their lengths, and what a sum loses without one.

The part of query i that comes from key j is T_ij = s_i·L(Σ_h α_hij·f_h(x_j)), f_h(x_j) = V_j·H_h, with s_i·L the linear
parts of the norms behind it. Where only lengths are asked for, ‖Σ_h α_h·f_h‖² = αᵀ·G_j·α with G_j the products of the
heads' f_h(x_j) among each other, so that no vector is made for each pair of tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from identiscope.linalg.parts import LinearNorm, Step, linear_part

#: Numbers that are held at a time while vectors of pairs are made.
_NUMBERS = 2**24


@dataclass(frozen=True, eq=False)
class Moved:
    """One step of attention, ready to be taken apart: attention [head, query, key] in float64, value
    [kv_head, key, channel], projection [head, channel, model]; inner and outer: linear parts of the norms of what is
    added, and of the sum, the latter one after the other. own [query, model] is the stream itself, if it counts."""

    attention: Tensor
    value: Tensor
    projection: Tensor
    inner: LinearNorm | None
    outer: tuple[LinearNorm, ...]
    factor: float
    own: Tensor | None

    @property
    def group(self) -> int:
        """How many heads share their values."""
        return len(self.projection) // len(self.value)

    @cached_property
    def _maps(self) -> Tensor:
        """L of every head's output projection, [head, channel, model]: what norms do is linear in the model's axis."""
        return self._shaped(self.projection.double())

    def of_head(self, head: int) -> Tensor:
        """L f_h(x_j) of one head, [key, model], but for the scale of the query's norms."""
        return self.value[head // self.group].double() @ self._maps[head]

    def of_keys(self, keys: slice) -> Tensor:
        """The same of all heads for some keys, [key, head, model]."""
        return (self._values(keys) @ self._maps).transpose(0, 1)

    def _values(self, keys: slice = slice(None)) -> Tensor:
        """The values of some keys in float64, for each head its own: [head, key, channel]."""
        values = self.value[:, keys].double()
        return values if self.group == 1 else values.repeat_interleave(self.group, 0)

    def _shaped(self, parts: Tensor) -> Tensor:
        parts = parts * self.factor
        for norm in (self.inner, *self.outer):
            parts = parts if norm is None else norm.shape(parts)
        return parts

    @property
    def scale(self) -> Tensor:
        """s_i of parts that attention brings, [query, 1]."""
        scale = self.own_scale
        return scale if self.inner is None else scale * self.inner.scale

    @property
    def own_scale(self) -> Tensor:
        """s_i of the stream itself."""
        scale = torch.ones(self.attention.shape[1], 1, dtype=torch.float64, device=self.attention.device)
        for norm in self.outer:
            scale = scale * norm.scale
        return scale

    @property
    def own_part(self) -> Tensor | None:
        """What the stream itself brings to each query, [query, model], behind the norms."""
        if self.own is None:
            return None
        parts = self.own.double()
        for norm in self.outer:
            parts = norm.shape(parts)
        return parts * self.own_scale

    def moved_part(self) -> Tensor:
        """What attention brings to each query from all keys together, [query, model], without the output's bias."""
        return self._joined(self.attention @ self._values())

    def _joined(self, context: Tensor) -> Tensor:
        """What heads make of [head, query, channel] together, [query, model], in one product."""
        together = context.transpose(0, 1).flatten(1) @ self._maps.flatten(0, 1)
        return together * self.scale

    @cached_property
    def itself(self) -> Tensor:
        """What attention brings to each query from its own place, [query, model]; queries and keys are the same."""
        weights = self.attention.diagonal(dim1=1, dim2=2)[..., None]
        return self._joined(weights * self._values())


def moved(
    attention: Tensor,
    value: Tensor,
    projection: Tensor,
    step: Step,
    *,
    stream: bool = True,
    outer: bool = True,
    after: Sequence[LinearNorm] = (),
) -> Moved:
    """A step of attention ready to be taken apart. stream: the stream counts as a part. outer: behind the norm of the
    sum, and those of `after`."""
    inner = linear_part(step.inner, step.addition)
    norm = linear_part(step.outer, step.sum) if outer else None
    own = step.before if stream else None
    return Moved(
        attention.double(), value, projection, inner, (*([] if norm is None else [norm]), *after), step.factor, own
    )


def part_sizes(parts: Moved) -> Tensor:
    """‖T_ij‖ of every pair, [query, key]; the stream is part of what comes from the query's own place."""
    heads, queries, keys = parts.attention.shape
    squares = parts.attention.new_empty(queries, keys)
    block = max(1, _NUMBERS // (heads * parts.projection.shape[2]))
    for begin in range(0, keys, block):
        some = slice(begin, min(begin + block, keys))
        vectors = parts.of_keys(some)
        gram = vectors @ vectors.mT
        weights = parts.attention[:, :, some].permute(2, 0, 1).contiguous()
        squares[:, some] = ((gram @ weights) * weights).sum(1).T
    sizes = squares.clamp(min=0).sqrt() * parts.scale
    own = parts.own_part
    if own is not None:
        sizes.diagonal().copy_((parts.itself + own).norm(dim=-1))
    return sizes


def mixing_ratio(parts: Moved) -> Tensor:
    """‖from other tokens‖ / (‖from other tokens‖ + ‖from its own‖) of each query (Kobayashi et al. 2021), [query]."""
    own, stream = parts.itself, parts.own_part
    context = (parts.moved_part() - own).norm(dim=-1)
    own = own if stream is None else own + stream
    ratio: Tensor = context / (context + own.norm(dim=-1))
    return ratio


def pair_blocks(parts: Moved, rows: Sequence[int] | None = None) -> Iterator[tuple[Tensor, Tensor]]:
    """(rows, T_ij of these [row, key, model]), a few queries at a time: memory is that of so many rows of vectors.

    The stream is none of them: it is `own_part`.
    """
    heads, queries, keys = parts.attention.shape
    model = parts.projection.shape[2]
    chosen = torch.arange(queries) if rows is None else torch.as_tensor(rows)
    held = parts.of_keys(slice(0, keys)) if keys * heads * model <= _NUMBERS else None
    block = max(1, _NUMBERS // (heads * model))
    for some in chosen.split(max(1, _NUMBERS // (keys * model))):
        # One product a key, over its heads: what is written is written once.
        weights = (parts.attention[:, some] * parts.scale[some]).permute(2, 1, 0)
        vectors = parts.attention.new_empty(len(some), keys, model)
        for begin in range(0, keys, block):
            own = slice(begin, min(begin + block, keys))
            of_keys = parts.of_keys(own) if held is None else held
            vectors[:, own] = (weights[own] @ of_keys).transpose(0, 1)
        yield some, vectors


def losses(whole: Tensor, vectors: Tensor, norm: int = 1) -> Tensor:
    """‖y_i‖ − ‖y_i − T_ij‖, [row, part]: how much shorter the sum [row, model] is without a part [row, part, model].

    >>> whole, parts = torch.tensor([[2.0, 2.0]]), torch.tensor([[[1.0, 1.0], [-1.0, 0.0], [2.0, 1.0]]])
    >>> losses(whole, parts)
    tensor([[ 2., -1.,  3.]])
    """
    lost: Tensor = whole.norm(p=norm, dim=-1, keepdim=True) - (whole[:, None] - vectors).norm(p=norm, dim=-1)
    return lost


def shares(sizes: Tensor) -> Tensor:
    """Rows that sum to one; a row of zeros stays one."""
    total = sizes.sum(-1, keepdim=True)
    return torch.where(total > 0, sizes / torch.where(total > 0, total, 1.0), 0.0)


def rolled_out(steps: Sequence[Tensor]) -> Tensor:
    """Steps multiplied up: what each layer's tokens are made of the first layer's, [layer, output, input]."""
    rolled: list[Tensor] = []
    for step in steps:
        rolled.append(step @ rolled[-1] if rolled else step)
    return torch.stack(rolled)
