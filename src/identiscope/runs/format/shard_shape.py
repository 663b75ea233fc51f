"""What a shard of a Run must be: its record, which files it has and how large they can be, what is in its tables."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from identiscope.json_shapes import COUNT, HASH, TEXT, Each, check_shape
from identiscope.runs.format.legacy import manifest_tables
from identiscope.runs.format.shard_files import INPUT_FIELDS, stored
from identiscope.runs.format.statistics import BINS, Column
from identiscope.runs.format.tables import INPUTS, manifest_shape

#: Why a text has no statistics, or that it has.
Status = Literal["ok", "empty", "no tokens", "too long"]
STATUSES: tuple[Status, ...] = ("ok", "empty", "no tokens", "too long")
TEXTS, STATISTICS = "texts.parquet", "statistics.safetensors"
SUBSPACES, HIDDEN_STATES = "subspaces.safetensors", "hidden_states.safetensors"
_RECORD = {
    "format": TEXT, "run": HASH, "shard": COUNT, "first": COUNT, "texts": COUNT, "tokens": COUNT, "cut_texts": COUNT,
    "cut_tokens": COUNT, "statuses": Each(COUNT), "corpus": HASH, "files": Each({"bytes": COUNT, "sha256": HASH}),
    "hash": HASH,
}  # fmt: skip
#: Bytes of a file beside its numbers: names, types, ends of pages.
_BESIDE = 2**20
#: Columns whose cells may have no value: a text without a label, or of one part.
_MAY_LACK = ("label", "part_2")


def check_record(record: Any, manifest: Mapping[str, Any], number: int) -> None:
    """Refuse, with a ValueError, a record that cannot be that of this shard of the Run."""
    check_shape(record, _RECORD)
    size, total = manifest["options"]["shard_size"], manifest["corpus"]["texts"]
    if (record["first"], record["texts"]) != (number * size, min(size, total - number * size)):
        raise ValueError(f"{record['texts']} texts from {record['first']} on are not those of shard {number}")
    if not set(record["statuses"]) <= set(STATUSES) or sum(record["statuses"].values()) != record["texts"]:
        raise ValueError(f"the statuses {record['statuses']} are not those of {record['texts']} texts")
    options, files = manifest["options"], set(record["files"])
    needed = {TEXTS, STATISTICS}
    if ran(record):
        needed |= {f"{name}.parquet" for name in options["methods"]}
        needed |= {HIDDEN_STATES} if options["hidden_states"] else set()
    may_be = {SUBSPACES} if options["subspace_length"] is not None else set()
    if not needed <= files <= needed | may_be:
        raise ValueError(f"the files {sorted(files)[:20]} are not those of a shard, which are {sorted(needed)}")
    for name, facts in record["files"].items():
        if facts["bytes"] > most_bytes(name, manifest, record):
            raise ValueError(f"{name} cannot have {facts['bytes']} bytes")


def ran(record: Mapping[str, Any]) -> int:
    """How many texts of a shard have numbers."""
    return int(record["statuses"].get("ok", 0))


def most_bytes(name: str, manifest: Mapping[str, Any], record: Mapping[str, Any] | None = None) -> int:
    """The most bytes that a file of a shard, or of the Run as a whole, can have; far more than a usual one has."""
    shape, tables = manifest_shape(manifest), manifest_tables(manifest)
    if name == STATISTICS:
        # count, least, most; total and squares of six limbs; histogram: of each cell of each column
        cells = sum(len(table.columns) * shape.cells(table.axes) for table in tables.values())
        return _BESIDE + cells * 8 * (3 + 2 * 6 + BINS)
    if name == SUBSPACES:
        length = manifest["options"]["subspace_length"] or 0
        return _BESIDE + len(shape.layers) * 1024 * 8 * 4 * length * length
    if name == HIDDEN_STATES:
        return 2**40
    if name == TEXTS or record is None:
        return 2**31
    table = tables[name.removesuffix(".parquet")]
    if table.of_inputs:
        return 2**31
    row = 8 + 2 * len(table.axes) + 4 * len(table.columns)
    return _BESIDE + 2 * row * ran(record) * shape.cells(table.axes)


def check_table(table: pa.Table, name: str, manifest: Mapping[str, Any], record: Mapping[str, Any]) -> None:
    """Refuse, with a ValueError, a table that has not the columns, types and rows of this shard."""
    fields = {field.name: field.type for field in table.schema}
    wanted = table_fields(name, manifest)
    if fields != wanted or len(table.schema) != len(wanted):
        raise ValueError(f"its columns are {sorted(fields)[:30]}, expected {sorted(wanted)}")
    empty = [name for name in wanted if name not in _MAY_LACK and table.column(name).null_count]
    if empty or len(table) != table_rows(name, manifest, record):
        raise ValueError(f"it has {len(table)} rows, and cells without a value in {empty}")
    if name == "texts":
        own: Any = np.arange(record["first"], record["first"] + record["texts"])
        labels: dict[str, Any] = {}
        statuses = table.column("status").to_pylist()
        if {status: statuses.count(status) for status in set(statuses)} != record["statuses"]:
            raise ValueError("its statuses are not those of its record")
    elif manifest_tables(manifest)[name].of_inputs:
        _check_inputs(table, record)
        return
    else:
        described, shape = manifest_tables(manifest)[name], manifest_shape(manifest)
        labels = dict(zip(described.axes, map(np.asarray, shape.of(described.axes)), strict=True))
        if "layer" in labels:
            labels["layer"] = labels["layer"] + described.first_layer
        own = table.column("text").to_numpy()[:: shape.cells(described.axes)]
        inside = own[0] >= record["first"] and own[-1] < record["first"] + record["texts"]
        if not inside or not (np.diff(own) > 0).all():
            raise ValueError("its texts are not those of its shard")
    for axis, values in zip(("text", *labels), np.meshgrid(own, *labels.values(), indexing="ij"), strict=True):
        if not np.array_equal(table.column(axis).to_numpy(), values.ravel()):
            raise ValueError(f"its rows are not in the order of {axis}")


def _check_inputs(table: pa.Table, record: Mapping[str, Any]) -> None:
    """The tokens of each text that has numbers, in their order."""
    texts, places = (table.column(name).to_numpy() for name in ("text", *INPUTS))
    begins = np.flatnonzero(np.diff(texts, prepend=-1))
    own = texts[begins]
    inside = own[0] >= record["first"] and own[-1] < record["first"] + record["texts"]
    if len(own) != ran(record) or not inside or not (np.diff(own) > 0).all():
        raise ValueError("its texts are not those of its shard")
    lengths = np.diff(begins, append=len(texts))
    if not np.array_equal(places, np.arange(len(texts)) - np.repeat(begins, lengths)):
        raise ValueError("its rows are not in the order of the tokens")


def with_blocks(table: pa.Table, name: str, manifest: Mapping[str, Any]) -> pa.Table:
    """A checked table with its layers counted as blocks, from 0, whatever its file calls the first."""
    first = 0 if name == "texts" else manifest_tables(manifest)[name].first_layer
    if not first:
        return table
    blocks = table.column("layer").to_numpy() - np.int16(first)
    return table.set_column(table.schema.get_field_index("layer"), "layer", pa.array(blocks))


def table_rows(name: str, manifest: Mapping[str, Any], record: Mapping[str, Any]) -> int:
    """How many rows a table of a shard has."""
    if name == "texts":
        return int(record["texts"])
    table = manifest_tables(manifest)[name]
    if table.of_inputs:
        return int(record["tokens"])
    return ran(record) * manifest_shape(manifest).cells(table.axes)


def table_fields(name: str, manifest: Mapping[str, Any]) -> dict[str, pa.DataType]:
    """The columns of a table, in their order, and their types."""
    if name == "texts":
        parts = ("part_1", "part_2") if manifest["options"]["keep_texts"] else ()
        numbers = {"text": pa.int64(), "tokens": pa.int32(), "cut": pa.int32()}
        return numbers | {column: pa.string() for column in ("status", "label", *parts)}
    described = manifest_tables(manifest)[name]
    kinds = INPUT_FIELDS if described.of_inputs else {axis: pa.int16() for axis in described.axes}
    return {
        "text": pa.int64(),
        **kinds,
        **{column.name: _type(column) for column in described.columns},
    }


def _type(column: Column) -> pa.DataType:
    return pa.from_numpy_dtype(stored(column))
