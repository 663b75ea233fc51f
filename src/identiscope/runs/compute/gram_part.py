"""Some texts of an attention call in which all tokens of a text see each other, and the raw attention of these."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from math import log

import torch
from torch import Tensor

from identiscope.capture.watch.calls import Call
from identiscope.capture.watch.kernel import repeat_heads
from identiscope.linalg.simplex.raw_rows import softmax_in_place
from identiscope.runs.compute.batch_tokens import BatchTokens
from identiscope.runs.compute.merged_from_gram import KeptRows, MergedRows, merged_rows, merged_squares_of

#: Cells of raw attention held at once: about what a processor's own cache holds.
_BLOCK_CELLS = 2**18

#: Numbers of values held at once.
_PART_NUMBERS = 2**18


@dataclass(frozen=True, eq=False)
class GramPart:
    """Some texts of a call, each from the first place on: query and key [text, head, token, channel], value [text,
    kv_head, token, channel] and context in float64 and zero behind a text's end, lengths [text], types [text, type,
    token]. `lengths_here` are the lengths on the CPU, which decide what is computed next.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    context: Tensor
    position: Tensor | None
    lengths: Tensor
    lengths_here: Tensor
    types: Tensor
    merged: MergedRows
    scale: float
    softcap: float | None

    @cached_property
    def real(self) -> Tensor:
        """[text, token] in float64: one up to a text's end, then zero."""
        return (torch.arange(self.query.shape[2], device=self.lengths.device) < self.lengths[:, None]).double()

    @cached_property
    def _scaled(self) -> Tensor:
        """The query times the scale: it is smaller than the logits."""
        return self.query * self.scale

    @cached_property
    def seen(self) -> Tensor:
        """How many keys each row sees, [text, head, row] on the CPU: a row behind a text's end sees nothing."""
        heads, tokens = self.query.shape[1:3]
        inside = torch.arange(tokens) < self.lengths_here[:, None]
        return torch.where(inside, self.lengths_here[:, None], 0)[:, None].repeat(1, heads, 1)

    def logits(self, texts: slice, heads: slice, rows: slice) -> Tensor:
        """Logits [text, head, row, key] of some texts, heads and rows."""
        logits: Tensor = self._scaled[texts, heads, rows] @ self.key[texts, heads].mT
        if self.softcap is not None:
            logits = torch.tanh(logits / self.softcap) * self.softcap
        if self.position is not None:
            position = self.position[texts] if len(self.position) > 1 else self.position
            position = position[:, heads] if position.shape[1] > 1 else position
            logits += (position if position.shape[-2] == 1 else position[:, :, rows]).to(logits.dtype)
        return logits

    def weights(self, texts: Tensor, heads: Tensor, length: int) -> Tensor:
        """Raw attention [pair, query, key] of some heads [pair] of some texts [pair] of one length, in float64."""
        query, key = (tensor[texts, heads, :length].double() for tensor in (self.query, self.key))
        logits = (query * self.scale) @ key.mT
        if self.softcap is not None:
            logits = torch.tanh(logits / self.softcap) * self.softcap
        if self.position is not None:
            shape = (*self.query.shape[:2], *self.position.shape[2:])
            logits = logits + self.position.expand(shape)[texts, heads, :length, :length].double()
        return torch.softmax(logits, -1)


