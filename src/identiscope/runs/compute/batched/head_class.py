"""The classes of maps, per text, layer and head: from the maps of a batch."""

from torch import Tensor

from identiscope.methods.heads.head_class import CLASSES, head_class
from identiscope.runs.compute.batch_tokens import BatchTokens
from identiscope.runs.compute.text_maps import TextMap, from_maps
from identiscope.runs.format.statistics import Column


def _fill(one: TextMap, tokens: BatchTokens, number: int) -> dict[str, Tensor]:
    arrays = head_class(one.weights, one.special, one.allowed).arrays()
    return {name: values for name, (_, values) in arrays.items() if isinstance(values, Tensor)}


METHOD = from_maps(
    _fill,
    [
        *(Column(name, f"whether the map is {name.replace('_', ' and ')}") for name in CLASSES),
        *(Column(f"{name}_score", f"how {name} it is, above chance") for name in ("vertical", "diagonal", "block")),
    ],
)
