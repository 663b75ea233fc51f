"""Runs as they were written before a manifest described its tables: their formats, and the columns of that time.

Nothing here changes any more. Layers of hidden states were counted from 1 then, and are blocks, from 0, everywhere now:
a table that was written so is relabelled when it is read.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from identiscope.methods.registry import METHODS
from identiscope.runs.format.statistics import Column
from identiscope.runs.format.tables import Table, tables_from

#: Without digests of the manifest and of the summary, and of the texts of each shard; still read, not gone on with.
UNDIGESTED = "identiscope-run-1"
#: With them, and without a description of its tables.
UNDESCRIBED = "identiscope-run-2"
FORMATS = (UNDIGESTED, UNDESCRIBED)
#: The table that had the name of another method: what it was called, and is called now.
_FORMER = ("attention", "attention_identifiability")

_TOKENS = {
    "special": "special tokens", "cls": "the tokenizer's first token ([CLS])", "sep": "its separators ([SEP])",
    "punctuation": "punctuation", "other": "other tokens", "self": "the token itself",
}  # fmt: skip
_TOGETHER = "what all tokens {} places away together contribute to a token, on average"

TABLES: Mapping[str, Table] = {
    "attention": Table(
        ("layer", "head"),
        (
            Column("rank", "rank of T; of the last row where rows see different keys", 0, 512, whole=True),
            Column("null_dimension", "dimension of the left null space of T", 0, 512, whole=True),
            Column("simplex_null_dimension", "dimension of that of [T,1]", 0, 512, whole=True),
            Column("free_rows", "share of rows whose weights are not determined by the output"),
            Column("null_share", "‖A∥‖² / ‖A‖²"),
            Column("correlation", "Pearson correlation of raw and effective attention", -1, 1),
            Column("entropy", "mean entropy of a row of raw attention, in bits", 0, 10),
            *(Column(f"raw_to_{name}", f"mean raw weight of a token on {said}") for name, said in _TOKENS.items()),
            *(
                Column(f"effective_to_{name}", f"mean effective weight of a token on {said}", -1, 2)
                for name, said in _TOKENS.items()
            ),
        ),
    ),
    "attribution": Table(
        ("layer",),
        (
            Column("self_contribution", "mean contribution of a token to its own hidden embedding"),
            Column("self_median", "the median of that over the tokens"),
            Column("not_largest", "share of tokens to which another token contributes more"),
            Column("not_largest_noise", "about how much of that the noise of the estimate adds", -0.5, 0.5),
            Column("from_special", "what all special tokens together contribute to a token, on average"),
            Column("standard_error", "mean standard error of the self contributions", 0, 0.1),
            Column("from_distance_1", _TOGETHER.format("1")),
            Column("from_distance_2_to_5", _TOGETHER.format("2 to 5")),
            Column("from_distance_6_to_10", _TOGETHER.format("6 to 10")),
            Column("from_distance_11_or_more", _TOGETHER.format("11 or more")),
        ),
        first_layer=1,
    ),
    "tokens": Table(
        ("layer",),
        (
            Column("identified_cosine", "share of tokens whose nearest input embedding (cosine) is their own"),
            Column("tied_cosine", "share of tokens with several nearest"),
            Column("identified_l2", "the same by Euclidean distance"),
            Column("tied_l2", "share of tokens with several nearest"),
            Column("cosine_to_input", "mean cosine of hidden and input embedding", -1, 1),
            Column("norm", "mean norm of hidden embeddings", 0, 100),
        ),
        first_layer=1,
    ),
    "structure": Table(
        ("layer", "head"),
        tuple(
            Column(name, f"score of the pattern {name}, 0 for chance and 1 for nothing else")
            for name in ("diagonal", "previous", "next", "vertical", "block", "broad", "antidiagonal")
        ),
    ),
}


def lacks_digests(manifest: Mapping[str, Any]) -> bool:
    """Whether a Run was written before every byte had a digest."""
    return bool(manifest["format"] == UNDIGESTED)


def table_name(name: str, known: Collection[str]) -> str:
    """The name that a table of a Run has, of which the present or the former name was given."""
    if name in known:
        return name
    others = [
        other for one in METHODS.values() for other in (one.name, *one.aliases) if name in (one.name, *one.aliases)
    ]
    return next((other for other in (*others, *(_FORMER if name in _FORMER else ())) if other in known), name)


def manifest_tables(manifest: Mapping[str, Any]) -> dict[str, Table]:
    """The tables of a Run, in the order of its methods: as its manifest describes them, or as they were once."""
    known = _checked(manifest["tables"]) if "tables" in manifest else TABLES
    first = {name: table.first_layer for name, table in TABLES.items()} if manifest["format"] in FORMATS else {}
    return {name: replace(known[name], first_layer=first.get(name, 0)) for name in manifest["options"]["methods"]}


def without_columns(name: str, columns: Collection[str]) -> Table:
    """A table of `TABLES` from before it had these columns."""
    table = TABLES[name]
    return replace(table, columns=tuple(column for column in table.columns if column.name not in columns))


#: What the last manifest said of its tables, and these: every file of every shard asks for them, and a manifest is not
#: changed once it is read.
_LAST: list[tuple[Any, dict[str, Table]]] = []


def _checked(described: Any) -> dict[str, Table]:
    for known, tables in _LAST:
        if known is described:
            return tables
    tables = tables_from(described)
    _LAST[:] = [(described, tables)]
    return tables
