"""How identifiable every head's attention is: ranks, null spaces, null share and correlation, in one sweep."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.allowed import Allowed, describe_allowed
from identiscope.linalg.rank.full_rank import head_products
from identiscope.linalg.rank.projection_factor import projection_factor
from identiscope.linalg.rank.stacked import stacked_ranks
from identiscope.linalg.simplex.raw_rows import RawRows as SoftmaxRows
from identiscope.methods.heads.attention_moments import AttentionMoments, attention_moments
from identiscope.methods.heads.attention_rank import warn_of_uncertain
from identiscope.methods.heads.layer_rank import layer_rank
from identiscope.methods.maps.factored import RawRows

_AXES = {
    **dict.fromkeys(("null_share", "correlation", "free_rows", "cutoff", "gap", "rank_is_uncertain"), ("head",)),
    **dict.fromkeys(("simplex_null_share", "simplex_correlation", "merged_null_share"), ("head",)),
    **dict.fromkeys(("row_null_share", "row_correlation", "row_simplex_null_share"), ("head", "query")),
    **dict.fromkeys(("type_null_share", "type_correlation"), ("head", "type")),
    **dict.fromkeys(("rank", "null_dimension", "simplex_null_dimension"), ("head", "query")),
    **dict.fromkeys(("null_dimension_bound", "simplex_null_dimension_bound"), ("query",)),
    "singular_values": ("head", "channel"),
}


@dataclass(frozen=True)
class AttentionIdentifiability:
    """The numbers of one layer by name, and the names of the types of keys."""

    numbers: Mapping[str, Any]
    types: tuple[str, ...]

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Any]]:
        """By name, with their axes; those of the layer as a whole have none."""
        return {name: (_AXES.get(name, ()), value) for name, value in self.numbers.items()}

    def labels(self) -> dict[str, Sequence[str]]:
        """Of the axes that are not those of every method."""
        return {"type": self.types}


def attention_identifiability(
    value: Tensor,
    projection: Tensor,
    exact_context: Callable[[], Tensor],
    raw: RawRows,
    queries: int,
    special: Tensor,
    allowed: Allowed = None,
    precision: torch.dtype | None = None,
    value_bias: Tensor | None = None,
    row_sum: Tensor | None = None,
    softmax_rows: SoftmaxRows | None = None,
    layer: int | None = None,
    heads: Sequence[int] | None = None,
    head_count: int | None = None,
    copies: Tensor | None = None,
    *,
    token_types: Mapping[str, Sequence[bool]] | None = None,
    layer_level: bool = True,
) -> AttentionIdentifiability:
    """How identifiable every head's attention is, on axes layer, head, query and type.

    `rank`, `null_dimension` (dim LN(T), eq. 6) and `simplex_null_dimension` (dim LN([T,1]), §3.3) are per
    query row, since a causal row has the null space of its own prefix.

    `simplex_null_share` is the share ‖A∥‖²/‖A‖² of attention in LN([T,1]), per head and, with `row_`, per row: what no
    output of the head can show, however the model is written. `simplex_correlation` is Pearson's between A and what is
    left. `merged_null_share` is the same share with equal tokens added up, ‖A∥S‖²/‖AS‖² with S from keys to groups of
    equal tokens, so that weight between copies of a word does not count. `null_share` and `correlation` are the same
    for LN(T), as in the paper (eq. 8, 9; Fig. 1a), also with `row_`, and with `type_` over the keys of a type:
    `special` and `ordinary` tokens, or those of `token_types`. They depend on where the model keeps its value bias,
    which its output does not.

    `layer_null_dimension` is that of all heads stacked, for the last row: attention may also move between heads; it
    is left out where not all heads were captured, and with layer_level=False. `singular_values`, `cutoff` and `gap` are
    those of T over all keys.

    token_types: name → one flag a key. layer_level: take the rank of all heads stacked, too; it factorises a matrix of
    head·d_v rows, which for wide layers takes longest.

    >>> from identiscope.methods.maps.factored import rows_of
    >>> value, projection = torch.tensor([[[1.0], [1.0]]]), torch.ones(1, 1, 1)
    >>> attention = torch.tensor([[[0.75, 0.25], [0.5, 0.5]]])
    >>> none = torch.tensor([False, False])
    >>> found = attention_identifiability(value, projection, lambda: attention @ value, rows_of(attention), 2, none)
    >>> found.numbers["row_null_share"]
    tensor([[0.2000, 0.0000]], dtype=torch.float64)
    """
    count, keys = queries, value.shape[1]
    types = _types(special, token_types, keys)
    flags = torch.stack([torch.as_tensor(one, dtype=torch.bool) for one in types.values()])
    products = head_products(projection_factor(projection))
    described = describe_allowed(allowed, count, keys, value.device)
    of_rows = attention_moments(
        value, products, flags, described, raw=raw, exact_context=exact_context, precision=precision,
        value_bias=value_bias, row_sum=row_sum, softmax_rows=softmax_rows, copies=copies,
    )  # fmt: skip
    moments, seen = of_rows.moments, described.count().to(of_rows.rank.device)
    bound = seen.clamp(max=min(value.shape[2], products.factor.model))
    warn_of_uncertain(of_rows.spectrum, layer, heads)
    numbers: dict[str, Any] = {
        "simplex_null_share": of_rows.simplex.unexplained("head"),
        "row_simplex_null_share": of_rows.simplex.unexplained("row"),
        "simplex_correlation": of_rows.simplex.correlation("head"),
        "merged_null_share": of_rows.merged.share,
        "null_share": moments.unexplained("head"),
        "row_null_share": moments.unexplained("row"),
        "correlation": moments.correlation("head"),
        "row_correlation": moments.correlation("row"),
        "type_null_share": moments.unexplained("key_type"),
        "type_correlation": moments.correlation("key_type"),
        "rank": of_rows.rank,
        "null_dimension": seen - of_rows.rank,
        "simplex_null_dimension": seen - of_rows.simplex_rank,
        "free_rows": (seen > of_rows.simplex_rank).double().mean(-1),
        "null_dimension_bound": seen - bound,
        "simplex_null_dimension_bound": (seen - bound - 1).clamp(min=0),
        "singular_values": of_rows.spectrum.singular_values,
        "cutoff": of_rows.spectrum.cutoff,
        "gap": of_rows.spectrum.gap,
        "rank_is_uncertain": of_rows.spectrum.uncertain,
    }
    if layer_level and (head_count is None or head_count == len(projection)):
        # Of the last row: where rows see different keys, each has a layer's null space of its own.
        last = described.block(slice(count - 1, count))[0]
        numbers |= _of_layer(value, projection, of_rows, last.expand(keys), precision, value_bias)
    return AttentionIdentifiability(numbers, tuple(types))


def _types(
    special: Tensor, given: Mapping[str, Sequence[bool]] | None, keys: int
) -> Mapping[str, Tensor | Sequence[bool]]:
    if given is None:
        return {"special": special, "ordinary": ~special}
    wrong = [name for name, flags in given.items() if len(flags) != keys]
    if wrong or not given:
        raise InputError(f"token_types {wrong} need one flag for each of the {keys} keys.")
    return given


def _of_layer(
    value: Tensor,
    projection: Tensor,
    moments: AttentionMoments,
    last: Tensor,
    precision: torch.dtype | None,
    bias: Tensor | None,
) -> dict[str, int]:
    """Null dimensions of all heads stacked, and of the heads each alone, over the keys that the last row sees."""
    heads, keys = len(projection), int(last.sum())
    if bool(last.all()):
        together, simplex = stacked_ranks(moments.plain, moments.ones, projection)
        alone, simplex_alone = (int(rank[:, -1].sum()) for rank in (moments.rank, moments.simplex_rank))
        dimensions = [heads * keys - rank for rank in (together, simplex, alone, simplex_alone)]
    else:
        whole = layer_rank(value[:, last], projection, precision=precision, value_bias=bias)
        dimensions = [
            whole.null_dimension, whole.simplex_null_dimension, whole.separate_null_dimension,
            whole.separate_simplex_null_dimension,
        ]  # fmt: skip
    names = ("layer_null", "layer_simplex_null", "separate_null", "separate_simplex_null")
    return {f"{name}_dimension": dimension for name, dimension in zip(names, dimensions, strict=True)}
