"""Which sequences of hidden states a forward pass returned, and which of them an attention call reads."""

import re
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from identiscope.capture.calls import Call

MAIN = "tokens"
ENCODER, DECODER, CROSS = "encoder-self", "decoder-self", "cross"
# Positions that are no part of the text: what an encoder outside this model returned.
MEMORY = "memory"
_CROSS = re.compile(r"cross|encoder_attn|encdec|enc_dec|decoder.*multihead_attn|^layers.*multihead_attn", re.IGNORECASE)


def hidden_states(outputs: Any) -> dict[str, tuple[Tensor, ...]]:
    """Hidden states by stream, from a transformers output: [batch, n, d] for the input and every layer."""
    found: dict[str, tuple[Tensor, ...]] = {}
    for attribute, stream in (
        ("encoder_hidden_states", "encoder"),
        ("decoder_hidden_states", "decoder"),
        ("hidden_states", MAIN),
    ):
        states = getattr(outputs, attribute, None)
        if states:
            found[stream] = tuple(states)
    for attribute, stream in (("text_model_output", "text"), ("vision_model_output", "vision")):
        tower = getattr(outputs, attribute, None)
        if tower is not None and getattr(tower, "hidden_states", None):
            found[stream] = tuple(tower.hidden_states)
    return found


def _role(call: Call, streams: list[str]) -> tuple[str, str, str]:
    """Kind, query stream and key stream of a call, from where its module stands in the model."""
    path = call.name.split(".")
    own = next((stream for stream in ("decoder", MAIN) if stream in streams), streams[0] if streams else MAIN)
    if _CROSS.search(call.name):
        # What it reads may be a sequence of this pass, or one that was given to the model.
        return CROSS, own, "encoder" if "encoder" in streams else MEMORY
    for stream in ("decoder", "encoder", "text", "vision"):
        if stream in streams and any(part in (stream, f"{stream}_model") for part in path):
            return DECODER if stream == "decoder" or call.causal else ENCODER, stream, stream
    stream = MAIN if MAIN in streams or not streams else streams[0]
    return DECODER if call.causal or stream == "decoder" else ENCODER, stream, stream


@dataclass(frozen=True)
class Place:
    """Where an attention call stands: its kind, its layer among those of its kind and stream, its streams."""

    kind: str
    layer: int
    query_stream: str
    key_stream: str


class Places:
    """Numbers the calls of one forward pass in the order they come; modules may be shared, calls are not."""

    def __init__(self, streams: list[str]) -> None:
        self.streams = streams
        self.layers: dict[tuple[str, str], int] = {}

    def next(self, call: Call) -> Place:
        """The place of the next call."""
        kind, query_stream, key_stream = _role(call, self.streams)
        layer = self.layers.get((kind, query_stream), 0)
        self.layers[kind, query_stream] = layer + 1
        return Place(kind, layer, query_stream, key_stream)
