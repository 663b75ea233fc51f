"""The summary of a Run: the statistics of all shards merged, in one small file, and the main facts as JSON."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from identiscope.careful_reading import DamagedRun, json_bytes, understanding
from identiscope.files import printable
from identiscope.json_shapes import COUNT, HASH, MEAN, Each, check_shape
from identiscope.runs.format.legacy import lacks_digests, manifest_tables
from identiscope.runs.format.manifest import shards_hash
from identiscope.runs.format.seal import FACTS
from identiscope.runs.format.shard_files import array_bytes, read_arrays
from identiscope.runs.format.shard_shape import STATISTICS, SUBSPACES, ran
from identiscope.runs.format.shards import read_record, read_shard_file
from identiscope.runs.format.statistics import BINS, FIELDS, LIMBS, Statistics, from_arrays, no_statistics
from identiscope.runs.format.subspaces import Arrays, Merge, Subspace, read_subspaces, subspace_bytes
from identiscope.runs.format.tables import Table, manifest_shape

_COUNTS = ("texts", "tokens", "cut_texts", "cut_tokens")
_SHAPE = {**dict.fromkeys(_COUNTS, COUNT), "statuses": Each(COUNT), "means": Each(Each(MEAN)), "run": HASH}


def summary_files(
    directory: Path, manifest: Mapping[str, Any], merge: Merge, sealed: Sequence[str] | None = None
) -> tuple[dict[str, bytes], list[dict[str, Any]]]:
    """The files of the summary, from shards that are all there, and the shards' records.

    Shard after shard, whoever computed them, so that the bytes are always the same. merge: of sums of projectors.
    """
    records = [read_record(directory, manifest, number, sealed) for number in range(manifest["shards"])]
    check_corpus(directory, manifest, records)
    merged = merged_statistics(directory, manifest, records)
    arrays = {f"{name}.{field}": array for name, one in merged.items() for field, array in one.arrays().items()}
    files = {STATISTICS: array_bytes(arrays, {"methods": list(merged), "run": manifest["run"]})}
    subspaces: dict[int, Arrays] = {}
    for layer, one in shard_subspaces(directory, manifest, records):
        subspaces[layer] = merge(subspaces[layer], one.arrays()) if layer in subspaces else one.arrays()
    if subspaces:
        files[SUBSPACES] = subspace_bytes(subspaces, {"length": manifest["options"]["subspace_length"]})
    files[FACTS] = json_bytes({**counts_of(records), "means": means_of(merged), "run": manifest["run"]})
    return files, records


def merged_statistics(
    directory: Path, manifest: Mapping[str, Any], records: Sequence[Mapping[str, Any]]
) -> dict[str, Statistics]:
    """The statistics of all shards together, by method."""
    tables, shape = manifest_tables(manifest), manifest_shape(manifest)
    merged = {
        name: no_statistics(table.columns, tuple(map(len, shape.of(table.axes)))) for name, table in tables.items()
    }
    for record in records:
        data = read_shard_file(directory, record, STATISTICS)
        for name, statistics in read_statistics(data, manifest, tuple(tables) if ran(record) else ()).items():
            merged[name] = merged[name].merge(statistics)
    return merged


def shard_subspaces(
    directory: Path, manifest: Mapping[str, Any], records: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[int, Subspace]]:
    """The sums of projectors of the shards that have any, in their order, with the layers that they are of."""
    for record in records:
        if SUBSPACES in record["files"]:
            yield from read_subspaces(read_shard_file(directory, record, SUBSPACES), manifest).items()


def counts_of(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the records of shards count, summed."""
    counts: dict[str, Any] = {name: sum(record[name] for record in records) for name in _COUNTS}
    named = sorted({status for record in records for status in record["statuses"]})
    return counts | {
        "statuses": {status: sum(record["statuses"].get(status, 0) for record in records) for status in named}
    }


def check_corpus(directory: Path, manifest: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> None:
    """Refuse shards that were not all made of the texts that the Run was begun with."""
    if lacks_digests(manifest):
        return
    if shards_hash([record["corpus"] for record in records]) != manifest["corpus"]["shards"]:
        raise DamagedRun(
            f"some shards of {printable(directory)} were made of other texts than the Run was begun with; the command"
            " that began it, with --repair, finds which and computes them again."
        )


def read_facts(value: Any, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a summary, checked."""
    check_shape(value, _SHAPE)
    if value["run"] != manifest["run"]:
        raise ValueError("it is the summary of another Run")
    tables = manifest_tables(manifest)
    for name, means in value["means"].items():
        if name not in tables or means.keys() != set(tables[name].names):
            raise ValueError(f"its means of {name[:40]!a} are not those of a method of the Run")
    return dict(value)


def read_statistics(data: bytes, manifest: Mapping[str, Any], methods: Sequence[str]) -> dict[str, Statistics]:
    """The statistics of some methods of a Run, or of a shard of it, checked."""
    with understanding(STATISTICS):
        arrays, described = read_arrays(data)
        if described["methods"] != list(methods):
            raise ValueError(f"its methods are not {', '.join(methods)}")
        tables = {name: manifest_tables(manifest)[name] for name in methods}
        if arrays.keys() != {f"{name}.{field}" for name in tables for field in FIELDS}:
            raise ValueError("its arrays are not those of statistics")
        return {name: _statistics(name, table, manifest, _of(name, arrays)) for name, table in tables.items()}


def _statistics(name: str, table: Table, manifest: Mapping[str, Any], arrays: Arrays) -> Statistics:
    cells = (len(table.columns), *map(len, manifest_shape(manifest).of(table.axes)))
    more = {"total": (LIMBS,), "squares": (LIMBS,), "histogram": (BINS,)}
    for field, array in arrays.items():
        # Counts of a shard's histograms are written in 32 bits, those of the whole Run in 64.
        kinds = ("float64",) if field in ("least", "most") else ("int64", "int32")[: 1 + (field == "histogram")]
        if array.shape != (*cells, *more.get(field, ())) or array.dtype.name not in kinds:
            raise ValueError(f"{name}.{field} is not of the shape or type of the Run's")
    return from_arrays(table.names, arrays)


def _of(name: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    start = f"{name}."
    return {key.removeprefix(start): array for key, array in arrays.items() if key.startswith(start)}


def means_of(merged: Mapping[str, Statistics]) -> dict[str, dict[str, float | None]]:
    """The means of every method's columns, as the main facts hold them."""
    return {name: _means(statistics) for name, statistics in merged.items()}


def _means(statistics: Statistics) -> dict[str, float | None]:
    """Mean of each column over all texts, layers and heads."""
    means: dict[str, float | None] = {}
    for index, name in enumerate(statistics.columns):
        count = statistics.count[index]
        if count.sum() == 0:
            means[name] = None
            continue
        values = np.where(count > 0, statistics.mean[index], 0.0)
        means[name] = float((values * count).sum() / count.sum())
    return means