def parts(call: Call, tokens: BatchTokens) -> Iterator[GramPart]:
    """The texts of a call: not too many together, beginning at one place, all with at most as many tokens as channels
    or none."""
    lengths, channels = tokens.lengths, call.value.shape[-1]
    first_places = tokens.real.int().argmax(1).tolist()
    size = max(1, _PART_NUMBERS // (call.query.shape[1] * max(lengths) * channels))
    first = 0
    for (begins, _), run in groupby(
        (place, length <= channels) for place, length in zip(first_places, lengths, strict=True)
    ):
        end = first + len(list(run))
        for begin in range(first, end, size):
            yield _part(call, tokens, slice(begin, min(begin + size, end)), begins)
        first = end


def _part(call: Call, tokens: BatchTokens, chosen: slice, begins: int) -> GramPart:
    here = torch.tensor(tokens.lengths[chosen])
    span = slice(begins, begins + int(here.max()))
    device, position = call.query.device, call.bias.position
    if position is not None:
        position = position[chosen] if len(position) > 1 else position
        position = (position if position.shape[-2] == 1 else position[:, :, span])[..., span]
    dtype = torch.promote_types(call.query.dtype, torch.float32)

    def taken(tensor: Tensor, dtype: torch.dtype) -> Tensor:
        # One run of memory, and a copy: products of strided views would copy them each time.
        part = tensor[chosen, :, span]
        return torch.empty(part.shape, dtype=dtype, device=device).copy_(part)

    value, context = taken(call.value, torch.float64), taken(call.context, torch.float64)
    for index, length in enumerate(here.tolist()):
        value[index, :, length:], context[index, :, length:] = 0, 0
    return GramPart(
        query=taken(call.query, dtype),
        key=repeat_heads(taken(call.key, dtype), call.query.shape[1]),
        value=value,
        context=context,
        position=position,
        lengths=here.to(device),
        lengths_here=here,
        types=tokens.types[chosen, :, span].double().to(device),
        merged=merged_rows(here, tokens.copies[chosen, span]),
        scale=call.scale,
        softcap=call.softcap,
    )


@dataclass(frozen=True, eq=False)
class RawText:
    """Of raw attention, [text, head]: entropy in bits and weight on the own token, means over rows, the same weight on
    each type of token [text, head, type]; Σ(a − 1/n)², and the null share with equal tokens added up.
    """

    entropy: Tensor
    own: Tensor
    types: Tensor
    spread: Tensor
    merged: Tensor


def raw_text(part: GramPart, kept: KeptRows | None) -> RawText:
    """In the precision of the pass but at least float32; kept: what is compared where equal tokens are added up."""
    texts, heads, tokens = part.query.shape[:3]
    sums = part.value.new_zeros(3, texts, heads)
    received = part.value.new_zeros(texts, heads, tokens)
    merged = part.value.new_zeros(2, texts, heads)
    of_rows = _sums_compiled if part.query.device.type == "cpu" else _sums_of_tensors
    for some, of, rows in _blocks(texts, heads, tokens):
        weights, added = of_rows(part, some, of, rows, received)
        sums[:, some, of] += added
        if kept is not None:
            merged[:, some, of] += merged_squares_of(part.merged, weights, kept, some, of, rows)
    keys = part.lengths[:, None].double()
    entropy, own, spread = sums
    share = merged[0] / merged[1] if kept is not None else torch.zeros_like(entropy)
    return RawText(
        entropy / log(2) / keys, own / keys, received @ part.types.mT / keys[..., None], spread, share,
    )  # fmt: skip


def _blocks(texts: int, heads: int, tokens: int) -> Iterator[tuple[slice, slice, slice]]:
    """Some texts with all their heads and rows, or some heads of one text, or some rows of one head."""
    size = max(1, _BLOCK_CELLS // (heads * tokens**2))
    several = min(heads, max(1, _BLOCK_CELLS // tokens**2))
    count = min(tokens, max(1, _BLOCK_CELLS // tokens))
    for text in range(0, texts, size):
        for head in range(0, heads, several):
            for row in range(0, tokens, count):
                yield (
                    slice(text, min(text + size, texts)),
                    slice(head, min(head + several, heads)),
                    slice(row, min(row + count, tokens)),
                )


def _sums_compiled(part: GramPart, some: slice, of: slice, rows: slice, received: Tensor) -> tuple[Tensor, Tensor]:
    """Weights [text, head, row, key], and their entropy in nats, own weight and spread, [3, text, head]."""
    cells = part.logits(some, of, rows).contiguous()
    texts = len(cells)
    seen = part.seen[some, of, rows].flatten(0, 1)
    sums = softmax_in_place(cells.flatten(0, 1), seen, received=received[some, of].flatten(0, 1))
    own = cells.diagonal(rows.start, dim1=-2, dim2=-1).double().sum(-1)
    return cells, torch.stack([sums.entropy.sum(-1).view(texts, -1), own, sums.spread.sum(-1).view(texts, -1)])


def _sums_of_tensors(part: GramPart, some: slice, of: slice, rows: slice, received: Tensor) -> tuple[Tensor, Tensor]:
    """The same on any device."""
    logits, real = part.logits(some, of, rows), part.real[some]
    inside = (real[:, None, rows, None] * real[:, None, None, :]).to(logits.dtype)
    logits = logits.masked_fill(inside == 0, torch.finfo(logits.dtype).min / 2)
    logarithm = torch.log_softmax(logits, -1)
    weights = logarithm.exp() * inside
    received[some, of] += weights.sum(2).double()
    own = weights.diagonal(rows.start, dim1=-2, dim2=-1).double().sum(-1)
    # A row of n weights has the mean 1/n.
    rest = (weights - 1 / part.lengths[some, None, None, None].to(weights.dtype)) * inside
    entropy, spread = -(logarithm * weights).sum((-2, -1)), rest.square().sum((-2, -1))
    return weights, torch.stack([entropy.double(), own, spread.double()])
