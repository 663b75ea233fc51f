"""The first layer's Jacobian norms in closed form, to correct the estimate of later layers with.

In a block whose keys and values are one linear map for all tokens (post-norm, no rotary positions), what another
token adds to an output is ∂e_j/∂x_i = G_j·W_O·[p_h·W_V,h + s_h·u_hᵀ]_h, with G_j what follows the attention at token j,
the attention p and its steer s of cell (j, i), and u_h = W_Kᵀ·q_j,h. With the Gram matrix of G_j·W_O and those of the
weights, its norm costs a few d-vectors per cell. A token's own block, which has its query and itself in it as well, is
multiplied out whole. All of it costs about two probes, and saves one.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.linalg.jacobian.blocks import Block
from identiscope.linalg.jacobian.layer import FOLD_TOKENS, LinearLayer
from identiscope.linalg.jacobian.workspace import Workspace


@dataclass(frozen=True, eq=False)
class FirstLayer:
    """A first block with what follows its attention multiplied out: token [token, model, model] is G, mixed
    [token, model, head·d_v] is G·W_O; squares [output, input] are the block norms."""

    linear: LinearLayer
    token: Tensor
    mixed: Tensor
    squares: Tensor

    def push_own(self, directions: Tensor, tokens: range, space: Workspace) -> Tensor:
        """As `LinearLayer.push_own`."""
        first, context = self.linear.own_context(directions, tokens, space)
        into = space.take_other(directions, len(context), directions.shape[1], context.shape[-1])
        pushed = torch.bmm(self.mixed[first:], context, out=into)
        columns = pushed.view(len(pushed), -1, len(tokens), directions.shape[-1])
        for place, token in enumerate(tokens):
            columns[token - first, :, place] += self.token[token] @ directions[place]
        return pushed


def has_closed_form(block: Block) -> bool:
    """Whether `first_layer` knows this kind of block."""
    attention = block.attention
    shared = block.attention_norm is None and attention.rotation is None
    return shared and attention.heads == attention.key_value_heads


def first_layer(layer: LinearLayer) -> FirstLayer:
    """Multiply a block out behind its attention, and find the norms of its Jacobian."""
    output = layer.attention.weights.output
    count, model = layer.attention.context.shape[1], len(output)
    token, mixed = output.new_empty(count, model, model), output.new_empty(count, *output.shape)
    for begin in range(0, count, FOLD_TOKENS):
        part = slice(begin, min(begin + FOLD_TOKENS, count))
        layer.token_matrix(part, token[part])
        torch.matmul(token[part], output, out=mixed[part])
    return FirstLayer(layer, token, mixed, _squares(layer, token, mixed))


def _squares(layer: LinearLayer, itself: Tensor, mixed: Tensor) -> Tensor:
    attention, weights = layer.attention, layer.attention.weights
    heads, count, width = attention.context.shape
    values_gram = (weights.value @ weights.value.T).view(heads, width, heads, width)
    # u [query, head, model], what the values make of it, and its products among the heads.
    rows = attention.logit_rows(weights.key[None])[0].view(heads, count, -1).transpose(0, 1)
    by_values = (rows @ weights.value.T).view(count, heads, 1, heads, width)
    rows_gram = rows @ rows.transpose(1, 2)
    query = weights.query.view(heads, -1, weights.query.shape[1])
    value = weights.value.view(heads, width, -1)
    squares = mixed.new_empty(count, count)
    for begin in range(0, count, attention.block):
        here = slice(begin, min(begin + attention.block, count))
        attended, steered = attention.steer(here)
        queried = attention.query_matrix(here) @ query
        for place, token in enumerate(range(count)[here]):
            p, steer = attended[:, place].T, steered[:, place].flatten(0, 1).T
            gram = (mixed[token].T @ mixed[token]).view(heads, width, heads, width)
            both_values = (gram * values_gram).sum((1, 3))
            crossed = (gram * by_values[token]).sum(-1).flatten(0, 1)
            both_rows = (gram * rows_gram[token][:, None, :, None]).reshape(heads * width, -1)
            squares[token] = ((p @ both_values + 2 * steer @ crossed) * p).sum(-1)
            squares[token] += ((steer @ both_rows) * steer).sum(-1)
            own = queried[place] + attended[:, place, token, None, None] * value
            own += steered[:, place, :, token, None] * rows[token, :, None]
            squares[token, token] = (itself[token] + mixed[token] @ own.flatten(0, 1)).square().sum()
    return squares.double()
