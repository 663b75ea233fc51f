"""Which sequences of hidden states a forward pass returned, and which of them an attention call reads."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from identiscope.capture.watch.calls import Call
from identiscope.capture.watch.kernel import Bias

if TYPE_CHECKING:
    from identiscope.capture.batch import Batch

MAIN = "tokens"
ENCODER, DECODER, CROSS = "encoder-self", "decoder-self", "cross"
# Positions that are no token of a text: what an encoder outside this model returned, or keys made of several sequences;
# queries that are parameters; any other sequence.
MEMORY, QUERIES, OTHER = "memory", "queries", "other"
_CROSS = re.compile(r"cross|encoder_attn|encdec|enc_dec|decoder.*multihead_attn|^layers.*multihead_attn", re.IGNORECASE)


def hidden_states(outputs: Any) -> dict[str, tuple[Tensor, ...]]:
    """Hidden states by stream, from a transformers output: [batch, n, d] for the input and every layer."""
    by_stream: dict[str, tuple[Tensor, ...]] = {}
    for attribute, stream in (
        ("encoder_hidden_states", "encoder"),
        ("decoder_hidden_states", "decoder"),
        ("hidden_states", MAIN),
    ):
        states = getattr(outputs, attribute, None)
        if states:
            by_stream[stream] = tuple(states)
    # Towers (CLIP's text_model_output and vision_model_output) and what joins them.
    for attribute in getattr(outputs, "keys", tuple)():
        tower = outputs[attribute]
        states = getattr(tower, "hidden_states", None)
        if attribute.endswith("_output") and states:
            by_stream[attribute.removesuffix("_output").removesuffix("_model")] = tuple(states)
    return {
        stream: states for stream, states in by_stream.items() if all(isinstance(state, Tensor) for state in states)
    }


def _streams_of(call: Call, streams: list[str]) -> tuple[str, str]:
    """Query stream and key stream of a call, from where its module stands in the model."""
    path = call.name.split(".")
    if _CROSS.search(call.name):
        own = next((stream for stream in ("decoder", MAIN) if stream in streams), streams[0] if streams else MAIN)
        # What it reads may be a sequence of this pass, or one that was given to the model.
        return own, "encoder" if "encoder" in streams else MEMORY
    for stream in streams:
        if any(part in (stream, f"{stream}_model") for part in path):
            return stream, stream
    stream = MAIN if MAIN in streams or not streams else streams[0]
    return stream, stream


@dataclass(frozen=True)
class Place:
    """Where an attention call stands: its kind, the layer that it is part of, and its streams."""

    kind: str
    layer: int
    query_stream: str
    key_stream: str


class Places:
    """Places the calls of one forward pass in the order they come; modules may be shared, calls are not.

    A layer is the place of a block among the blocks of its stack, also where some of them do not attend, so that
    `hidden_states[layer + 1]` is what it wrote. Where one block attends more than once, or there is no stack, calls of
    one kind and stream are counted. lengths: how many positions each stream has, where that is known. told: for texts
    of one token, whether each call of the same model on longer ones is causal.
    """

    def __init__(self, lengths: Mapping[str, int | None], batch: "Batch", told: Sequence[bool] = ()) -> None:
        self.lengths, self.batch, self.told = lengths, batch, told
        self.layers: dict[tuple[str, str], list[int]] = {}
        self._causal: dict[int, tuple[Bias, bool | None]] = {}

    def next(self, call: Call) -> Place:
        """The place of the next call."""
        query_stream, key_stream = self._fitting(call, *_streams_of(call, list(self.lengths)))
        if query_stream != key_stream:
            kind = CROSS
        else:
            kind = DECODER if query_stream == "decoder" or self.is_causal(call, query_stream) else ENCODER
        before = self.layers.setdefault((kind, query_stream), [])
        least = before[-1] + 1 if before else 0
        before.append(max(least, call.block or 0))
        return Place(kind, before[-1], query_stream, key_stream)

    def _fitting(self, call: Call, query_stream: str, key_stream: str) -> tuple[str, str]:
        """The streams of a call, unless its queries or its keys are not as many as there are positions in them."""
        queries, keys = call.query.shape[2], call.key.shape[2]
        length = self.lengths.get(query_stream)
        if query_stream != key_stream or (queries == keys and length in (None, queries)):
            return query_stream, key_stream
        if queries == keys:
            return OTHER, OTHER
        own = length or max(queries, keys)
        return query_stream if queries == own else QUERIES, key_stream if keys == own else MEMORY

    def is_causal(self, call: Call, stream: str) -> bool:
        """Whether no token of the pass may see a later one; of texts of one token, what longer ones show, or say."""
        if id(call.bias) not in self._causal:  # most layers share one
            self._causal[id(call.bias)] = call.bias, self._sees_no_later(call, stream)
        seen = self._causal[id(call.bias)][1]
        if seen is not None:
            return seen
        return self.told[call.index] if call.index < len(self.told) else bool(call.causal)

    def _sees_no_later(self, call: Call, stream: str) -> bool | None:
        queries, keys = call.query.shape[2], call.key.shape[2]
        if queries != keys:
            return False
        told = None
        for text in range(call.query.shape[0]):
            own = self.batch.own_positions(text, stream, queries)
            own = (torch.arange(queries) if own is None else own).to(call.query.device)
            if len(own) < 2:
                continue
            if call.bias.causal:
                # Whatever else is masked: no cell of the triangle is formed to see it.
                told = True
                continue
            allowed = call.bias.allowed
            allowed = allowed if allowed is None or allowed.shape[0] == 1 else allowed[text : text + 1]
            cells = Bias(allowed).cells(own, keys)
            if cells is None or bool(cells[..., own].expand(*cells.shape[:-2], len(own), len(own)).triu(1).any()):
                return False
            told = True
        return told
