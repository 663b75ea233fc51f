"""What each part of the model adds to the outcome directly."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from identiscope.linalg.jacobian.blocks import normalise
from identiscope.linalg.parts import StreamParts
from identiscope.linalg.updates import directions, token_worths
from identiscope.methods.mixtures.steps import check_one_stream
from identiscope.methods.scores.answer import Score


def direct_logit_attribution(
    attention: Sequence[Tensor],
    value: Sequence[Tensor],
    projection: Sequence[Tensor],
    parts: StreamParts,
    outcome: Any,
) -> Score:
    """What heads, feed-forward parts and embeddings write along the direction in which the outcome is read.

    Elhage et al. 2021: the last state is a sum of what every part has added to the stream, norms taken as they are at
    this input, so that each has a share in the outcome that reaches it directly. `by_head` [layer, head],
    `feed_forward` and `layer_total` [layer], the embeddings and the biases add up to the outcome's derivative times the
    last state (`promised_sum`): the logit itself, or the difference of two; of a log-probability, the logit less the
    mean logit that the model expects. The score of an input is what all heads bring directly from its place, and its
    embedding where the outcome is read. `lens` is the same product with the state after each block instead of the last
    (the logit lens, nostalgebraist 2020).

    >>> from identiscope.linalg.parts import LayerParts, Step
    >>> from types import SimpleNamespace
    >>> x, half, none = torch.ones(2, 1), torch.full((1, 2, 2), 0.5), torch.zeros(2, 1)
    >>> parts = StreamParts((LayerParts((Step(0, x, x, 2 * x),), Step(-1, 2 * x, none, 2 * x)),))
    >>> outcome = SimpleNamespace(read=torch.tensor([0.0, 1.0]), direction=torch.tensor([[0.0], [1.0]]))
    >>> direct_logit_attribution([half], [x[None]], [torch.ones(1, 1, 1)], parts, outcome).score
    tensor([0.5000, 1.5000], dtype=torch.float64)
    """
    check_one_stream(parts)
    along = outcome.direction.double()
    layers, bias = directions(parts, along)
    count = len(along)
    score = torch.zeros(count, dtype=torch.float64, device=along.device)
    heads, feeds, lens = [], [], []
    for place, (layer, read) in enumerate(zip(parts.layers, layers, strict=True)):
        worths = token_worths(attention[place], value[place], projection[place], read.attends[0])
        score += worths.sum(0)
        heads.append(worths.sum(1))
        feeds.append((layer.feeds.addition.double() * read.feeds).sum())
        attended = (layer.attends[0].addition.double() * read.attends[0]).sum()
        bias += read.bias + float(attended - worths.sum())
        lens.append((normalise(parts.final, layer.feeds.after.double()) * along).sum())
    first = parts.layers[0].attends[0].before.double()
    embedding = (first * layers[0].before).sum(-1)
    last = normalise(parts.final, parts.layers[-1].feeds.after.double())
    by_head, by_feed = torch.stack(heads), torch.stack(feeds)
    whole = float((last * along).sum())
    total = float(by_head.sum() + by_feed.sum() + embedding.sum()) + bias
    return Score(
        score + embedding,
        more={
            "by_head": (("layer", "head"), by_head),
            "feed_forward": (("layer",), by_feed),
            "layer_total": (("layer",), by_head.sum(1) + by_feed),
            "lens": (("layer",), torch.stack(lens)),
        },
        said={"promised_sum": whole, "residual": total - whole, "bias": bias, "embedding": float(embedding.sum())},
    )
