"""The summary of a Run from before it had digests, compared with what the shards, which have them, add up to."""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from identiscope.careful_reading import DamagedRun, json_bytes, parse_json, understanding
from identiscope.files import printable
from identiscope.runs.format.seal import FACTS, read_summary_file
from identiscope.runs.format.shard_files import array_bytes, read_arrays
from identiscope.runs.format.shard_shape import STATISTICS, SUBSPACES
from identiscope.runs.format.subspaces import Subspace, read_subspaces
from identiscope.runs.format.summary import (
    counts_of,
    means_of,
    merged_statistics,
    read_facts,
    read_statistics,
    shard_subspaces,
)

#: What two libraries of linear algebra may differ by in a number of size one, with much to spare.
_ROUNDING = 1e-9
_LAST_BITS = 1e-14
Floats = NDArray[np.float64]


def check_old_summary(directory: Path, manifest: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a file of the summary that is not what the shards add up to, whatever versions wrote it.

    Sums are compared to the bit; means, and what was found by factorising, up to rounding.
    """
    merged = merged_statistics(directory, manifest, records)
    data = _read(directory, manifest, STATISTICS)
    kept = read_statistics(data, manifest, tuple(merged))
    same = all(
        np.array_equal(array, kept[name].arrays()[field])
        for name, one in merged.items()
        for field, array in one.arrays().items()
    )
    _demand(same and _as_written(data, manifest), directory / STATISTICS)
    data = _read(directory, manifest, FACTS)
    with understanding(printable(directory / FACTS)):
        facts = read_facts(parse_json(data), manifest)
    same = _same_means(facts["means"], means_of(merged)) and data == json_bytes(facts)
    _demand(same and counts_of(records).items() <= facts.items(), directory / FACTS)
    summed: dict[int, Subspace] = {}
    for layer, one in shard_subspaces(directory, manifest, records):
        summed[layer] = _merged(summed[layer], one) if layer in summed else one
    if summed:
        data = _read(directory, manifest, SUBSPACES)
        subspaces = read_subspaces(data, manifest)
        same = subspaces.keys() == summed.keys() and all(_same(one, subspaces[at]) for at, one in summed.items())
        _demand(same and _as_written(data, manifest), directory / SUBSPACES)


def _read(directory: Path, manifest: Mapping[str, Any], name: str) -> bytes:
    return read_summary_file(directory, manifest, None, name)


def _demand(same: bool, path: Path) -> None:
    if not same:
        raise DamagedRun(f"{printable(path)} is not what the shards add up to.")


def _as_written(data: bytes, manifest: Mapping[str, Any]) -> bool:
    """Whether the bytes are those that the arrays in them are written as; other versions may write others."""
    arrays, described = read_arrays(data)
    return (
        described.get("run", manifest["run"]) == manifest["run"]
        and described.get("length") in (None, manifest["options"]["subspace_length"])
        and (
            version("safetensors") != manifest["environment"].get("safetensors")
            or array_bytes(arrays, described) == data
        )
    )


def _same_means(one: Mapping[str, Mapping[str, Any]], other: Mapping[str, Mapping[str, Any]]) -> bool:
    def flat(means: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
        given = {f"{table}.{name}": value for table, columns in means.items() for name, value in columns.items()}
        return {name: np.nan if value is None else float(value) for name, value in given.items()}

    first, second = flat(one), flat(other)
    return first.keys() == second.keys() and all(
        np.isclose(value, second[name], rtol=1e-12, atol=0, equal_nan=True) for name, value in first.items()
    )


def _merged(one: Subspace, other: Subspace) -> Subspace:
    """Of the texts of both, as `SharedSubspace.merge` has it."""
    cutoff, keys = np.maximum(one.cutoff, other.cutoff), one.keys
    basis, origin = one.basis.copy(), one.origin.copy()
    strength, gap = one.strength.copy(), one.gap.copy()
    for head in range(len(cutoff)):
        was_full = bool((origin[head] > 0).all())
        for number in range(1, int(other.origin[head].max(initial=0)) + 1):
            here, filled = other.origin[head] == number, int((origin[head] > 0).sum())
            known = basis[head, :, :filled]
            left, values, _ = np.linalg.svd(_outside(known, (other.basis[head] * other.strength[head])[:, here]), False)
            new = min(int((values > cutoff[head]).sum()), keys - filled)
            if not new:
                continue
            place = slice(filled, filled + new)
            basis[head, :, place] = np.linalg.qr(_outside(known, left[:, :new])).Q
            origin[head, place], strength[head, place] = one.samples + number, values[:new]
            gap[head] = min(gap[head], values[new - 1] / cutoff[head])
        gap[head] = min(gap[head], np.inf if was_full else other.gap[head])
    sums = one.projector_sum + other.projector_sum
    return Subspace(basis, origin, strength, gap, sums, cutoff, one.samples + other.samples)


def _outside(basis: Floats, columns: Floats) -> Floats:
    """Columns minus their part in the span; twice, since once leaves rounding of the size of the columns."""
    for _ in range(2):
        columns = columns - basis @ (basis.T @ columns)
    return columns


def _same(one: Subspace, other: Subspace) -> bool:
    exact = ("projector_sum", "cutoff", "samples", "origin")
    if not all(np.array_equal(getattr(one, name), getattr(other, name)) for name in exact):
        return False
    near = _near(one.strength, other.strength) and _near(one.gap * one.cutoff, other.gap * one.cutoff)
    return near and all(_same_spans(one, other, head) for head in range(len(one.cutoff)))


def _same_spans(one: Subspace, other: Subspace, head: int) -> bool:
    """Whether each text brought the same directions, turned among themselves or not."""
    origin = one.origin[head]
    for number in {*origin.tolist()}:
        mine, theirs = one.basis[head][:, origin == number], other.basis[head][:, origin == number]
        # What is left of a weak direction is known less well, by as much as it is weaker.
        weakest = float(one.strength[head][origin == number].min()) if number else 1.0
        if not _near(mine @ mine.T, theirs @ theirs.T, max(_ROUNDING, _LAST_BITS / max(weakest, _LAST_BITS))):
            return False
    return True


def _near(one: Floats, other: Floats, tolerance: float = _ROUNDING) -> bool:
    return bool(np.isclose(one, other, rtol=0, atol=tolerance).all())
