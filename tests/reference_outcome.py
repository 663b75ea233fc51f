"""An outcome of tiny models, and its derivatives by embeddings and by attention, from plain layers."""

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor

import identiscope
from plain_families import PRECISION, SIDES, model_of, ran
from plain_models import Ran, Side, run

#: How far a derivative may be from that of the plain layers.
TOLERANCE = {family: 50 * PRECISION.get(family, 1e-12) for family in SIDES}


def number(last: Tensor) -> Tensor:
    """One number of the last states, to which every channel of every token matters, and none in proportion."""
    directions = torch.linspace(-1, 1.3, last.numel(), dtype=last.dtype).view_as(last)
    return torch.tanh(last * directions).sum()


def read(run: identiscope.Rerun) -> Tensor:
    """The same of a model's own pass."""
    return number(run.hidden_states[-1])


@cache
def side_of(family: str) -> Side:
    """The layers of a tiny model."""
    return SIDES[family](model_of(family))


def value(family: str, x: Tensor) -> float:
    """The outcome for other embeddings [token, model]."""
    with torch.no_grad():
        return float(number(run(side_of(family), x).last))


def gradient(family: str, x: Tensor) -> Tensor:
    """Its derivative by them."""
    x = x.detach().clone().requires_grad_()
    (found,) = torch.autograd.grad(number(run(side_of(family), x).last), x)
    return found


def with_maps(family: str, change: Callable[[int, Tensor], Tensor]) -> Ran:
    """A pass whose attention is changed, by the number of the layer."""
    return run(side_of(family), ran(family)[1].embeddings, maps=lambda layer, _, maps: change(layer, maps))


def map_gradients(family: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Attention, and the derivative of the outcome by it, of every layer: all that comes after it follows."""
    kept: list[Tensor] = []

    def keep(_: int, maps: Tensor) -> Tensor:
        kept.append(maps.detach() + torch.zeros_like(maps).requires_grad_())
        return maps + (kept[-1] - kept[-1].detach())

    ran_ = with_maps(family, keep)
    slopes = torch.autograd.grad(number(ran_.last), kept)
    return [(maps.detach().numpy(), slope.numpy()) for maps, slope in zip(kept, slopes, strict=True)]


def answers(family: str) -> Callable[[Tensor], Tensor]:
    """The outcome of several embeddings [text, token, model], as other libraries ask for it."""
    return lambda x: torch.stack([number(run(side_of(family), one).last) for one in x])
