"""What a layer adds to the stream of hidden states, part by part: attention, feed-forward, and the norms around them.

    a = attention of x                 y = outer(x + factor·inner(a))
    f = feed-forward of y              z = outer(y + factor·inner(f))

Every norm may be absent: BERT has the outer ones, Gemma-2 the inner ones, GPT-2 and Llama neither (theirs stand before
attention and feed-forward, and are in the values and in the function). In a parallel layer the feed-forward part reads
x itself. A decoder that reads an encoder has two steps of attention.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from identiscope.linalg.jacobian.blocks import Norm, normalise, unit_scale


@dataclass(frozen=True, eq=False)
class Step:
    """One thing that is added to the stream: before [token, model], the addition [token, model], and after.

    site: the number of the attention call; −1 for the feed-forward part. inner: the norm of what is added; outer: that
    of the sum.
    """

    site: int
    before: Tensor
    addition: Tensor
    after: Tensor
    inner: Norm | None = None
    outer: Norm | None = None
    factor: float = 1.0

    @property
    def sum(self) -> Tensor:
        """What enters the outer norm, or is the next state."""
        return self.before + self.factor * normalise(self.inner, self.addition)


@dataclass(frozen=True, eq=False)
class LayerParts:
    """One layer: its steps of attention, its feed-forward step, and what that computes.

    feed: from states before the step to what is added, token by token: [..., model] → [..., model]; None where it
    could not be found. parallel: it reads what the layer was given, not what attention made of it.
    """

    attends: tuple[Step, ...]
    feeds: Step
    feed: Callable[[Tensor], Tensor] | None = None
    parallel: bool = False


@dataclass(frozen=True, eq=False)
class StreamParts:
    """All layers of a stream; final: the norm between what the last one wrote and the last hidden state, if any."""

    layers: tuple[LayerParts, ...]
    final: Norm | None = None


@dataclass(frozen=True, eq=False)
class LinearNorm:
    """A norm at one input, as what it does to parts of that input: v → (v − mean v)·gain·scale, scale [token, 1]."""

    gain: Tensor | None
    scale: Tensor
    centred: bool

    def shape(self, parts: Tensor) -> Tensor:
        """All of it but the scale, on [..., model]: the same for every token."""
        parts = parts - parts.mean(-1, keepdim=True) if self.centred else parts
        return parts if self.gain is None else parts * self.gain

    def back(self, directions: Tensor) -> Tensor:
        """Transposed: directions [token, model] behind the norm as they are before it."""
        directions = directions * self.scale
        directions = directions if self.gain is None else directions * self.gain
        return directions - directions.mean(-1, keepdim=True) if self.centred else directions


def linear_part(norm: Norm | None, at: Tensor) -> LinearNorm | None:
    """The linear part of a norm at `at` [token, model], in float64; its bias is no part of anything."""
    if norm is None:
        return None
    at = at.double()
    scale = unit_scale(norm, at)[1]
    return LinearNorm(None if norm.weight is None else norm.weight.double().to(at.device), scale, norm.centred)
