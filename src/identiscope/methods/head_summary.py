"""What one raw attention map looks like, in a few numbers. It says nothing yet of what is real in it."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class HeadSummary:
    """Mean row entropy in bits, mean weight on special tokens and on the token itself, strongest other weight."""

    entropy: float
    to_special: float
    to_self: float
    strongest: float
    strongest_query: int
    strongest_key: int


def head_summary(attention: Tensor, special: Tensor) -> HeadSummary:
    """Summarise one map.

    attention [query, key]; special [key], True for tokens such as [CLS] and [SEP]. The strongest weight is
    looked for between two different tokens that are not special, where there is such a pair.
    """
    entropy = float(torch.special.entr(attention).sum(-1).mean() / math.log(2.0))
    candidates = attention.clone()
    square = attention.shape[0] == attention.shape[1]
    if square:
        candidates.fill_diagonal_(-1.0)
    ordinary = candidates.clone()
    ordinary[:, special] = -1.0
    if square:
        ordinary[special] = -1.0
    chosen = ordinary if bool((ordinary >= 0).any()) else candidates if bool((candidates >= 0).any()) else attention
    query, key = divmod(int(chosen.argmax()), attention.shape[1])
    return HeadSummary(
        entropy=entropy,
        to_special=float(attention[:, special].sum(-1).mean()),
        to_self=float(attention.diagonal().mean()) if square else float("nan"),
        strongest=float(attention[query, key]),
        strongest_query=query,
        strongest_key=key,
    )
