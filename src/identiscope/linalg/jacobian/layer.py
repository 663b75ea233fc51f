"""One block linearised at one input, in two forms that push tangents the same way.

`LinearLayer` keeps the parts apart: about 12·d² products for each token and column. `FoldedLayer` has them
multiplied out to a few matrices per token first: about 4·d², worth it when there are many columns.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.linalg.jacobian.attention import LinearAttention, fewer_logits, linear_attention, token_rotation
from identiscope.linalg.jacobian.blocks import Block, feed, normalise, rotate
from identiscope.linalg.jacobian.linear import LinearFeed, LinearNorm, linear_feed, linear_norm, push_norm
from identiscope.linalg.jacobian.workspace import Workspace

# What follows the attention is token by token; the wide inner layer of some tokens takes about so many bytes.
INNER_BYTES = 4 * 2**20
# Tokens whose matrices are multiplied out at a time: bounds what is needed besides the result.
FOLD_TOKENS = 8


@dataclass(frozen=True, eq=False)
class LinearLayer:
    """The parts of a block at one input."""

    attention: LinearAttention
    feed: LinearFeed
    attention_norm: LinearNorm | None
    sum_norm: LinearNorm | None
    feed_norm: LinearNorm | None
    out_norm: LinearNorm | None

    def push(self, tangents: Tensor, first: int, space: Workspace) -> Tensor:
        """Tangents [token, model, column] of the tokens from `first` on, through the block."""
        here = slice(first, None)
        query, keys, values = self._project(push_norm(_at(self.attention_norm, here), tangents, space), here, space)
        context = self.attention.gather(first, keys, values, space, are_logits=self.attention.prefers_logits)
        self._add_query(context, query, first)

        def add(part: slice, summed: Tensor) -> None:
            summed.add_(tangents[part])

        return self._behind_attention(context, first, add, space.take_other(tangents, *tangents.shape), space)

    def push_own(self, directions: Tensor, tokens: range, space: Workspace) -> Tensor:
        """Tangents of `tokens`, each zero but at its own token: directions [own token, model, direction]."""
        first, context = self.own_context(directions, tokens, space)

        def add(part: slice, summed: Tensor) -> None:
            columns = summed.view(*summed.shape[:2], len(tokens), -1)
            for place, token in enumerate(tokens):
                if part.start <= token - first < part.stop:
                    columns[token - first - part.start, :, place] += directions[place]

        into = space.take_other(directions, len(context), directions.shape[1], context.shape[-1])
        return self._behind_attention(context, first, add, into, space)

    def own_context(self, directions: Tensor, tokens: range, space: Workspace) -> tuple[int, Tensor]:
        """The first token that is reached, and the tangents of the context from there on, for `push_own`."""
        first = tokens.start if self.attention.weights.causal else 0
        own = slice(tokens.start, tokens.stop)
        given = push_norm(_at(self.attention_norm, own), directions, space)
        query, keys, values = self._project(given, own, space)
        context = self.attention.gather_own(tokens, keys, values, space, are_logits=self.attention.prefers_logits)
        columns = context.view(*context.shape[:2], len(tokens), -1)
        matrix = self.attention.query_matrix(own)
        for place, token in enumerate(tokens):
            moved = torch.matmul(matrix[place], query[place].reshape(len(matrix[place]), -1, directions.shape[-1]))
            columns[token - first, :, place] += moved.flatten(0, 1)
        return first, context

    def _project(self, given: Tensor, tokens: slice, space: Workspace) -> tuple[Tensor, Tensor, Tensor]:
        weights, count = self.attention.weights, len(given)
        columns = given.shape[-1]
        logits = self.attention.prefers_logits
        key = self.attention.logit_rows(weights.key[None])[0] if logits else weights.key
        names = {"query": weights.query, "key": key, "value": weights.value}
        query, keys, values = (space.take(name, given, count, len(part), columns) for name, part in names.items())
        for part in self._parts(count, columns):
            for weight, into in zip(names.values(), (query, keys, values), strict=True):
                torch.bmm(weight.expand(len(into[part]), -1, -1), given[part], out=into[part])
        rotation = token_rotation(weights.rotation, tokens)
        if rotation is not None:
            query = rotate(rotation, query.view(count, weights.heads, -1, columns), 0, 2).flatten(1, 2)
            keys = rotate(rotation, keys.view(count, weights.key_value_heads, -1, columns), 0, 2).flatten(1, 2)
        return query, keys, values

    def _add_query(self, context: Tensor, query: Tensor, first: int) -> None:
        columns, size = context.shape[-1], self.attention.block
        for begin in range(0, len(context), size):
            rows = slice(begin, min(begin + size, len(context)))
            matrix = self.attention.query_matrix(slice(rows.start + first, rows.stop + first)).flatten(0, 1)
            part = context[rows].view(len(matrix), -1, columns)
            part.baddbmm_(matrix, query[rows].reshape(len(matrix), -1, columns))

    def _behind_attention(
        self, context: Tensor, first: int, add: Callable[[slice, Tensor], None], into: Tensor, space: Workspace
    ) -> Tensor:
        """Tangents of the context through the rest of the block; `add` adds those of the residual to some tokens'."""
        output = self.attention.weights.output
        for part in self._parts(len(context), context.shape[-1]):
            here = slice(part.start + first, part.stop + first)
            summed = space.take("summed", context, part.stop - part.start, len(output), context.shape[-1])
            torch.bmm(output.expand(len(summed), -1, -1), context[part], out=summed)
            add(part, summed)
            push_norm(_at(self.sum_norm, here), summed)
            given = push_norm(_at(self.feed_norm, here), summed, space)
            fed = self.feed.at(here).push(given, into[part], space)
            push_norm(_at(self.out_norm, here), fed.add_(summed))
        return into

    def _parts(self, count: int, columns: int) -> Iterator[slice]:
        """A few tokens at a time, as many as keep the wide inner layer near the processor."""
        size = max(1, INNER_BYTES // (self.feed.down.shape[1] * columns * self.feed.down.element_size()))
        for begin in range(0, count, size):
            yield slice(begin, min(begin + size, count))

    def token_matrix(self, tokens: slice, into: Tensor) -> Tensor:
        """G: what becomes of x + a behind the attention, [token, model, model]."""
        matrix = self.feed.at(tokens).matrix(into)
        feed_norm, sum_norm = _at(self.feed_norm, tokens), _at(self.sum_norm, tokens)
        if feed_norm is not None:
            feed_norm.pull_in_place(matrix)
        matrix.diagonal(dim1=1, dim2=2).add_(1)
        push_norm(_at(self.out_norm, tokens), matrix)
        return matrix if sum_norm is None else sum_norm.pull_in_place(matrix)


def linearise(block: Block, x: Tensor, size: int) -> tuple[LinearLayer, Tensor]:
    """A block at [token, model], and what it returns there; attention `size` queries at a time."""
    attention = linear_attention(block.attention, normalise(block.attention_norm, x), size)
    before = x + attention.output
    summed = normalise(block.sum_norm, before)
    given = normalise(block.feed_norm, summed)
    total = summed + feed(block.feed_forward, given)
    layer = LinearLayer(
        attention=attention,
        feed=linear_feed(block.feed_forward, given),
        attention_norm=linear_norm(block.attention_norm, x),
        sum_norm=linear_norm(block.sum_norm, before),
        feed_norm=linear_norm(block.feed_norm, summed),
        out_norm=linear_norm(block.out_norm, total),
    )
    return layer, normalise(block.out_norm, total)


@dataclass(frozen=True, eq=False)
class FoldedLayer:
    """A block at one input, multiplied out.

    own [token, model, model] takes a token's tangents to its own output, its query included; mixed [token,
    model, head·d_v] takes the context there. rows [1 or token, row, model] give what `gather` reads: keys or,
    with `are_logits`, the logits of every query, and below them the values.
    """

    attention: LinearAttention
    own: Tensor
    mixed: Tensor
    rows: Tensor
    are_logits: bool

    def push(self, tangents: Tensor, first: int, space: Workspace) -> Tensor:
        """As `LinearLayer.push`."""
        keys, values = self._keys_and_values(tangents, slice(first, None), space)
        context = self.attention.gather(first, keys, values, space, are_logits=self.are_logits)
        pushed = torch.bmm(self.own[first:], tangents, out=space.take_other(tangents, *tangents.shape))
        return pushed.baddbmm_(self.mixed[first:], context)

    def push_own(self, directions: Tensor, tokens: range, space: Workspace) -> Tensor:
        """As `LinearLayer.push_own`."""
        first = tokens.start if self.attention.weights.causal else 0
        keys, values = self._keys_and_values(directions, slice(tokens.start, tokens.stop), space)
        context = self.attention.gather_own(tokens, keys, values, space, are_logits=self.are_logits)
        into = space.take_other(directions, len(context), directions.shape[1], context.shape[-1])
        pushed = torch.bmm(self.mixed[first:], context, out=into)
        columns = pushed.view(len(pushed), -1, len(tokens), directions.shape[-1])
        for place, token in enumerate(tokens):
            columns[token - first, :, place] += self.own[token] @ directions[place]
        return pushed

    def _keys_and_values(self, tangents: Tensor, tokens: slice, space: Workspace) -> tuple[Tensor, Tensor]:
        matrix = self.rows if len(self.rows) == 1 else self.rows[tokens]
        rows = space.take("rows", tangents, len(tangents), matrix.shape[1], tangents.shape[-1])
        torch.bmm(matrix.expand(len(tangents), -1, -1), tangents, out=rows)
        keys = matrix.shape[1] - self.attention.weights.value.shape[0]
        return rows[:, :keys], rows[:, keys:]


def fold(layer: LinearLayer) -> FoldedLayer:
    """Multiply a block out: M = G·(I + W_O·C·W_Q·N) and G·W_O for each token."""
    weights, norm = layer.attention.weights, layer.attention_norm
    tokens, model = layer.attention.query.shape[1], weights.query.shape[1]
    heads = weights.heads
    own = weights.query.new_empty(tokens, model, model)
    mixed = weights.query.new_empty(tokens, model, weights.output.shape[1])
    output = weights.output.view(model, heads, -1).transpose(0, 1)
    for begin in range(0, tokens, FOLD_TOKENS):
        part = slice(begin, min(begin + FOLD_TOKENS, tokens))
        matrix = layer.token_matrix(part, own.new_empty(part.stop - part.start, model, model))
        queries = _rotated(layer, weights.query, heads, part)
        reached = torch.matmul(output, layer.attention.query_matrix(part)).transpose(1, 2).flatten(2)
        path = torch.matmul(reached, queries)
        if norm is not None:
            path = norm.at(part).pull_in_place(path)
        path.diagonal(dim1=1, dim2=2).add_(1)
        torch.bmm(matrix, path, out=own[part])
        torch.matmul(matrix, weights.output, out=mixed[part])
    keys = _rotated(layer, weights.key, weights.key_value_heads, slice(None))
    are_logits = fewer_logits(weights, tokens)
    if are_logits:
        keys = layer.attention.logit_rows(keys)
    rows = torch.cat([keys, weights.value.expand(len(keys), -1, -1)], 1)
    return FoldedLayer(layer.attention, own, mixed, rows if norm is None else norm.pull(rows), are_logits)


def _rotated(layer: LinearLayer, weight: Tensor, heads: int, tokens: slice) -> Tensor:
    """A projection with the rotation of each token in it: [1 or token, head·channel, model]."""
    rotation = token_rotation(layer.attention.weights.rotation, tokens)
    if rotation is None:
        return weight[None]
    shaped = weight.view(1, heads, -1, weight.shape[1]).expand(len(rotation.cosine), -1, -1, -1)
    return rotate(rotation, shaped, 0, 2).flatten(1, 2)


def _at(norm: LinearNorm | None, tokens: slice) -> LinearNorm | None:
    return None if norm is None else norm.at(tokens)
