"""Push tangents through a stack of known blocks, all layers in one pass, under a memory limit."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.jacobian.attention import fewer_logits
from identiscope.linalg.jacobian.blocks import Block, Blocks, normalise
from identiscope.linalg.jacobian.first import FirstLayer, first_layer, has_closed_form
from identiscope.linalg.jacobian.layer import INNER_BYTES, FoldedLayer, LinearLayer, fold, linearise
from identiscope.linalg.jacobian.linear import linear_norm, push_norm
from identiscope.linalg.jacobian.plan import COLUMN_BYTES, FEWEST_COLUMNS, Chunks, split_columns
from identiscope.linalg.jacobian.workspace import Workspace

# What multiplying out the first layer for its closed form may add to the work of an estimate of so many directions.
# However many are asked for, it is decided for these: an estimate that goes on must be the one that was begun.
ANCHOR_SHARE, ANCHOR_DIRECTIONS = 0.2, 16


@dataclass(frozen=True, eq=False)
class ComposedJacobian:
    """The Jacobians of a stack of blocks at one input, as what they do to tangents.

    states: the input of every layer and the output of the last, [token, model] each, before the final norm.
    layers: multiplied out, or linearised; None where that is done anew for every chunk of columns.
    anchor: ‖∂e_j/∂x_i‖_F² of the first layer, [output token, input token], where it has a closed form.
    """

    blocks: Blocks
    inputs: Tensor
    states: tuple[Tensor, ...]
    layers: tuple[FirstLayer | FoldedLayer | LinearLayer | None, ...]
    columns: int
    block: int
    anchor: Tensor | None = None
    space: Workspace = field(default_factory=Workspace)

    @property
    def tokens(self) -> int:
        """How many input tokens."""
        return len(self.inputs)

    @property
    def width(self) -> int:
        """How many coordinates an input token has."""
        return self.inputs.shape[1]

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """[token, model] of every state, the input included."""
        return [(state.shape[0], state.shape[1]) for state in self.states]

    @property
    def finite(self) -> bool:
        """Whether the states are."""
        return all(bool(torch.isfinite(state).all()) for state in self.states)

    def chunks(self, directions: int) -> Chunks:
        """How many tokens and directions to push at a time."""
        return split_columns(self.columns, self.tokens, directions, keep_apart=self.blocks.causal)

    def push(self, tokens: range, directions: Tensor, layers: Sequence[int]) -> Iterator[tuple[int, int, Tensor]]:
        """(layer, first, tangents [token, model, own token, direction]) for each of `layers`, in order.

        The tangents are ∂(state of the layer)/∂(input token)·direction, for each of `tokens` and the
        directions [model, direction]; rows are the tokens from `first` on, and those before are zero. What is
        given is good until the next is asked for.
        """
        first = tokens.start if self.blocks.causal else 0
        own = directions.expand(len(tokens), -1, -1)
        entry = linear_norm(self.blocks.entry, self.inputs)
        if entry is not None:
            own = entry.at(slice(tokens.start, tokens.stop)).push(own.contiguous().clone())
        if 0 in layers:
            yield 0, first, _spread(own, tokens, first, self.tokens)
        tangents = own
        last = len(self.blocks.layers)
        for number, block in enumerate(self.blocks.layers[: max(layers)]):
            layer = self.layers[number] or linearise(block, self.states[number], self.block)[0]
            if number == 0 or isinstance(layer, FirstLayer):
                tangents = layer.push_own(own, tokens, self.space)
            else:
                tangents = layer.push(tangents, first, self.space)
            if number + 1 in layers:
                final = linear_norm(self.blocks.final, self.states[last]) if number + 1 == last else None
                shown = tangents if final is None else push_norm(final.at(slice(first, None)), tangents, self.space)
                yield number + 1, first, shown.view(*shown.shape[:2], len(tokens), -1)


def compose(
    blocks: Blocks, inputs: Tensor, *, memory: int, directions: int, anchored: bool = False
) -> ComposedJacobian:
    """The blocks at `inputs` [token, model], ready to push `directions` columns for each input token.

    memory: bytes that may be used. Layers are multiplied out where that is less work and there is room.
    anchored: find the exact norms of the first layer too, where they have a closed form and it costs little
    beside the columns of a usual estimate.
    """
    anchored = anchored and _has_cheap_closed_form(blocks, len(inputs))
    tokens, width = inputs.shape
    element = inputs.element_size()
    attention = blocks.layers[0].attention
    # The largest thing made for a block of queries is p_s·(v_s − p·V): block × token × head·d_v.
    block = max(1, min(tokens, memory // 16 // (tokens * attention.output.shape[1] * element)))
    # The inner layer of the feed-forward part is worked on in pieces, unless the whole of it is smaller than one.
    pieces = INNER_BYTES * 2 if memory // 16 >= INNER_BYTES * 2 else 0
    column = element * max(_column_elements(layer, tokens, block, not pieces) for layer in blocks.layers)
    points = element * max(_point_elements(layer, tokens) for layer in blocks.layers)
    # The states, the block of queries, and one layer that is being linearised.
    fixed = element * (len(blocks.layers) + 1) * tokens * width + memory // 8 + points + pieces
    # Half of what is left may hold layers; too few columns at a time are slow.
    room = (memory - fixed) // 2
    states = [normalise(blocks.entry, inputs)]
    layers: list[FirstLayer | FoldedLayer | LinearLayer | None] = []
    anchor = None
    for number, weights in enumerate(blocks.layers):
        linear, output = linearise(weights, states[-1], block)
        states.append(output)
        folded = element * _folded_elements(weights, tokens)
        if folded <= room and anchored and number == 0:
            room -= folded
            layers.append(made := first_layer(linear))
            anchor = made.squares
        elif folded <= room and _folding_pays(weights, tokens, directions):
            room -= folded
            layers.append(fold(linear))
        elif points <= room:
            room -= points
            layers.append(linear)
        else:
            layers.append(None)
    columns = (room + (memory - fixed) // 2) // column
    if columns < 1:
        raise InputError(
            f"one direction of {tokens} tokens needs {(fixed + column) / 2**20:.0f} MiB, and {memory / 2**20:.0f} MiB"
            " may be used; allow more memory, or give a shorter text."
        )
    fast = max(FEWEST_COLUMNS, COLUMN_BYTES // (tokens * width * element))
    return ComposedJacobian(blocks, inputs, tuple(states), tuple(layers), min(columns, fast), block, anchor)


def _folding_pays(block: Block, tokens: int, directions: int) -> bool:
    """Whether multiplying out costs less than it saves, in products per token."""
    width, inner = block.attention.query.shape[1], block.feed_forward.up.shape[0]
    parts = 1 if block.feed_forward.gate is None else 2
    apart = block.attention.query.numel() + (parts + 1) * width * inner
    making = parts * width * width * inner + 2 * width * block.attention.query.numel() + width**3
    return (apart - width * width) * tokens * directions > making


def _has_cheap_closed_form(blocks: Blocks, tokens: int) -> bool:
    """Whether the first layer has a closed form that costs little beside the columns, in products per token."""
    directions = ANCHOR_DIRECTIONS
    block = blocks.layers[0]
    shown_as_it_is = blocks.entry is None and (blocks.final is None or len(blocks.layers) > 1)
    if not has_closed_form(block) or not shown_as_it_is:
        return False
    width, inner = block.attention.query.shape[1], block.feed_forward.up.shape[0]
    making = width**2 * (inner + 2 * width)
    pushing = (4 * width**2 + 2 * width * inner) * len(blocks.layers) * tokens * directions
    saved = 2 * width * inner * tokens * directions
    return making - saved <= ANCHOR_SHARE * pushing


def _folded_elements(block: Block, tokens: int) -> int:
    attention = block.attention
    width = attention.query.shape[1]
    shared = block.attention_norm is None and attention.rotation is None
    keys = attention.heads * tokens if fewer_logits(attention, tokens) else attention.key.shape[0]
    rows = (1 if shared else tokens) * (keys + attention.value.shape[0]) * width
    return tokens * width * (width + attention.output.shape[1]) + rows


def _column_elements(block: Block, tokens: int, size: int, whole_inner: bool) -> int:
    """Numbers that the workspace and what is made beside it hold for one column, in either form."""
    attention = block.attention
    width, heads = attention.query.shape[1], attention.output.shape[1]
    rows = attention.query.shape[0] + attention.key.shape[0] + attention.value.shape[0]
    # Rotation makes new queries and keys, from two temporary copies of each.
    rows += 0 if attention.rotation is None else 4 * attention.query.shape[0]
    inner = block.feed_forward.up.shape[0] * (1 if block.feed_forward.gate is None else 2)
    inner *= tokens if whole_inner else 1
    return tokens * (rows + 2 * heads + attention.heads * size + 5 * width) + inner


def _point_elements(block: Block, tokens: int) -> int:
    """Numbers that one linearised layer holds."""
    inner = block.feed_forward.up.shape[0]
    return tokens * (16 * block.attention.query.shape[1] + 4 * inner)


def _spread(own: Tensor, tokens: range, first: int, count: int) -> Tensor:
    spread = own.new_zeros(count - first, own.shape[1], len(tokens), own.shape[2])
    for place, token in enumerate(tokens):
        spread[token - first, :, place] = own[place]
    return spread
