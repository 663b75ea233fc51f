"""The files of a shard as bytes: Parquet tables and safetensors, the same bytes for the same numbers."""

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from safetensors.numpy import load, save

from identiscope.runs.format.statistics import Column
from identiscope.runs.format.tables import INPUTS, Table

#: All that the bytes of a table depend on besides its numbers and the version of pyarrow.
_WRITING: dict[str, Any] = {
    "compression": "zstd", "compression_level": 3, "version": "2.6", "data_page_version": "1.0",
    "use_dictionary": False, "write_statistics": True, "store_schema": False, "row_group_size": 2**20,
}  # fmt: skip
#: All metadata of a safetensors file, under one key: the order of several is not fixed.
_HEADER = "identiscope"


def table_bytes(table: pa.Table) -> bytes:
    """A table as Parquet."""
    sink = io.BytesIO()
    pq.write_table(table, sink, **_WRITING)
    return sink.getvalue()


def method_table(
    described: Table, texts: Sequence[int], labels: Sequence[Sequence[int]], columns: Mapping[str, NDArray[Any]]
) -> pa.Table:
    """Columns [text, …] as rows: the text's number, the labels of the axes, the values."""
    grid = np.meshgrid(np.asarray(texts, np.int64), *(np.asarray(axis, np.int16) for axis in labels), indexing="ij")
    named = {name: part.ravel() for name, part in zip(("text", *described.axes), grid, strict=True)}
    for column in described.columns:
        values = columns[column.name].reshape(-1)
        # A value that is not a number stays one in a column of floats; ranks and dimensions always are numbers.
        named[column.name] = values.astype(stored(column))
    return pa.table(named)


def inputs_table(described: Table, texts: Sequence[int], parts: Sequence[Mapping[str, NDArray[Any]]]) -> pa.Table:
    """A row for each token of each text: the text's number, the token's place, what is said in words, the values."""
    lengths = [len(part["token"]) for part in parts]
    places = np.concatenate([np.arange(length) for length in lengths])
    named = {"text": pa.array(np.repeat(np.asarray(texts, np.int64), lengths))}
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} | {INPUTS[0]: places}
    named |= {name: pa.array(joined[name].tolist(), kind) for name, kind in INPUT_FIELDS.items()}
    for column in described.columns:
        named[column.name] = pa.array(joined[column.name].astype(stored(column)))
    return pa.table(named)


#: Of a table of tokens: their places, and what is said of them in words.
INPUT_FIELDS: Mapping[str, pa.DataType] = {
    INPUTS[0]: pa.int32(), "token": pa.string(), "special": pa.bool_(), "outcome": pa.string(), "failed": pa.string(),
}  # fmt: skip


def stored(column: Column) -> type:
    """The type a column is stored as."""
    return np.int32 if column.whole else np.float32


def texts_table(rows: Mapping[str, Sequence[Any]]) -> pa.Table:
    """The texts of a shard: number, tokens, cut, status, label, and the texts themselves if kept."""
    kinds = {"text": pa.int64(), "tokens": pa.int32(), "cut": pa.int32()}
    return pa.table({name: pa.array(list(values), kinds.get(name, pa.string())) for name, values in rows.items()})


def read_table(data: bytes, rows: int) -> pa.Table:
    """A table from its bytes; one that says it has not so many rows is not unpacked."""
    file = pq.ParquetFile(io.BytesIO(data))
    if file.metadata.num_rows != rows:
        raise ValueError(f"it has {file.metadata.num_rows} rows, expected {rows}")
    return file.read(use_threads=False)


def array_bytes(arrays: Mapping[str, NDArray[Any]], described: Mapping[str, Any]) -> bytes:
    """Arrays with what describes them, as safetensors."""
    header = {_HEADER: json.dumps(described, sort_keys=True)}
    return bytes(save({name: np.asarray(arrays[name], order="C") for name in sorted(arrays)}, header))


def read_arrays(data: bytes) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Arrays and what describes them."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    return dict(load(data)), json.loads(header["__metadata__"][_HEADER])
