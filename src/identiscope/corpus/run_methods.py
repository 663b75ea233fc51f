"""The table of what a Run can compute: for each method its axes, its columns, and the function that fills them.

A function of kind `call` sees every attention call of a batch as the model makes it; one of kind `states` the hidden
states of a batch; one of kind `trace` a trace of each text. All return columns in float64.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from identiscope.corpus.attention_statistics import attention_statistics
from identiscope.corpus.attribution_statistics import DISTANCES, attribution_statistics
from identiscope.corpus.batch_tokens import BatchTokens
from identiscope.corpus.statistics import Column
from identiscope.corpus.structure_statistics import structure_statistics
from identiscope.corpus.token_statistics import token_statistics
from identiscope.methods.head_pattern import PATTERNS


@dataclass(frozen=True)
class RunMethod:
    """One method: the axes of its table after `text`, its columns, and its function."""

    kind: Literal["call", "states", "trace"]
    axes: tuple[str, ...]
    columns: tuple[Column, ...]
    function: Callable[..., Mapping[str, Any]]


_TYPE_NAMES = {
    "special": "special tokens", "cls": "the tokenizer's first token ([CLS])", "sep": "its separators ([SEP])",
    "punctuation": "punctuation", "other": "other tokens", "self": "the token itself",
}  # fmt: skip
_PER_HEAD = ("layer", "head")

RUN_METHODS: Mapping[str, RunMethod] = {
    "attention": RunMethod(
        "call",
        _PER_HEAD,
        (
            Column("rank", "rank of T; of the last row where rows see different keys", 0, 512, whole=True),
            Column("null_dimension", "dimension of the left null space of T", 0, 512, whole=True),
            Column("simplex_null_dimension", "dimension of that of [T,1]", 0, 512, whole=True),
            Column("free_rows", "share of rows whose weights are not determined by the output"),
            Column("null_share", "‖A∥‖² / ‖A‖²"),
            Column("correlation", "Pearson correlation of raw and effective attention", -1, 1),
            Column("entropy", "mean entropy of a row of raw attention, in bits", 0, 10),
            *(
                Column(f"{kind}_to_{name}", f"mean {kind} weight of a token on {_TYPE_NAMES[name]}", *span)
                for kind, span in (("raw", (0, 1)), ("effective", (-1, 2)))
                for name in (*BatchTokens.TYPES, "self")
            ),
        ),
        attention_statistics,
    ),
    "attribution": RunMethod(
        "trace",
        ("layer",),
        (
            Column("self_contribution", "mean contribution of a token to its own hidden embedding"),
            Column("self_median", "the median of that over the tokens"),
            Column("not_largest", "share of tokens to which another token contributes more"),
            Column("from_special", "mean contribution of special tokens"),
            Column("standard_error", "mean standard error of the self contributions", 0, 0.1),
            *(
                Column(f"from_distance_{name}", f"mean contribution of tokens {name.replace('_', ' ')} places away")
                for name in DISTANCES
            ),
        ),
        attribution_statistics,
    ),
    "tokens": RunMethod(
        "states",
        ("layer",),
        (
            Column("identified_cosine", "share of tokens whose nearest input embedding (cosine) is their own"),
            Column("tied_cosine", "share of tokens with several nearest"),
            Column("identified_l2", "the same by Euclidean distance"),
            Column("tied_l2", "share of tokens with several nearest"),
            Column("cosine_to_input", "mean cosine of hidden and input embedding", -1, 1),
            Column("norm", "mean norm of hidden embeddings", 0, 100),
        ),
        token_statistics,
    ),
    "structure": RunMethod(
        "call",
        _PER_HEAD,
        tuple(Column(name, f"score of the pattern {name}, 0 for chance and 1 for nothing else") for name in PATTERNS),
        structure_statistics,
    ),
}
