"""Which tokens can still be told by their hidden embeddings, with no probe: per text and layer."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from identiscope.linalg.devices import on_cpu
from identiscope.methods.tokens.neighbours import METRICS, make_lookup
from identiscope.methods.tokens.sentences import Sentences
from identiscope.runs.compute.filling import PER_LAYER, FromStates, RunMethod
from identiscope.runs.format.statistics import Column


def token_statistics(states: Sequence[Sequence[Tensor]]) -> dict[str, Tensor]:
    """The columns of the table `tokens`, each [text, layer] in float64.

    states[text][layer] [token, channel], the input embeddings first, which every later layer is looked up in.
    """
    lengths = torch.tensor([len(layers[0]) for layers in states])
    sentences, everyone = Sentences(lengths), torch.arange(len(states))
    # Where the input embeddings are: the layers of a model may be on several devices.
    device = states[0][0].device
    layers = [torch.cat([text[layer] for text in states]).float().to(device) for layer in range(len(states[0]))]
    columns: dict[str, list[Tensor]] = {}

    def by_text(name: str, values: Tensor) -> None:
        sums = torch.zeros(len(states), dtype=torch.float64).index_add(0, sentences.sentence, on_cpu(values).double())
        columns.setdefault(name, []).append(sums / lengths)

    for metric in METRICS:
        lookup = make_lookup(layers[0], sentences, everyone, metric=metric)
        for layer in layers[1:]:
            neighbours = lookup.nearest(layer)
            by_text(f"identified_{metric}", neighbours.identified)
            by_text(f"tied_{metric}", neighbours.tied)
    for layer in layers[1:]:
        by_text("cosine_to_input", cosine_similarity(layer, layers[0], dim=-1))
        by_text("norm", layer.norm(dim=-1))
    return {name: torch.stack(values, 1) for name, values in columns.items()}


METHOD = RunMethod(
    PER_LAYER,
    (
        Column("identified_cosine", "share of tokens whose nearest input embedding (cosine) is their own"),
        Column("tied_cosine", "share of tokens with several nearest"),
        Column("identified_l2", "the same by Euclidean distance"),
        Column("tied_l2", "share of tokens with several nearest"),
        Column("cosine_to_input", "mean cosine of hidden and input embedding", -1, 1),
        Column("norm", "mean norm of hidden embeddings", 0, 100),
    ),
    FromStates(token_statistics),
)
