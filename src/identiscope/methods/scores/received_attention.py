"""What each token is given in the first layer: the order in which a text may be shortened."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.allowed import Allowed
from identiscope.methods.maps.effective_simplex_span import effective_simplex_span
from identiscope.methods.scores.answer import Score


def received_attention(
    attention: Sequence[Tensor],
    value: Sequence[Tensor],
    projection: Sequence[Tensor],
    allowed: Sequence[Allowed],
    precision: Sequence[torch.dtype | None],
    row_sum: Sequence[Tensor | None],
    embeddings: Tensor,
    *,
    of: Literal["attention", "effective"] = "attention",
    layer: int = 0,
) -> Score:
    """s_j = Σ_i a_ij of one layer, mean over heads: what token j receives (Tan et al. 2023, who keep the tokens that
    receive most in the first layer and delete the others).

    No outcome has a say in it. Of an encoder–decoder it is the decoder's own attention; what is read from the encoder
    scores zero.

    of: raw `attention`, or the map that no rewriting of the model changes (`effective`: effective_simplex_span). layer:
    which one, from 0 among those captured.

    >>> maps, one = [torch.tensor([[[0.25, 0.75], [0.5, 0.5]]])], [torch.eye(2)[None]]
    >>> received_attention(maps, one, one, [None], [None], [None], torch.zeros(2, 1)).score
    tensor([0.7500, 1.2500], dtype=torch.float64)
    """
    if not 0 <= layer < len(attention):
        raise InputError(f"layer={layer} was given; expected one of 0 to {len(attention) - 1}.")
    maps = attention[layer].double()
    if of == "effective":
        own = value[layer].double().repeat_interleave(len(maps) // len(value[layer]), 0)
        given = projection[layer], maps @ own, allowed[layer], precision[layer], row_sum[layer]
        maps = effective_simplex_span(value[layer], *given).dense()
    received = maps.sum(1).mean(0)
    score = torch.zeros(len(embeddings), dtype=torch.float64, device=received.device)
    score[len(embeddings) - len(received) :] = received
    return Score(score)
