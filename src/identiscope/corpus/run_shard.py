"""Compute one shard: some consecutive texts of a corpus, as the files that hold what was found."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from identiscope.corpus.readers import Text
from identiscope.corpus.run_batch import Computed, Worker, compute_batch
from identiscope.corpus.run_methods import RUN_METHODS
from identiscope.corpus.run_texts import Measured, batches, cutting, measure, text_hash, token_limit
from identiscope.corpus.shard_files import array_bytes, method_table, stored, table_bytes, texts_table
from identiscope.corpus.statistics import statistics_of
from identiscope.methods.shared_subspace import SharedSubspace

#: Called with the texts and tokens done since the last call.
Moved = Callable[[int, int], None]


@dataclass(frozen=True)
class ShardTask:
    """A shard to compute: its number, the number of its first text, and its texts."""

    number: int
    first: int
    texts: tuple[Text, ...]


@dataclass(frozen=True)
class ShardFiles:
    """A computed shard: the bytes of its files by name, and the facts that its record holds."""

    number: int
    files: Mapping[str, bytes]
    facts: Mapping[str, Any]


def compute_shard(worker: Worker, task: ShardTask, moved: Moved | None = None) -> ShardFiles:
    """The files of one shard. They depend on the task, the model and the options alone."""
    options = worker.options
    measured = measure(worker.model, task.texts, options)
    limit = token_limit(worker.model, options)
    cut = any(one.cut for one in measured)
    running = Worker(cutting(worker.model, limit) if cut else worker.model, options, worker.shape, worker.products)
    found: dict[int, tuple[Computed, int]] = {}
    subspaces: dict[int, SharedSubspace] = {}
    for numbers in batches(measured, options.batch_size):
        computed = compute_batch(running, [task.texts[number].given for number in numbers])
        found |= {number: (computed, row) for row, number in enumerate(numbers)}
        for layer, subspace in computed.subspaces.items():
            subspaces[layer] = subspaces[layer].merge(subspace) if layer in subspaces else subspace
        if moved is not None:
            moved(len(numbers), sum(measured[number].tokens for number in numbers))
    left = len(task.texts) - len(found)
    if moved is not None and left:
        moved(left, 0)
    files = {"texts.parquet": table_bytes(texts_table(_texts(task, measured, options.keep_texts)))}
    ran = sorted(found)
    statistics: dict[str, Any] = {}
    for name in options.methods if ran else ():
        method = RUN_METHODS[name]
        columns = {
            column.name: np.stack([found[number][0].tables[name][column.name][found[number][1]] for number in ran])
            for column in method.columns
        }
        table = method_table(method, [task.first + number for number in ran], worker.shape.of(method.axes), columns)
        files[f"{name}.parquet"] = table_bytes(table)
        # Of the values as they are stored, so that the statistics are those of the table.
        kept: dict[str, Any] = {column.name: columns[column.name].astype(stored(column)) for column in method.columns}
        merged = statistics_of(method.columns, kept)
        statistics |= {f"{name}.{field}": array for field, array in merged.arrays().items()}
    files["statistics.safetensors"] = array_bytes(statistics, {"methods": list(options.methods) if ran else []})
    files |= _arrays(options.hidden_states, [(found[number]) for number in ran], ran, task.first, subspaces)
    facts = {
        "first": task.first,
        "texts": len(task.texts),
        "tokens": sum(one.tokens for one in measured if one.status == "ok"),
        "cut_texts": sum(one.cut > 0 for one in measured),
        "cut_tokens": sum(one.cut for one in measured),
        "statuses": _counts(measured),
        "corpus": text_hash(task.texts).hexdigest(),
    }
    return ShardFiles(task.number, files, facts)


def _texts(task: ShardTask, measured: list[Measured], keep_texts: bool) -> dict[str, list[Any]]:
    rows: dict[str, list[Any]] = {
        "text": [task.first + number for number in range(len(task.texts))],
        "tokens": [one.tokens for one in measured],
        "cut": [one.cut for one in measured],
        "status": [one.status for one in measured],
        "label": [text.label for text in task.texts],
    }
    if keep_texts:
        rows["part_1"] = [text.parts[0] for text in task.texts]
        rows["part_2"] = [text.parts[1] if len(text.parts) > 1 else None for text in task.texts]
    return rows


def _counts(measured: list[Measured]) -> dict[str, int]:
    statuses = [one.status for one in measured]
    return {status: statuses.count(status) for status in sorted(set(statuses))}


def _arrays(
    hidden_states: bool,
    ran: list[tuple[Computed, int]],
    numbers: list[int],
    first: int,
    subspaces: Mapping[int, SharedSubspace],
) -> dict[str, bytes]:
    """Arrays that were asked for: hidden states of all layers, and sums of projectors."""
    files: dict[str, bytes] = {}
    if hidden_states and ran:
        of_text = [computed.states[row] for computed, row in ran if computed.states is not None]
        layers = [torch.cat([text[layer] for text in of_text]).float() for layer in range(len(of_text[0]))]
        arrays = {f"layer_{number:02d}": layer.numpy() for number, layer in enumerate(layers)}
        described = {"texts": [first + number for number in numbers], "lengths": [len(text[0]) for text in of_text]}
        files["hidden_states.safetensors"] = array_bytes(arrays, described)
    if subspaces:
        held = {
            f"{layer}.{name}": array
            for layer, subspace in subspaces.items()
            for name, array in subspace.arrays().items()
        }
        files["subspaces.safetensors"] = array_bytes(held, {"layers": sorted(subspaces)})
    return files
