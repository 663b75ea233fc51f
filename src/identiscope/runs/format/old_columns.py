"""Which columns the tables of an old Run have: its manifest does not say, and they were not always the same."""

import io
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from identiscope.careful_reading import DamagedRun, read_bounded, understanding
from identiscope.files import printable
from identiscope.runs.format.legacy import TABLES, without_columns
from identiscope.runs.format.shards import known_shards, shard_path
from identiscope.runs.format.tables import described_tables

#: The table that got a column while its format kept its name.
_TABLE, _ADDED = "attribution", ("not_largest_noise",)
#: Of one number for each text and layer; far more than those of a shard of any Run take.
_MOST_BYTES = 2**31


def described_columns(directory: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of a Run whose manifest does not describe them, as one of now would."""
    asked = {name: TABLES[name] for name in manifest["options"]["methods"]}
    if _TABLE in asked and _columns_there(directory, manifest) == set(without_columns(_TABLE, _ADDED).names):
        asked[_TABLE] = without_columns(_TABLE, _ADDED)
    return described_tables(asked)


def _columns_there(directory: Path, manifest: Mapping[str, Any]) -> set[str]:
    """The columns in the first shard that shows any; what is damaged is said when it is read."""
    with suppress(DamagedRun):
        for number in known_shards(directory, manifest):
            path = shard_path(directory, number) / f"{_TABLE}.parquet"
            with suppress(DamagedRun), understanding(printable(path)):
                names = pq.ParquetFile(io.BytesIO(read_bounded(path, _MOST_BYTES))).schema_arrow.names
                return set(names) - {"text", *TABLES[_TABLE].axes}
    return set()
