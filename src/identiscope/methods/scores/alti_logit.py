"""What each input has in the outcome through every layer's update."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from identiscope.linalg.jacobian.blocks import normalise
from identiscope.linalg.updates import directions, token_worths
from identiscope.methods.mixtures.alti import alti, layer_contributions
from identiscope.methods.scores.answer import Score
from identiscope.methods.sides import Side


def alti_logit(sides: Sequence[Side], outcome: Any, *, feed_forward: bool = False) -> Score:
    """Σ_l Σ_j Δ_l,j·M_l−1,ji: what attention brings from token j to the outcome in layer l, carried to the inputs.

    Ferrando et al. 2023, eq. 9 to 12: Δ_l,j is what the heads of layer l add along the direction in which the outcome
    is read, from place j, and M_l−1,ji how much of input i is in the token there, by ALTI; of a decoder that reads an
    encoder, from the places of both. The embedding of a token that is read counts for itself. `by_layer` [layer, input]
    has the layers apart. What feed-forward parts and biases add directly is left out, as in the paper, and is the
    `residual`.

    feed_forward: share out what the feed-forward parts add, too, by what the token that they read is made of.

    >>> alti_logit([side], outcome).score  # a side of a traced model, and an outcome of it
    """
    side, encoder = sides[-1], alti(sides[:-1]).rolled[-1] if len(sides) > 1 else None
    along = outcome.direction.double()
    reads, _ = directions(side.parts, along)
    count = len(along)
    before = torch.eye(count, dtype=torch.float64, device=along.device)
    if encoder is not None:
        before = torch.cat([before.new_zeros(count, encoder.shape[1]), before], 1)
    embedding = (side.parts.layers[0].attends[0].before.double() * reads[0].before).sum(-1) @ before
    by_layer: list[Tensor] = []
    for place, (layer, read) in enumerate(zip(side.parts.layers, reads, strict=True)):
        fields = side.layers[place]
        gained = token_worths(fields.attention, fields.value, fields.projection, read.attends[0]).sum(0) @ before
        if encoder is not None:
            cross = side.cross[place]
            worth = token_worths(cross.attention, cross.value, cross.projection, read.attends[1]).sum(0)
            gained[: encoder.shape[1]] += worth @ encoder
        after = layer_contributions(side, place, before, encoder)[0]
        if feed_forward:
            made_of = before if layer.parallel else after
            gained = gained + (layer.feeds.addition.double() * read.feeds).sum(-1) @ made_of
        before = after
        by_layer.append(gained)
    last = normalise(side.parts.final, side.parts.layers[-1].feeds.after.double())
    score = torch.stack(by_layer).sum(0) + embedding
    return Score(
        score, whole=float((last * along).sum()), more={"by_layer": (("layer", "input"), torch.stack(by_layer))}
    )
