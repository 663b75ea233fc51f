"""The classes of maps, per text, layer and head: from the maps of a batch."""

from torch import Tensor

from identiscope.methods.heads.head_class import CLASSES, PARTS, classes_of
from identiscope.runs.compute.batch_tokens import BatchTokens
from identiscope.runs.compute.text_maps import TextMap, from_maps, with_simplex
from identiscope.runs.format.statistics import Column


def _fill(one: TextMap, tokens: BatchTokens, number: int) -> dict[str, Tensor]:
    return classes_of(one.both, one.special, one.allowed).numbers()


METHOD = from_maps(
    _fill,
    with_simplex(
        *(Column(name, f"whether the map is {name.replace('_', ' and ')}") for name in CLASSES),
        *(Column(f"{name}_score", f"how {name} it is, above chance") for name in PARTS),
    ),
)
