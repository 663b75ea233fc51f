"""Information flow routes."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.decomposition import losses, moved
from identiscope.linalg.parts import LayerParts, StreamParts, linear_part
from identiscope.methods.mixtures.steps import check_one_stream
from identiscope.methods.scores.answer import Score

#: The least that a part counts before parts are shared out, as in the paper.
_FLOOR = 1e-5
#: In the list of edges: what is no head.
STREAM, FEED_FORWARD = -1, -2


def flow_routes(
    attention: Sequence[Tensor],
    value: Sequence[Tensor],
    projection: Sequence[Tensor],
    parts: StreamParts,
    outcome: Any,
    *,
    threshold: float = 0.01,
    norm: int = 1,
) -> Score:
    """The routes that a prediction came by: each edge's share of its token, followed down from where that is read.

    Ferrando & Voita 2024, eq. 4 and 6: an edge brings part z of the token's state y, and counts
    max(‖y‖₁ − ‖y − z‖₁, ε), as a share of all edges into that token: of every head from every place and the stream in
    the step of attention, of the feed-forward part and the stream in the step after it. Edges below the threshold are
    taken away and the rest shared out again. What an input scores is what arrives there of the outcome. The graph is in
    `edge_layer`, `edge_query`, `edge_key`, `edge_head` (−1: the stream, −2: the feed-forward part) and `edge_weight`,
    its share of the outcome; `by_head` [layer, head] and `feed_forward` [layer] are what passes through these.

    threshold: of an edge's share. norm: 1, as in the paper, or 2, which does not depend on the axes of the stream.

    >>> from identiscope.linalg.parts import LayerParts, Step
    >>> from types import SimpleNamespace
    >>> x, half, none = torch.ones(2, 1), torch.full((1, 2, 2), 0.5), torch.zeros(2, 1)
    >>> parts = StreamParts((LayerParts((Step(0, x, x, 2 * x),), Step(-1, 2 * x, none, 2 * x)),))
    >>> outcome = SimpleNamespace(read=torch.tensor([0.0, 1.0]), direction=torch.tensor([[0.0], [1.0]]))
    >>> flow_routes([half], [x[None]], [torch.ones(1, 1, 1)], parts, outcome).score
    tensor([0.2500, 0.7500], dtype=torch.float64)
    """
    check_one_stream(parts)
    if not 0 <= threshold < 1 or norm not in (1, 2):
        raise InputError(f"threshold={threshold} and norm={norm} were given; expected a share below 1, and 1 or 2.")
    arriving = outcome.read.double()
    edges: list[Tensor] = []
    heads: list[Tensor] = []
    feeds: list[Tensor] = []
    for place in reversed(range(len(parts.layers))):
        layer = parts.layers[place]
        # Layers may be on several devices; what arrives goes down through all of them.
        fed = arriving * _feed_shares(layer, norm, threshold).to(arriving.device)
        feeds.insert(0, fed.sum())
        edges.append(_edges(place, FEED_FORWARD, torch.diag(fed)))
        # A feed-forward part beside attention reads what the layer was given: its share passes attention by.
        beside = fed if layer.parallel else torch.zeros_like(fed)
        attends = arriving - beside
        own = (attention[place], value[place], projection[place], layer, attends.to(attention[place].device))
        shares = _attention_shares(*own, norm, threshold).to(arriving.device)
        passing = attends[:, None, None] * shares
        edges += [_edges(place, head, passing[:, :, head]) for head in range(passing.shape[2] - 1)]
        edges.append(_edges(place, STREAM, passing[:, :, -1]))
        heads.insert(0, passing[..., :-1].sum((0, 1)))
        arriving = passing.sum((0, 2)) + beside
    graph = torch.cat(edges)
    graph = graph[graph[:, 4].argsort(descending=True, stable=True)]
    names = ("edge_layer", "edge_query", "edge_key", "edge_head")
    listed = {name: (("edge",), graph[:, column].long()) for column, name in enumerate(names)}
    return Score(
        arriving,
        more={
            "by_head": (("layer", "head"), torch.stack(heads)),
            "feed_forward": (("layer",), torch.stack(feeds)),
            **listed,
            "edge_weight": (("edge",), graph[:, 4]),
        },
    )


def contribution_shares(whole: Tensor, vectors: Tensor, norm: int, threshold: float) -> Tensor:
    """Shares of parts [row, part, model] in their sum [row, model], those below the threshold taken away.

    >>> whole, parts = torch.tensor([[2.0, 2.0]]), torch.tensor([[[1.0, 1.0], [-1.0, 0.0], [2.0, 1.0]]])
    >>> contribution_shares(whole, parts, 2, 0.0).round(decimals=4)
    tensor([[0.4361, 0.0000, 0.5639]])
    """
    return cut(losses(whole, vectors, norm).clamp(min=_FLOOR), threshold)


def cut(helps: Tensor, threshold: float) -> Tensor:
    """Shares of rows, those below the threshold taken away and the rest shared out again; the largest always stays.

    >>> cut(torch.tensor([[0.05, 0.15, 0.8]]), 0.1)
    tensor([[0.0000, 0.1579, 0.8421]])
    """
    share = helps / helps.sum(-1, keepdim=True)
    kept = torch.where((share >= threshold) | (share == share.max(-1, keepdim=True).values), share, 0.0)
    return kept / kept.sum(-1, keepdim=True)


def _feed_shares(layer: LayerParts, norm: int, threshold: float) -> Tensor:
    """The share of the feed-forward part in each token's state after it, [token]; the rest is the stream's."""
    step = layer.feeds
    inner, outer = linear_part(step.inner, step.addition), linear_part(step.outer, step.sum)
    added, stays = step.factor * step.addition.double(), step.before.double()
    if inner is not None:
        added = inner.shape(added) * inner.scale
    if outer is not None:
        added, stays = outer.shape(added) * outer.scale, outer.shape(stays) * outer.scale
    vectors = torch.stack([added, stays], 1)
    return contribution_shares(step.after.double(), vectors, norm, threshold)[:, 0]


def _attention_shares(
    attention: Tensor,
    value: Tensor,
    projection: Tensor,
    layer: LayerParts,
    arriving: Tensor,
    norm: int,
    threshold: float,
) -> Tensor:
    """Shares of all edges into each token, [query, key, head or stream]; rows at which nothing arrives stay zero."""
    step = layer.attends[0]
    pieces = moved(attention, value, projection, step)
    heads, queries, keys = attention.shape
    own = pieces.own_part
    assert own is not None
    shares = torch.zeros(queries, keys, heads + 1, dtype=torch.float64, device=attention.device)
    after = step.after.double()
    for query in (arriving > 0).nonzero().flatten().tolist():
        helps = shares.new_empty(keys, heads)
        for head in range(heads):
            vectors = pieces.attention[head, query, :, None] * pieces.of_head(head) * pieces.scale[query]
            helps[:, head] = losses(after[query][None], vectors[None], norm)[0]
        # A cell that no head may look at is no edge at all.
        helps = torch.where(attention[:, query].T > 0, helps.clamp(min=_FLOOR), 0.0)
        stream = losses(after[query][None], own[query][None, None], norm)[0].clamp(min=_FLOOR)
        share = cut(torch.cat([helps.flatten(), stream])[None], threshold)[0]
        shares[query, :, :heads] = share[:-1].view(keys, heads)
        shares[query, query, heads] = share[-1]
    return shares


def _edges(layer: int, head: int, weights: Tensor) -> Tensor:
    """(layer, query, key, head, weight) of the edges that carry something."""
    query, key = weights.nonzero(as_tuple=True)
    rest = torch.tensor([layer, head], dtype=weights.dtype, device=weights.device).expand(len(query), 2)
    return torch.stack([rest[:, 0], query.double(), key.double(), rest[:, 1], weights[query, key]], 1)
