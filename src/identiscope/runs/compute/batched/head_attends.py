"""What heads look at, per text, layer and head: from the maps of a batch."""

from torch import Tensor

from identiscope.methods.heads.attended import ATTENDED
from identiscope.methods.heads.head_attends import attends_of
from identiscope.runs.compute.batch_tokens import BatchTokens
from identiscope.runs.compute.text_maps import TextMap, cells_of, from_maps
from identiscope.runs.format.statistics import Column


def _fill(one: TextMap, tokens: BatchTokens, number: int) -> dict[str, Tensor]:
    both = attends_of(one.both, cells_of(tokens, number, one))
    return {name: values for name, (_, values) in both.arrays().items()}


METHOD = from_maps(
    _fill,
    [
        Column(f"{kind}_to_{name}", f"mean weight on {says}, {of}", *span)
        for kind, of, span in (
            ("raw", "raw", (0, 1)),
            ("simplex", "of effective_simplex_span: what no rewriting of the model changes", (-1, 2)),
        )
        for name, says in ATTENDED.items()
    ],
)
