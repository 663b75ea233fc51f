"""Which tokens can still be told by their hidden embeddings, with no probe: per text and layer."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from identiscope.methods.token_neighbours import METRICS, make_lookup
from identiscope.methods.token_sentences import Sentences


def token_statistics(states: Sequence[Sequence[Tensor]]) -> dict[str, Tensor]:
    """The columns of the table `tokens`, each [text, layer] in float64.

    states[text][layer] [token, channel], the input embeddings first, which every later layer is looked up in.
    """
    lengths = torch.tensor([len(layers[0]) for layers in states])
    sentences, everyone = Sentences(lengths), torch.arange(len(states))
    layers = [torch.cat([text[layer] for text in states]).float() for layer in range(len(states[0]))]
    columns: dict[str, list[Tensor]] = {}

    def by_text(name: str, values: Tensor) -> None:
        sums = torch.zeros(len(states), dtype=torch.float64).index_add(0, sentences.sentence, values.double())
        columns.setdefault(name, []).append(sums / lengths)

    for metric in METRICS:
        lookup = make_lookup(layers[0], sentences, everyone, metric=metric)
        for layer in layers[1:]:
            found = lookup.nearest(layer)
            by_text(f"identified_{metric}", found.identified)
            by_text(f"tied_{metric}", found.tied)
    for layer in layers[1:]:
        by_text("cosine_to_input", cosine_similarity(layer, layers[0], dim=-1))
        by_text("norm", layer.norm(dim=-1))
    return {name: torch.stack(values, 1) for name, values in columns.items()}
