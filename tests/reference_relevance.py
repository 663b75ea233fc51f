"""Relevance passed down layer by layer, message by message, by the rules of AttnLRP: no derivative is taken.

Achtibat et al. 2024: a linear map hands each input its share x_i·W_ij/z_j of the relevance of an output (biases keep
theirs), sums share it out by their terms, activations and the divisions of norms pass it on as it is, a product of two
states gives half to each, and softmax is taken by its first-order part, x_i·(R_i − s_i·ΣR) (their eq. 5, 13, 14).
"""

import torch
from torch import Tensor

from plain_families import Gated, TwoLayers
from plain_models import Attended, Layer, PlainNorm, Ran, normed


def quotient(relevance: Tensor, of: Tensor) -> Tensor:
    """R/z; nothing where there is nothing to share out."""
    return torch.where(of == 0, 0.0, relevance / torch.where(of == 0, 1.0, of))


def through_linear(x: Tensor, weight: Tensor, made: Tensor, relevance: Tensor) -> Tensor:
    """Σ_j x_i·W_ij/z_j·R_j, z what was made of x, its bias included."""
    return x * (quotient(relevance, made) @ weight.mT)


def through_sum(one: Tensor, other: Tensor, relevance: Tensor) -> tuple[Tensor, Tensor]:
    """By terms."""
    share = quotient(relevance, one + other)
    return one * share, other * share


def through_norm(norm: PlainNorm | None, x: Tensor, relevance: Tensor) -> Tensor:
    """The division passes relevance on; taking the mean off is linear, and so are the weights."""
    if norm is None:
        return relevance
    each = quotient(relevance, norm(x)) * norm.weight / norm.deviation(x)
    return x * (each - each.mean(-1, keepdim=True) if norm.centred else each)


def through_product(one: Tensor, other: Tensor, relevance: Tensor) -> tuple[Tensor, Tensor]:
    """of [..., i, k] and [..., k, j]: half of each product's relevance goes to each factor (eq. 13)."""
    share = quotient(relevance, one @ other) / 2
    return one * (share @ other.mT), other * (one.mT @ share)


def turned_back(x: Tensor, width: int) -> Tensor:
    """The transposed of rotary positions."""
    half = width // 2
    speeds = 1.0 / (10000.0 ** (torch.arange(0, width, 2, dtype=torch.float32) / width))
    angles = torch.arange(x.shape[-2], dtype=torch.float32)[:, None] * speeds
    cosine, sine = angles.cos().double(), angles.sin().double()
    one, other, rest = x[..., :half], x[..., half:width], x[..., width:]
    return torch.cat([one * cosine + other * sine, other * cosine - one * sine, rest], -1)


def turned(x: Tensor, width: int) -> Tensor:
    """Rotary positions: the other way round than back."""
    half = width // 2
    flipped = torch.cat([x[..., :half], -x[..., half:width], x[..., width:]], -1)
    back = turned_back(flipped, width)
    return torch.cat([back[..., :half], -back[..., half:width], back[..., width:]], -1)


def through_attention(one: Attended, relevance: Tensor, lost: list[float]) -> Tensor:
    """From what attention returned, bias included, to the stream before its front norm [token, model].

    lost: what softmax keeps to itself, as a function that is not zero where its input is, is added to it.
    """
    heads, front = one.part.heads, one.part.front
    x = normed(front, one.before)
    context = one.maps @ one.value
    share = quotient(relevance, one.addition)
    at_context = context * (share @ one.output.mT)
    at_maps, at_value = through_product(one.maps, one.value, at_context)
    query, key = x @ heads.query + heads.biases[0], x @ heads.key + heads.biases[1]
    turned_query, turned_key = (turned(part, heads.rotated) if heads.rotated else part for part in (query, key))
    logits = turned_query @ turned_key.mT
    scaled = logits * (query.shape[-1] ** -0.5 if heads.scale is None else heads.scale)
    if heads.softcap is not None:
        scaled = heads.softcap * torch.tanh(scaled / heads.softcap)
    # Softmax; what may not be seen has no part in it. The cap before it is an activation, and passes it on.
    at_logits = scaled * (at_maps - one.maps * at_maps.sum(-1, keepdim=True))
    at_logits = torch.where(one.maps > 0, at_logits, 0.0)
    lost.append(float(at_maps.sum() - at_logits.sum()))
    at_query, at_key = through_product(turned_query, turned_key.mT, at_logits)
    at_key = at_key.mT
    if heads.rotated:
        at_query = query * turned_back(quotient(at_query, turned_query), heads.rotated)
        at_key = key * turned_back(quotient(at_key, turned_key), heads.rotated)
    at_x = sum(
        through_linear(x, weight, made, part).sum(0)
        for weight, made, part in (
            (heads.query, query, at_query), (heads.key, key, at_key), (heads.value, one.value, at_value),
        )
    )  # fmt: skip
    assert isinstance(at_x, Tensor)
    return through_norm(front, one.before, at_x)


def through_feeds(layer: Layer, given: Tensor, relevance: Tensor) -> Tensor:
    """From what the feed-forward part returned to the state that it read."""
    x, function = normed(layer.feeds.front, given), layer.feeds.function
    if isinstance(function, TwoLayers):
        hidden = x @ function.up[0] + function.up[1]
        at_hidden = through_linear(function.activation(hidden), function.down[0], layer.addition, relevance)
        at_x = through_linear(x, function.up[0], hidden, at_hidden)
    else:
        assert isinstance(function, Gated)
        gate, up = x @ function.gate, x @ function.up
        at_product = through_linear(function.activation(gate) * up, function.down, layer.addition, relevance)
        at_gate, at_up = at_product / 2, at_product / 2
        at_x = through_linear(x, function.gate, gate, at_gate) + through_linear(x, function.up, up, at_up)
            x, function.up, up, at_product / 2
        )
    return through_norm(layer.feeds.front, given, at_x)


def relevance(ran: Ran, at_last: Tensor) -> tuple[Tensor, float]:
    """What each input embedding is worth [token], from the relevance of the last states [token, model]; and what
    softmax has kept of it on the way."""
    lost: list[float] = []
    now = through_norm(ran.side.final, ran.layers[-1].after, at_last)
    for layer in reversed(ran.layers):
        one, feeds = layer.attended[0], layer.feeds
        now = through_norm(feeds.outer, layer.sum, now)
        now, at_added = through_sum(layer.before, normed(feeds.inner, layer.addition), now)
        at_added = through_norm(feeds.inner, layer.addition, at_added)
        given = one.before if feeds.parallel else layer.before
        at_given = through_feeds(layer, given, at_added)
        now = now if feeds.parallel else now + at_given
        now = through_norm(one.part.outer, one.sum, now)
        now, at_added = through_sum(one.before, normed(one.part.inner, one.addition), now)
        now = now + through_attention(one, through_norm(one.part.inner, one.addition, at_added), lost)
        now = now + at_given if feeds.parallel else now
    return now.sum(-1), sum(lost)
