"""Compute one shard: some consecutive texts of a corpus, as the files that hold what was found."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from identiscope.corpus.readers import Text
from identiscope.linalg.devices import on_cpu
from identiscope.methods.structure.shared_subspace import SharedSubspace
from identiscope.runs.compute.batch import Computed, Worker, compute_batch, trace_methods
from identiscope.runs.compute.texts import Measured, batches, measure, rows_of
from identiscope.runs.format.shard_files import (
    array_bytes,
    inputs_table,
    method_table,
    stored,
    table_bytes,
    texts_table,
)
from identiscope.runs.format.shards import ShardFiles
from identiscope.runs.format.statistics import statistics_of
from identiscope.runs.format.subspaces import subspace_bytes
from identiscope.runs.format.text_hash import text_hash

#: Called with the texts and tokens done since the last call.
Moved = Callable[[int, int], None]


@dataclass(frozen=True)
class ShardTask:
    """A shard to compute: its number, the number of its first text, its texts, and what measuring them gave, if that
    was done already."""

    number: int
    first: int
    texts: tuple[Text, ...]
    measured: tuple[Measured, ...] | None = None


def measured_task(worker: Worker, task: ShardTask) -> ShardTask:
    """The same task with its texts measured, unless they were."""
    if task.measured is not None:
        return task
    return replace(task, measured=tuple(measure(worker.model, task.texts, worker.options)))


def compute_shard(worker: Worker, task: ShardTask, moved: Moved | None = None) -> ShardFiles:
    """The files of one shard. They depend on the task, the model and the options alone."""
    options = worker.options
    measured = measured_task(worker, task).measured
    assert measured is not None
    row_of_text: dict[int, tuple[Computed, int]] = {}
    subspaces: dict[int, SharedSubspace] = {}
    by_text = bool(trace_methods(options))
    for numbers in batches(measured, worker.batch_size):
        tokens = [measured[number].tokens for number in numbers]
        traced = partial(_one_moved, moved, tokens) if by_text and moved is not None else None
        computed = compute_batch(worker, rows_of(measured, numbers), traced)
        row_of_text |= {number: (computed, row) for row, number in enumerate(numbers)}
        for layer, subspace in computed.subspaces.items():
            subspaces[layer] = subspaces[layer].merge(subspace) if layer in subspaces else subspace
        if moved is not None and not by_text:
            moved(len(numbers), sum(tokens))
    left = len(task.texts) - len(row_of_text)
    if moved is not None and left:
        moved(left, 0)
    files = {"texts.parquet": table_bytes(texts_table(_texts(task, measured, options.keep_texts)))}
    ran = sorted(row_of_text)
    statistics: dict[str, Any] = {}
    numbers = [task.first + number for number in ran]
    for name, method in options.chosen.items() if ran else ():
        if method.table.of_inputs:
            rows = [row_of_text[number][0].tokens[name][row_of_text[number][1]] for number in ran]
            table = inputs_table(method.table, numbers, rows)
            columns = {column.name: np.concatenate([row[column.name] for row in rows]) for column in method.columns}
        else:
            columns = {
                column.name: np.stack(
                    [row_of_text[number][0].tables[name][column.name][row_of_text[number][1]] for number in ran]
                )
                for column in method.columns
            }
            table = method_table(method.table, numbers, worker.shape.of(method.axes), columns)
        files[f"{name}.parquet"] = table_bytes(table)
        # Of the values as they are stored, so that the statistics are those of the table.
        kept: dict[str, Any] = {column.name: columns[column.name].astype(stored(column)) for column in method.columns}
        merged = statistics_of(method.columns, kept)
        statistics |= {f"{name}.{field}": array for field, array in merged.arrays().items()}
    files["statistics.safetensors"] = array_bytes(statistics, {"methods": list(options.methods) if ran else []})
    files |= _arrays(options.hidden_states, [(row_of_text[number]) for number in ran], ran, task.first, subspaces)
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


def _one_moved(moved: Moved, tokens: Sequence[int], row: int) -> None:
    moved(1, tokens[row])


def _texts(task: ShardTask, measured: Sequence[Measured], keep_texts: bool) -> dict[str, list[Any]]:
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


def _counts(measured: Sequence[Measured]) -> dict[str, int]:
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
        layers = [on_cpu(torch.cat([text[layer] for text in of_text]).float()) for layer in range(len(of_text[0]))]
        names = ["input", *(f"layer_{block:02d}" for block in range(len(layers) - 1))]
        arrays = {name: layer.numpy() for name, layer in zip(names, layers, strict=True)}
        described = {"texts": [first + number for number in numbers], "lengths": [len(text[0]) for text in of_text]}
        files["hidden_states.safetensors"] = array_bytes(arrays, described)
    if subspaces:
        by_layer = {layer: subspace.arrays() for layer, subspace in subspaces.items()}
        files["subspaces.safetensors"] = subspace_bytes(by_layer, {})
    return files
