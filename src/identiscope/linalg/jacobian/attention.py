"""Attention linearised at one input.

With p = softmax(logits) of one query, d(p·V) = Σ_s p_s·dlogit_s·(v_s − p·V) + Σ_s p_s·dv_s. The query's own
part, dlogit_s = k_s·dq, is therefore token-wise: the matrix C = Σ_s p_s·(v_s − p·V)·k_sᵀ, the covariance of
values and keys under the attention of that query. What mixes tokens is left with keys and values alone.

Weights are computed a few queries at a time and never kept, so that memory does not grow with n². Where
nothing looks ahead, tangents of token `first` and later are zero before it, and those tokens are left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import linear

from identiscope.linalg.jacobian.blocks import AttentionWeights, Rotation, rotate, split_heads
from identiscope.linalg.jacobian.workspace import Workspace


@dataclass(frozen=True, eq=False)
class LinearAttention:
    """One attention at one input: query [head, token, channel] with the scale in it, key and value
    [kv_head, token, channel], context [head, token, d_v]; `block` queries are worked on at a time.
    """

    weights: AttentionWeights
    query: Tensor
    key: Tensor
    value: Tensor
    context: Tensor
    block: int

    @property
    def output(self) -> Tensor:
        """What the attention returned, [token, model]."""
        return linear(self.context.transpose(0, 1).flatten(1), self.weights.output, self.weights.output_bias)

    @property
    def prefers_logits(self) -> bool:
        """Whether one map from the input to the logits of every query has no more rows than that to the keys."""
        return self.weights.rotation is None and fewer_logits(self.weights, self.query.shape[1])

    def steer(self, rows: slice) -> tuple[Tensor, Tensor]:
        """p of these queries, [head, query, key], and p_s·(v_s − p·V), [head, query, d_v, key]."""
        attention = _attention(self.weights, self.query[:, rows], self.key, rows)
        value = _repeat(self.value, self.weights.heads).transpose(1, 2)
        return attention, attention[:, :, None] * (value[:, None] - self.context[:, rows, :, None])

    def query_matrix(self, rows: slice) -> Tensor:
        """C of these queries, [query, head, d_v, d_k], with the scale in it."""
        steer = self.steer(rows)[1]
        key = _repeat(self.key, self.weights.heads) * self.weights.scale
        return torch.matmul(steer, key[:, None]).transpose(0, 1)

    def logit_rows(self, keys: Tensor) -> Tensor:
        """q_t·W_K for every head and query: [1 or token, head·query, model] from keys [1 or token, kv_head·d_k, model].

        With fewer queries than key channels these are fewer rows than the keys themselves.
        """
        groups, _, width = self.key.shape
        grouped = self.query.reshape(groups, -1, width)
        return torch.matmul(grouped, keys.reshape(len(keys), groups, width, -1)).flatten(1, 2)

    def gather(self, first: int, keys: Tensor, values: Tensor, space: Workspace, *, are_logits: bool) -> Tensor:
        """Tangents of the context, [token, head·d_v, column], without the queries' own part.

        keys [token, kv_head·d_k, column], or the logits themselves [token, head·query, column] of all
        queries; values [token, kv_head·d_v, column].
        """
        heads, tokens, width = self.context.shape
        groups, count, columns = len(self.key), len(values), values.shape[-1]
        mixed = space.take("mixed", values, count, heads, width, columns)
        by_group = values.view(count, groups, width * columns).transpose(0, 1)
        for rows in _slices(first, tokens, self.block):
            attention, steer = self.steer(rows)
            size = rows.stop - rows.start
            attention = attention[:, :, first:].reshape(groups, -1, count)
            gathered = space.take("gathered", values, groups, attention.shape[1], width * columns)
            gathered = torch.bmm(attention, by_group, out=gathered).view(heads * size, width, columns)
            if are_logits:
                logits = keys.view(count, heads, tokens, columns)[:, :, rows]
            else:
                query = self.query[:, rows].reshape(groups, -1, self.query.shape[-1]).expand(count, -1, -1, -1)
                logits = space.take("logits", values, count * groups, query.shape[2], columns)
                given = keys.reshape(count * groups, -1, columns)
                logits = torch.bmm(query.flatten(0, 1), given, out=logits).view(count, heads, size, columns)
            by_query = logits.permute(1, 2, 0, 3).reshape(heads * size, count, columns)
            gathered.baddbmm_(steer[..., first:].reshape(heads * size, width, count), by_query)
            here = slice(rows.start - first, rows.stop - first)
            mixed[here].copy_(gathered.view(heads, size, width, columns).transpose(0, 1))
        return mixed.view(count, heads * width, columns)

    def gather_own(self, tokens: range, keys: Tensor, values: Tensor, space: Workspace, *, are_logits: bool) -> Tensor:
        """As `gather`, for tangents that are zero but at one token each: keys and values are those of `tokens`.

        keys and values [own token, channels, direction]; the columns returned are own token × direction.
        """
        first = tokens.start if self.weights.causal else 0
        heads, count, width = self.context.shape
        groups, own, directions = len(self.key), len(tokens), values.shape[-1]
        mixed = space.take("mixed", values, count - first, heads, width, own, directions)
        # [head, own token, channel, direction]
        values = _repeat(values.view(own, groups, width, directions).transpose(0, 1), heads)
        for rows in _slices(first, count, self.block):
            attention, steer = (part[..., tokens.start : tokens.stop] for part in self.steer(rows))
            if are_logits:
                logits = keys.view(own, heads, count, directions)[:, :, rows].transpose(0, 1)
            else:
                query = self.query[:, rows].reshape(groups, 1, -1, self.query.shape[-1])
                logits = query @ keys.view(own, groups, -1, directions).transpose(0, 1)
                logits = logits.view(groups, own, heads // groups, -1, directions).transpose(1, 2).flatten(0, 1)
            for token in range(own):
                part = attention[:, :, None, token, None] * values[:, None, token]
                part.addcmul_(steer[..., token, None], logits[:, token, :, None])
                mixed[rows.start - first : rows.stop - first, :, :, token].copy_(part.transpose(0, 1))
        return mixed.view(count - first, heads * width, own * directions)


def fewer_logits(weights: AttentionWeights, tokens: int) -> bool:
    """Whether the logits of every query are no more rows than the keys."""
    return weights.heads * tokens <= weights.key.shape[0]


def linear_attention(weights: AttentionWeights, x: Tensor, block: int) -> LinearAttention:
    """Attention at [token, model], linearised."""
    query = split_heads(linear(x, weights.query, weights.query_bias), weights.heads)
    key = split_heads(linear(x, weights.key, weights.key_bias), weights.key_value_heads)
    value = split_heads(linear(x, weights.value, weights.value_bias), weights.key_value_heads)
    query = rotate(weights.rotation, query, 1, 2) * weights.scale
    key = rotate(weights.rotation, key, 1, 2)
    repeated = _repeat(value, weights.heads)
    context = [_attention(weights, query[:, rows], key, rows) @ repeated for rows in _slices(0, len(x), block)]
    return LinearAttention(weights, query, key, value, torch.cat(context, 1), block)


def _attention(weights: AttentionWeights, query: Tensor, key: Tensor, rows: slice) -> Tensor:
    """softmax(q·kᵀ + added) of some queries, [head, query, key]; exactly 0 where a key is not seen."""
    logits = query @ _repeat(key, weights.heads).transpose(1, 2)
    if weights.added is not None:
        logits = logits + weights.added[:, rows]
    if weights.causal:
        places = torch.arange(key.shape[1], device=key.device)
        logits = logits.masked_fill(places > places[rows, None], -torch.inf)
    return torch.softmax(logits, -1)


def token_rotation(rotation: Rotation | None, tokens: slice) -> Rotation | None:
    """The rotation of some tokens."""
    return None if rotation is None else Rotation(rotation.cosine[tokens], rotation.sine[tokens])


def _repeat(tensor: Tensor, heads: int) -> Tensor:
    """Give each query head its key or value head."""
    groups = heads // len(tensor)
    return tensor if groups == 1 else tensor.repeat_interleave(groups, 0)


def _slices(begin: int, end: int, size: int) -> Iterator[slice]:
    for start in range(begin, end, size):
        yield slice(start, min(start + size, end))
