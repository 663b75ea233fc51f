"""Transformers compiled by hand: GPT-2s whose weights are set so that they copy, reverse, count, look up and add.

The residual stream holds named slots of one-hot numbers. Every vector is kept twice, once with the other sign, so that
its mean is zero, and norms have so large an epsilon that they change nothing: what a head reads is what was written.
Attention is so sharp that what it leaves out has a weight of exactly zero. Head 0 of each layer works; what the others
write is multiplied by zero. In the plain version these attend everywhere alike, in the other to a distractor.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from identiscope.capture.blank import MASK, PADDING, blank_model
from identiscope.capture.models import Model

#: Logits of attention that lie so far apart leave a weight of exactly zero, in float64 too.
SHARP = 1000.0
#: So much larger than any variance that adding that to it changes no digit.
_EPSILON = 1e16
HEADS = 4


@dataclass(frozen=True, eq=False)
class Compiler:
    """A model being compiled: its words, its positions, and where in the stream each slot is."""

    model: Model
    words: tuple[str, ...]
    slots: dict[str, range]
    half: int

    @property
    def module(self) -> Any:
        """The GPT-2 itself."""
        return self.model.module

    @property
    def head_width(self) -> int:
        """Channels of a head."""
        return 2 * self.half // HEADS

    def one(self, slot: str, place: int) -> int:
        """The channel of a number of a slot."""
        return self.slots[slot][place]

    def word(self, word: str) -> int:
        """The channel of a word in the slot of the token itself."""
        return self.one("token", self.words.index(word))

    def head(self, layer: int, head: int, scores: Tensor, moved: dict[int, dict[int, float]], bias: Tensor) -> None:
        """Set a head: scores [channel, channel] of query and key, plus bias [channel] of the key for every query.

        moved: channel that is read at the key → channels that are written, times what.
        """
        block = self.module.transformer.h[layer].attn
        width, whole = self.head_width, 2 * self.half
        own = slice(head * width, (head + 1) * width)
        read = [channel for channel in range(self.half) if bool((scores[:, channel] != 0).any() or bias[channel] != 0)]
        assert len(read) <= width and len(moved) <= width, "the head is too narrow for this"
        with torch.no_grad():
            for place, channel in enumerate(read):
                # Logits are divided by √d by the model.
                block.c_attn.weight[: self.half, own.start + place] = scores[:, channel] * width**0.5
                block.c_attn.bias[own.start + place] = bias[channel] * width**0.5
                block.c_attn.weight[channel, whole + own.start + place] = 1.0
            for place, (channel, written) in enumerate(moved.items()):
                block.c_attn.weight[channel, 2 * whole + own.start + place] = 1.0
                for target, factor in written.items():
                    block.c_proj.weight[own.start + place, target] = factor
                    block.c_proj.weight[own.start + place, self.half + target] = -factor

    def silent(self, layer: int, scores: Tensor, bias: Tensor) -> None:
        """Heads that look where they are told and whose values are multiplied by zero."""
        for head in range(1, HEADS):
            self.head(layer, head, scores, {}, bias)
            block = self.module.transformer.h[layer].attn
            with torch.no_grad():
                # Values that are there; the rows of the output projection that would read them stay zero.
                first = 4 * self.half + head * self.head_width
                count = min(self.head_width, len(self.words))
                tokens = self.slots["token"]
                for place in range(count):
                    block.c_attn.weight[tokens[place], first + place] = 1.0

    def logits(self, word: str, read: dict[int, float]) -> None:
        """What of the last state is the logit of a word."""
        row = self.model.tokenizer.convert_tokens_to_ids(word)
        with torch.no_grad():
            for channel, factor in read.items():
                self.module.lm_head.weight[row, channel] = factor

    def nothing(self) -> tuple[Tensor, Tensor]:
        """Scores and bias of a head that looks everywhere alike."""
        return torch.zeros(self.half, self.half), torch.zeros(self.half)


def compiler(name: str, words: Sequence[str], positions: int, layers: int, **more: int) -> Compiler:
    """A model in which nothing is set but what tokens and positions write: slots `token` and `position`, one number for
    each word and place; more: further slots and how many numbers each has."""
    sizes = {"token": len(words), "position": positions, **more}
    slots, begin = {}, 0
    for slot, size in sizes.items():
        slots[slot] = range(begin, begin + size)
        begin += size
    begin += 1  # for what the feed-forward parts write
    # Wide enough for a head to read every word and every place.
    half = max(begin, HEADS * max(len(words), positions) // 2 + HEADS, 2 * HEADS)
    half += -half % HEADS
    model = blank_model(
        words, width=2 * half, layers=layers, heads=HEADS, positions=positions, epsilon=_EPSILON, name=name
    )
    made = Compiler(model, tuple(words), slots, half)
    module: Any = model.module
    body = module.transformer
    with torch.no_grad():
        for block in body.h:
            # A number that is always the same and that nobody reads: a part that wrote nothing could not be found.
            block.mlp.c_proj.bias[half - 1], block.mlp.c_proj.bias[-1] = 1.0, -1.0
        for part, weight in model.module.named_parameters():
            if "ln_" in part and part.endswith("weight"):
                weight.fill_(_EPSILON**0.5)
        rows = model.tokenizer.convert_tokens_to_ids([*words])
        for table, slot, numbers in ((body.wte, "token", rows), (body.wpe, "position", range(positions))):
            for place, row in enumerate(numbers):
                table.weight[row, made.one(slot, place)] = 1.0
                table.weight[row, half + made.one(slot, place)] = -1.0
    return made


__all__ = ["HEADS", "MASK", "PADDING", "SHARP", "Compiler", "compiler"]
