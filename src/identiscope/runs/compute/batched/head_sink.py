"""Attention sinks, per text, layer and head: from the maps of a batch."""

from torch import Tensor

from identiscope.methods.heads.head_sink import sinks_of
from identiscope.runs.compute.batch_tokens import BatchTokens
from identiscope.runs.compute.text_maps import TextMap, from_maps, with_simplex
from identiscope.runs.format.statistics import Column


def _fill(one: TextMap, tokens: BatchTokens, number: int) -> dict[str, Tensor]:
    return sinks_of(one.both, one.special, one.tokens, one.allowed).numbers


METHOD = from_maps(
    _fill,
    with_simplex(
        Column("sink_weight", "mean weight of the key that has most"),
        Column("first_weight", "mean weight of the first token"),
        Column("is_sink", "whether the former is above 0.3"),
        Column("sink_on_first", "where there is a sink: whether it is the first token"),
        Column("sink_on_special", "the same: whether it is a special token"),
        Column("sink_on_punctuation", "the same: whether it is punctuation"),
    ),
)
