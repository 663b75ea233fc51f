"""A last state as a sum of what every part of the layers wrote, each carried forwards through norms that are held.

Forwards, vector by vector, where the package goes backwards with one direction.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from plain_models import PlainNorm, Ran

#: (layer, name, head, key): name is "head", "feed", "bias" or "embedding"; head and key are −1 where there is none.
Part = tuple[int, str, int, int]


@dataclass
class Ledger:
    """What each part has in each token's state [token, model] so far."""

    held: dict[Part, Tensor] = field(default_factory=dict)

    def add(self, part: Part, what: Tensor) -> None:
        """A part writes to the stream."""
        self.held[part] = self.held.get(part, torch.zeros_like(what)) + what

    def behind(self, norm: PlainNorm | None, at: Tensor, layer: int) -> None:
        """All parts behind a norm that divides by what it divides the whole by; its bias is a part of its own."""
        if norm is None:
            return
        self.held = {part: norm.linear(what, at) for part, what in self.held.items()}
        if norm.bias is not None:
            self.add((layer, "bias", -1, -1), norm.bias.expand_as(at))

    @property
    def whole(self) -> Tensor:
        """All of them together."""
        return torch.stack(list(self.held.values())).sum(0)


def ledger(plain: Ran) -> Ledger:
    """The last state, part by part; attention to another stream is called "cross"."""
    found = Ledger()
    found.add((-1, "embedding", -1, -1), plain.embeddings)
    for number, layer in enumerate(plain.layers):
        for which, one in enumerate(layer.attended):
            inner, name = one.part.inner, ("head", "cross")[which]

            def written(what: Tensor, norm: PlainNorm | None = inner, at: Tensor = one.addition) -> Tensor:
                return what if norm is None else norm.linear(what, at)

            for head in range(len(one.maps)):
                for key in range(one.maps.shape[2]):
                    moved = one.maps[head, :, key, None] * (one.value[head, key] @ one.output[head])
                    found.add((number, name, head, key), written(moved))
            found.add((number, "bias", -1, -1), written(one.part.heads.bias.expand_as(one.addition)))
            if inner is not None and inner.bias is not None:
                found.add((number, "bias", -1, -1), inner.bias.expand_as(one.addition))
            found.behind(one.part.outer, one.sum, number)
        inner = layer.feeds.inner
        fed = layer.addition if inner is None else inner.linear(layer.addition, layer.addition)
        found.add((number, "feed", -1, -1), fed)
        if inner is not None and inner.bias is not None:
            found.add((number, "bias", -1, -1), inner.bias.expand_as(fed))
        found.behind(layer.feeds.outer, layer.sum, number)
    found.behind(plain.side.final, plain.layers[-1].after, len(plain.layers))
    return found


def worths(plain: Ran, direction: np.ndarray) -> dict[Part, np.ndarray]:
    """What each part is worth along a direction [token, model], token by token [token]."""
    along = torch.from_numpy(direction)
    return {part: (what * along).sum(-1).numpy() for part, what in ledger(plain).held.items()}
