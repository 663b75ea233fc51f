"""The arguments of one forward call over several texts, and what to call each of their positions."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.capture.streams import MAIN
from identiscope.errors import InputError


@dataclass(frozen=True)
class Labels:
    """The positions of one text in one stream: its tokens, ids, character spans, and which are special.

    `positions` are their places in the padded batch; `cut` counts the tokens that truncation removed.
    """

    tokens: tuple[str, ...]
    ids: tuple[int, ...] | None
    offsets: tuple[tuple[int, int], ...] | None
    special: tuple[bool, ...]
    positions: tuple[int, ...]
    cut: int = 0


@dataclass(frozen=True)
class Batch:
    """Arguments of one forward call, and the labels of each text in it by stream.

    apart: the model makes the decoder's input of the encoder's, of the padding too; each text has to run alone.
    """

    arguments: Mapping[str, Tensor]
    labels: tuple[Mapping[str, Labels], ...]
    apart: bool = False

    @property
    def size(self) -> int:
        """How many texts."""
        return len(self.labels)

    @property
    def is_padded(self) -> bool:
        """Whether any text has positions that are no tokens of it."""
        return not all(self._is_unpadded(*stream) for labels in self.labels for stream in labels.items())

    def length(self, stream: str) -> int | None:
        """How many positions a stream has, padding included; None if that cannot be told from the arguments."""
        ids = self.arguments.get("decoder_input_ids" if stream == "decoder" else "input_ids")
        return ids.shape[1] if ids is not None and stream in self.labels[0] else None

    def own_positions(self, text: int, stream: str, length: int) -> Tensor | None:
        """Where a text's own tokens are in a sequence of `length` positions; None if that has no padding."""
        labels = self.labels[text].get(stream)
        if labels is None or len(labels.positions) == length or self.length(stream) != length:
            return None
        return torch.tensor(labels.positions)

    def renamed(self, old: str, new: str) -> "Batch":
        """The same with another name for a stream."""
        labels = ({new if stream == old else stream: part for stream, part in one.items()} for one in self.labels)
        return Batch(self.arguments, tuple(labels), self.apart)

    def passes(self) -> "list[Batch]":
        """What is run together: all texts, or each alone."""
        return [self.single(text) for text in range(self.size)] if self.apart else [self]

    def only(self) -> "Batch":
        """The one text, without padding; refused where there are several."""
        if self.size != 1:
            raise InputError(f"{self.size} texts were given, where one is meant; give them one at a time.")
        return self.single(0)

    def doubled(self) -> "Batch":
        """The same texts, each written twice on end."""
        arguments = {}
        for name, tensor in self.arguments.items():
            ids = "decoder_input_ids" if name.startswith("decoder_") else "input_ids"
            length = self.arguments[ids].shape[1] if ids in self.arguments else -1
            is_doubled = by_position(name, tensor, ids, length) and name != "position_ids"
            arguments[name] = torch.cat([tensor, tensor], 1) if is_doubled else tensor
        arguments.pop("position_ids", None)
        labels = tuple(
            {
                stream: Labels(
                    old.tokens * 2,
                    None,
                    None,
                    old.special * 2,
                    (*old.positions, *(place + (self.length(stream) or 0) for place in old.positions)),
                )
                for stream, old in by_stream.items()
            }
            for by_stream in self.labels
        )
        return Batch(arguments, labels)

    def single(self, text: int) -> "Batch":
        """One text alone, without padding, as a batch of one."""
        if self.size == 1 and all(self._is_unpadded(*stream) for stream in self.labels[0].items()):
            return self
        arguments = {}
        for name, tensor in self.arguments.items():
            ids = "decoder_input_ids" if name.startswith("decoder_") else "input_ids"
            stream = self.labels[text].get(_stream_of(ids, self.labels[text]))
            length = self.arguments[ids].shape[1] if ids in self.arguments else -1
            part = tensor[text : text + 1]
            if stream is not None and by_position(name, part, ids, length):
                part = part[:, list(stream.positions)]
            arguments[name] = part
        labels = {
            name: Labels(old.tokens, old.ids, old.offsets, old.special, tuple(range(len(old.tokens))), old.cut)
            for name, old in self.labels[text].items()
        }
        return Batch(arguments, (labels,))

    def _is_unpadded(self, stream: str, labels: Labels) -> bool:
        length = self.length(stream)
        return labels.positions == tuple(range(len(labels.positions) if length is None else length))


def _stream_of(argument: str, labels: Mapping[str, Labels]) -> str:
    if argument.startswith("decoder_"):
        return "decoder"
    return next((stream for stream in ("encoder", "text", MAIN) if stream in labels), MAIN)


def by_position(name: str, value: Tensor, ids: str, length: int) -> bool:
    """Whether an argument has an entry for each position of the sequence whose ids are the argument `ids`."""
    if value.dim() < 2 or value.shape[1] != length or name.startswith("decoder_") != ids.startswith("decoder_"):
        return False
    return name.endswith("inputs_embeds") or (not name.startswith(("encoder_", "pixel")) and value.dim() < 4)


def moved_left(tensor: Tensor, steps: Tensor) -> Tensor:
    """Each row of [batch, position, …] rolled by its own number of steps."""
    return torch.stack([row.roll(-int(step), 0) for row, step in zip(tensor, steps, strict=True)])
