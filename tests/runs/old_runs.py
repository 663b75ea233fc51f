"""Runs as former versions wrote them, and what these read from them: the same three texts in both formats.

`old_runs.tar.xz` holds `run-1` and `run-2`, written by the code of their time, and `expected.json`.
"""

import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from identiscope.careful_reading import facts_of, hashed, json_bytes
from identiscope.runs.format.shard_files import array_bytes, read_arrays, table_bytes

FORMATS = ("run-1", "run-2")
#: Their layers were counted from 1.
OF_HIDDEN_STATES = ("attribution", "tokens")


def unpacked(folder: Path) -> dict[str, Any]:
    """Put both Runs into a folder; what was read from them is returned."""
    with tarfile.open(Path(__file__).with_name("old_runs.tar.xz")) as packed:
        packed.extractall(folder, filter="data")
    expected: dict[str, Any] = json.loads((folder / "expected.json").read_text())
    return expected


def before_noise(run: Path) -> None:
    """Make a Run of format 1 what the first versions wrote: its table `attribution` has no `not_largest_noise`."""
    arrays, said = read_arrays((run / "statistics.safetensors").read_bytes())
    (run / "statistics.safetensors").write_bytes(array_bytes(_without_fourth(arrays), said))
    facts = json.loads((run / "summary.json").read_bytes())
    del facts["means"]["attribution"]["not_largest_noise"]
    (run / "summary.json").write_bytes(json_bytes(facts))
    for shard in sorted((run / "shards").iterdir()):
        table = pq.read_table(shard / "attribution.parquet").drop_columns(["not_largest_noise"])
        arrays, said = read_arrays((shard / "statistics.safetensors").read_bytes())
        files = {"attribution.parquet": table_bytes(table),
                 "statistics.safetensors": array_bytes(_without_fourth(arrays), said)}  # fmt: skip
        for name, data in files.items():
            (shard / name).write_bytes(data)
        record = json.loads((shard / "shard.json").read_bytes())
        record["files"] |= {name: facts_of(data) for name, data in files.items()}
        del record["hash"]
        (shard / "shard.json").write_bytes(json_bytes(hashed(record)))


def _without_fourth(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of `attribution` but for the fourth."""
    return {
        name: np.delete(array, 3, 0) if name.startswith("attribution.") else array for name, array in arrays.items()
    }
