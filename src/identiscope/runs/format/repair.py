"""The shards that are there already, checked; what is damaged or unknown is refused, or moved aside, never deleted."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from identiscope.careful_reading import DamagedRun, check_directory, check_regular
from identiscope.files import make_directory, printable
from identiscope.runs.format.seal import SEAL, SUMMARY, read_seal
from identiscope.runs.format.shards import (
    RECORD,
    SHARDS,
    DamagedShard,
    check_shard,
    listed_shards,
    refuse_unknown,
    shard_path,
    writing,
)


def finished_shards(
    directory: Path, manifest: Mapping[str, Any], corpus: Sequence[str], *, repair: bool
) -> dict[int, dict[str, Any]]:
    """The records of the shards that are there, every byte compared with its hash.

    corpus: the hash of the texts of each shard, as the corpus has them now. What is damaged, made of other texts or no
    part of this Run is refused, or with `repair` moved aside, so that it is computed again.
    """
    for name in (SHARDS, SEAL, *SUMMARY):
        with _or_moved_aside(directory, directory / name, repair):
            _check_place(directory / name)
    sealed: Sequence[str] | None = None
    with suppress(DamagedRun):  # It is made again from what the shards say of themselves.
        seal = read_seal(directory, manifest)
        sealed = seal.shards if seal else None
    numbers, unknown = listed_shards(directory, manifest)
    for path in unknown:
        with _or_moved_aside(directory, path, repair):
            refuse_unknown(path, manifest)
    records: dict[int, dict[str, Any]] = {}
    for number in numbers:
        path = shard_path(directory, number)
        with _or_moved_aside(directory, path, repair):
            record = check_shard(directory, manifest, number, sealed)
            if record["corpus"] != corpus[number]:
                raise DamagedShard(
                    f"shard {path.name} was made of other texts than the corpus has there. Remove {printable(path)} to"
                    " have it computed again (or give --repair)."
                )
            records[number] = record
            for name in sorted({*os.listdir(path)} - {RECORD, *record["files"]}) if repair else ():
                move_aside(directory, path / name)
    return records


def aside_directory(directory: Path) -> Path:
    """Where things are moved: beside the Run, so that the Run has no more than its own files."""
    place = Path(os.path.realpath(directory))
    return place.with_name(f"{place.name}.aside")


def move_aside(directory: Path, path: Path) -> Path:
    """Move something out of a Run, as it is, under a name that is free; where it is now is returned."""
    aside = make_directory(aside_directory(directory))
    with writing(path):
        for number in count():
            place = aside / (f"{path.name}.{number}" if number else path.name)
            if not os.path.lexists(place):
                os.rename(path, place)
                return place
    raise AssertionError("some name is free")


@contextmanager
def _or_moved_aside(directory: Path, path: Path, repair: bool) -> Iterator[None]:
    try:
        yield
    except DamagedRun:
        if not repair:
            raise
        move_aside(directory, path)


def _check_place(path: Path) -> None:
    """A link or pipe in the place of a file of ours would be written through."""
    if path.name != SHARDS:
        check_regular(path)
    elif os.path.lexists(path):
        check_directory(path)
