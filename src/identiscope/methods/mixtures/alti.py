"""Aggregation of layer-wise token-to-token interactions."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from identiscope.linalg.decomposition import losses, moved, pair_blocks, shares
from identiscope.linalg.parts import Step
from identiscope.methods.mixtures.steps import Steps
from identiscope.methods.sides import Side


def alti(sides: Sequence[Side]) -> Steps:
    """c_ij ∝ max(0, ‖y_i‖₁ − ‖y_i − T_ij‖₁), rows normalised, multiplied up (Ferrando et al. 2022, eq. 7 and 8).

    y_i is what a step of attention makes of token i, norm included, and T_ij what j brings to it; the stream itself is
    brought by i. A decoder that reads an encoder (ALTI+) has its own tokens behind those of the encoder as inputs: in
    each layer, what the step to the encoder leaves to the stream is shared out as its own step says. A row without a
    part that helps stays zero.

    >>> alti([side]).rolled  # a side of a traced model, as the field `sides` gives it
    """
    side, encoder = sides[-1], alti(sides[:-1]).rolled[-1] if len(sides) > 1 else None
    count = len(side.parts.layers[0].feeds.after)
    before = torch.eye(count, dtype=torch.float64, device=side.parts.layers[0].feeds.after.device)
    if encoder is not None:
        before = torch.cat([before.new_zeros(count, encoder.shape[1]), before], 1)
    rolled, steps = [], []
    for place in range(len(side.parts.layers)):
        before, step = layer_contributions(side, place, before, encoder)
        rolled.append(before)
        steps.append(step)
    return Steps(torch.stack(rolled), torch.stack(steps))


def layer_contributions(side: Side, place: int, before: Tensor, encoder: Tensor | None) -> tuple[Tensor, Tensor]:
    """What tokens are made of after a layer [output, input], and that layer alone; before: what they were made of,
    encoder: what the last states of the encoder are made of, if the layer reads one."""
    layer = side.parts.layers[place]
    own, _ = contributions(side.layers[place], layer.attends[0])
    if encoder is None:
        return own @ before, own
    read, stays = contributions(side.cross[place], layer.attends[1], same=False)
    mixed = stays[:, None] * (own @ before)
    mixed[:, : encoder.shape[1]] += read @ encoder
    return mixed, torch.cat([read, stays[:, None] * own], 1)


def contributions(fields: Any, step: Step, *, same: bool = True) -> tuple[Tensor, Tensor]:
    """c_ij of one step of attention, [query, key], and the share of the stream itself [query].

    same: queries and keys are the same tokens, and the stream is part of what comes from a query's own place.
    """
    pieces = moved(fields.attention, fields.value, fields.projection, step)
    after, own = step.after.double(), pieces.own_part
    assert own is not None
    rows, stays = [], []
    for some, vectors in pair_blocks(pieces):
        if same:
            vectors[torch.arange(len(some)), some] += own[some]
        helps = losses(after[some], vectors).clamp(min=0)
        stream = losses(after[some], own[some][:, None]).clamp(min=0)
        together = shares(helps if same else torch.cat([helps, stream], 1))
        rows.append(together if same else together[:, :-1])
        stays.append(torch.ones_like(stream[:, 0]) if same else together[:, -1])
    return torch.cat(rows), torch.cat(stays)
