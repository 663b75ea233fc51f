"""The roles of heads, per text, layer and head: from the maps of a batch."""

from torch import Tensor

from identiscope.methods.heads.head_role import OFFSETS, roles_of
from identiscope.runs.compute.batch_tokens import BatchTokens
from identiscope.runs.compute.text_maps import TextMap, from_maps, with_simplex
from identiscope.runs.format.statistics import Column


def _fill(one: TextMap, tokens: BatchTokens, number: int) -> dict[str, Tensor]:
    return roles_of(one.both, one.special, one.allowed).numbers


METHOD = from_maps(
    _fill,
    [
        Column("entropy", "mean entropy of a row, in bits", 0, 10),
        Column("entropy_first", "entropy of the row of a special token that opens the text, in bits", 0, 10),
        *with_simplex(
            Column("confidence", "mean of the largest weight of a row, special tokens left out"),
            *(
                Column(f"peak_{name}", f"share of rows whose largest weight is at key − query = {offset:+d}")
                for name, offset in OFFSETS.items()
            ),
        ),
    ],
)
