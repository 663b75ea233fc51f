"""What one raw attention map looks like, in a few numbers. It says nothing yet of what is real in it."""

import math
from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass(frozen=True)
class MapSummary:
    """Mean row entropy in bits, mean weight on special tokens and on the token itself, strongest other weight."""

    entropy: float
    to_special: float
    to_self: float
    strongest: float
    strongest_query: int
    strongest_key: int


@dataclass(frozen=True)
class HeadSummary:
    """The summaries of every head."""

    maps: tuple[MapSummary, ...]

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Tensor]]:
        """By name, with their axes."""
        names = [field.name for field in fields(MapSummary)]
        return {name: (("head",), torch.tensor([getattr(one, name) for one in self.maps])) for name in names}


def head_summary(attention: Tensor, special: Tensor) -> HeadSummary:
    """Summarise the map of every head: attention [head, query, key], special [key].

    >>> head_summary(torch.eye(3)[None], torch.tensor([True, False, False])).maps[0].to_self
    1.0
    """
    return HeadSummary(tuple(map_summary(one, special) for one in attention))


def map_summary(attention: Tensor, special: Tensor) -> MapSummary:
    """Summarise one map.

    attention [query, key]; special [key], True for tokens such as [CLS] and [SEP]. The strongest weight is
    looked for between two different tokens that are not special, where there is such a pair.
    """
    special = special.to(attention.device)
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
    return MapSummary(
        entropy=entropy,
        to_special=float(attention[:, special].sum(-1).mean()),
        to_self=float(attention.diagonal().mean()) if square else float("nan"),
        strongest=float(attention[query, key]),
        strongest_query=query,
        strongest_key=key,
    )
