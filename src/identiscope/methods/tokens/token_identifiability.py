"""Token identifiability: can the hidden embedding of each token still be traced to its input, with no probe?"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from identiscope.errors import InputError
from identiscope.linalg.devices import on_cpu
from identiscope.linalg.jacobian.norms import at_least_float32
from identiscope.methods.tokens.neighbours import make_lookup
from identiscope.methods.tokens.sentences import Sentences


@dataclass(frozen=True, eq=False)
class TokenIdentifiability:
    """Of every block and token, each [layer, output]: see `token_identifiability`."""

    identified: Tensor
    tied: Tensor
    nearest: Tensor
    cosine_to_input: Tensor
    norm: Tensor

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Tensor]]:
        """By name, with their axes."""
        return {one.name: (("layer", "output"), getattr(self, one.name)) for one in fields(self)}


def token_identifiability(
    hidden_states: Sequence[Tensor], *, metric: Literal["cosine", "l2"] = "cosine"
) -> TokenIdentifiability:
    """NN(e_i) = x_i (section 4): is a hidden embedding nearest to its own input embedding, of those of the text?

    `nearest` is the position of the input embedding it is nearest to, the first of several; `identified`, whether that
    is its own or has the very same vector, as a repeated token has in a model without absolute positions; `tied`,
    whether another was equally near. `cosine_to_input` is the cosine of the hidden embedding and its input, `norm` its
    length. Layer l is what block l wrote, from 0; the layer l of the paper is block l − 1. Probes, which learn the way
    back, need a corpus: see `identiscope tokens`.

    metric: "cosine" or "l2", by which the nearest is meant.

    >>> inputs = torch.eye(2)
    >>> token_identifiability([inputs, 2 * inputs, inputs.flip(0)]).identified
    tensor([[ True,  True],
            [False, False]])
    """
    if len(hidden_states) < 2:
        raise InputError(f"{len(hidden_states)} hidden states were given; expected the input and what a block wrote.")
    # Where the input embeddings are: the layers of a model may be on several devices.
    inputs = hidden_states[0].to(at_least_float32(hidden_states[0].dtype))
    text = Sentences(torch.tensor([len(inputs)]))
    lookup = make_lookup(inputs, text, torch.arange(1), metric=metric)
    rows = []
    for state in hidden_states[1:]:
        hidden = state.to(inputs)
        neighbours = lookup.nearest(hidden)
        near = (neighbours.identified, neighbours.tied, neighbours.nearest)
        rows.append((*near, cosine_similarity(hidden, inputs, dim=-1), hidden.norm(dim=-1)))
    return TokenIdentifiability(*(torch.stack([on_cpu(part) for part in column]) for column in zip(*rows, strict=True)))
