"""Which places of a padded batch are whose, and what kind of token stands there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from identiscope.capture.batch import Labels
from identiscope.methods.tokens.types import types_of_tokens


@dataclass(frozen=True, eq=False)
class BatchTokens:
    """The tokens of a batch: real [text, place], false at padding; types [text, type, place] as named in `TYPES`.

    copies [text, place] are numbers of groups: equal tokens of a text are of one group.

    words are the tokens of each text themselves.

    `cls` and `sep` are the tokenizer's own, whatever it calls them; `special` are all special tokens, these included.
    """

    TYPES: ClassVar = ("special", "cls", "sep", "punctuation", "other")

    real: Tensor
    types: Tensor
    lengths: list[int]
    copies: Tensor
    words: tuple[tuple[str, ...], ...] = ()

    def places(self, text: int) -> Tensor:
        """Where one text is."""
        return self.real[text].nonzero()[:, 0]


def batch_tokens(labels: Sequence[Labels], width: int, tokenizer: Any) -> BatchTokens:
    """The tokens of some texts in a batch of `width` places."""
    real = torch.zeros(len(labels), width, dtype=torch.bool)
    types = torch.zeros(len(labels), len(BatchTokens.TYPES), width, dtype=torch.bool)
    copies = torch.zeros(len(labels), width, dtype=torch.long)
    for number, label in enumerate(labels):
        places = list(label.positions)
        flags = types_of_tokens(label.tokens, label.ids, label.special, tokenizer)
        groups: dict[str, int] = {}
        copies[number, places] = torch.tensor([groups.setdefault(token, len(groups)) for token in label.tokens])
        real[number, places] = True
        types[number, :, places] = torch.tensor([flags[name] for name in BatchTokens.TYPES])
    lengths, words = [len(label.positions) for label in labels], tuple(label.tokens for label in labels)
    return BatchTokens(real, types, lengths, copies, words)
