"""The summary of a Run: the statistics of all shards merged, in one small file, and the main facts as JSON."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from identiscope.corpus.run_batch import Shape
from identiscope.corpus.run_methods import RUN_METHODS
from identiscope.corpus.run_options import options_from
from identiscope.corpus.shard_files import array_bytes, read_arrays
from identiscope.corpus.shards import read_record, read_shard_file, shard_path
from identiscope.corpus.statistics import Statistics, from_arrays, no_statistics
from identiscope.methods.shared_subspace import SharedSubspace
from identiscope.methods.shared_subspace import from_arrays as subspace_from_arrays

STATISTICS, FACTS, SUBSPACES = "statistics.safetensors", "summary.json", "subspaces.safetensors"


def summary_files(directory: Path, manifest: Mapping[str, Any]) -> dict[str, bytes]:
    """The files of the summary, from shards that are all there; shard after shard, whoever computed them."""
    options = options_from(manifest["options"])
    shape = manifest_shape(manifest)
    merged = {name: _nothing(name, shape) for name in options.methods}
    subspaces: dict[int, SharedSubspace] = {}
    facts: dict[str, Any] = {"texts": 0, "tokens": 0, "cut_texts": 0, "cut_tokens": 0, "statuses": {}}
    for number in range(manifest["shards"]):
        path = shard_path(directory, number)
        record = read_record(path, manifest["run"])
        for name in ("texts", "tokens", "cut_texts", "cut_tokens"):
            facts[name] += record[name]
        for status, count in record["statuses"].items():
            facts["statuses"][status] = facts["statuses"].get(status, 0) + count
        arrays, described = read_arrays(read_shard_file(path, record, STATISTICS))
        for name in described["methods"]:
            merged[name] = merged[name].merge(from_arrays(merged[name].columns, _of(name, arrays)))
        if SUBSPACES in record["files"]:
            held, about = read_arrays(read_shard_file(path, record, SUBSPACES))
            for layer in about["layers"]:
                found = subspace_from_arrays(_of(str(layer), held))
                subspaces[layer] = subspaces[layer].merge(found) if layer in subspaces else found
    held = {f"{name}.{field}": array for name, one in merged.items() for field, array in one.arrays().items()}
    files = {STATISTICS: array_bytes(held, {"methods": list(options.methods), "run": manifest["run"]})}
    if subspaces:
        held = {f"{layer}.{name}": array for layer, one in subspaces.items() for name, array in one.arrays().items()}
        files[SUBSPACES] = array_bytes(held, {"layers": sorted(subspaces), "length": options.subspace_length})
    facts["means"] = {name: _means(statistics) for name, statistics in merged.items()}
    facts["run"] = manifest["run"]
    files[FACTS] = (json.dumps(facts, indent=1, sort_keys=True) + "\n").encode()
    return files


def manifest_shape(manifest: Mapping[str, Any]) -> Shape:
    """The layers and heads of a Run."""
    return Shape(tuple(manifest["model"]["layers"]), tuple(manifest["model"]["heads"]))


def read_statistics(data: bytes) -> dict[str, Statistics]:
    """The merged statistics of each method."""
    arrays, described = read_arrays(data)
    return {
        name: from_arrays([column.name for column in RUN_METHODS[name].columns], _of(name, arrays))
        for name in described["methods"]
    }


def _nothing(name: str, shape: Shape) -> Statistics:
    method = RUN_METHODS[name]
    return no_statistics(method.columns, tuple(len(axis) for axis in shape.of(method.axes)))


def _of(name: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    start = f"{name}."
    return {key.removeprefix(start): array for key, array in arrays.items() if key.startswith(start)}


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
