"""Heads that point from a word to the one it depends on: attention between words, and whether it hits."""

from collections.abc import Sequence

import torch
from torch import Tensor


def word_attention(attention: Tensor, pieces: Sequence[Sequence[int]]) -> Tensor:
    """Attention between words (Clark et al. 2019, §4.1): to the pieces of a word added up, from them on average.

    attention [head, query, key] gives [head, word, word].

    >>> word_attention(torch.tensor([[[0.5, 0.5, 0.0], [0.1, 0.2, 0.7], [0.3, 0.3, 0.4]]]), [[0, 1], [2]])
    tensor([[[0.6500, 0.3500],
             [0.6000, 0.4000]]])
    """
    members = torch.zeros(len(pieces), attention.shape[-1], dtype=attention.dtype, device=attention.device)
    for word, places in enumerate(pieces):
        members[word, list(places)] = 1
    return members / members.sum(1, keepdim=True) @ attention @ members.mT


def strongest_words(words: Tensor) -> Tensor:
    """The other word that each word attends to most, [head, word]; −1 where it attends to no other.

    >>> strongest_words(torch.tensor([[[0.9, 0.1], [0.0, 1.0]]]))
    tensor([[ 1, -1]])
    """
    others = words - torch.diag_embed(words.diagonal(dim1=1, dim2=2))
    if others.shape[-1] == 1:
        return others.new_full(others.shape[:2], -1, dtype=torch.long)
    largest, place = others.max(-1)
    return torch.where(largest > 0, place, -1)
