"""Shards on disk: written aside and renamed, so that a shard is there as a whole or not at all; hashed, so that one
that is damaged or of another Run is noticed."""

import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa

from identiscope.careful_reading import (
    DamagedRun,
    check_directory,
    check_hashed,
    facts_of,
    file_facts,
    hashed,
    json_bytes,
    read_bounded,
    read_json,
    understanding,
)
from identiscope.errors import InputError
from identiscope.files import ASIDE, flush, printable, saying
from identiscope.runs.format.shard_files import read_table
from identiscope.runs.format.shard_shape import check_record, check_table, most_bytes, table_rows, with_blocks

FORMAT = "identiscope-shard-1"
RECORD = "shard.json"
SHARDS = "shards"
#: Far more than a record takes, which names a few files and counts a few things.
_MOST_RECORD = 2**16


class DamagedShard(DamagedRun):
    """A shard that is damaged, incomplete, or of another Run."""


@dataclass(frozen=True)
class ShardFiles:
    """A computed shard: the bytes of its files by name, and the facts that its record holds."""

    number: int
    files: Mapping[str, bytes]
    facts: Mapping[str, Any]


def shard_name(number: int) -> str:
    """The name of a shard's directory."""
    return f"{number:06d}"


def shard_path(directory: Path, number: int) -> Path:
    """Where a shard is."""
    return directory / SHARDS / shard_name(number)


def write_shard(directory: Path, manifest: Mapping[str, Any], shard: ShardFiles) -> dict[str, Any]:
    """Write a shard aside, make sure it is on the disk, and rename it into place; its record is returned."""
    record = hashed({
        "format": FORMAT, "run": manifest["run"], "shard": shard.number, **shard.facts,
        "files": {name: facts_of(data) for name, data in sorted(shard.files.items())},
    })  # fmt: skip
    for name, data in shard.files.items():
        if len(data) > most_bytes(name, manifest, record):
            raise InputError(
                f"{name} of shard {shard.number} would have {len(data)} bytes, too many to be read again; begin the Run"
                " anew with a smaller shard_size (--shard-size)."
            )
    place = shard_path(directory, shard.number)
    aside = place.with_name(ASIDE + place.name)
    with writing(place):
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        try:
            for name, data in shard.files.items():
                _write(aside / name, data)
            _write(aside / RECORD, json_bytes(record))
            flush(aside)
            aside.rename(place)
        except OSError:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        flush(place.parent)
    return record


def writing(path: Path) -> AbstractContextManager[None]:
    """What the system refuses, said in words."""
    return saying(path, "All shards written before are whole; the same command goes on.")


def remove_unfinished(directory: Path) -> None:
    """Remove what a killed process was writing: files and shards under the names that we give them meanwhile."""
    for place, kind, pattern in (
        (directory, stat.S_ISREG, _ASIDE_FILE),
        (directory / SHARDS, stat.S_ISDIR, _ASIDE_SHARD),
    ):
        with writing(place):
            for entry in _entries(place):
                if pattern.fullmatch(entry.name) and kind(entry.stat(follow_symlinks=False).st_mode):
                    os.unlink(entry.path) if kind is stat.S_ISREG else shutil.rmtree(entry.path)


def is_unfinished(name: str) -> bool:
    """Whether a name in a Run directory, or among its shards, is one that we give to what is being written."""
    return bool(_ASIDE_FILE.fullmatch(name) or _ASIDE_SHARD.fullmatch(name))


_ASIDE_FILE = re.compile(re.escape(ASIDE) + "[0-9a-f]{16}")
_ASIDE_SHARD = re.compile(re.escape(ASIDE) + "[0-9]{6,}")


def listed_shards(directory: Path, manifest: Mapping[str, Any]) -> tuple[list[int], list[Path]]:
    """The numbers of the shards that are there, and what else is there that is none of them."""
    place = directory / SHARDS
    if not os.path.lexists(place):
        return [], []
    check_directory(place)
    numbers, unknown = [], []
    with saying_damage(place):
        for entry in _entries(place):
            number = int(entry.name) if re.fullmatch("[0-9]{6,18}", entry.name) else -1
            own = 0 <= number < manifest["shards"] and entry.name == shard_name(number)
            if own and entry.is_dir(follow_symlinks=False):
                numbers.append(number)
            elif not _ASIDE_SHARD.fullmatch(entry.name):
                unknown.append(place / entry.name)
    return sorted(numbers), sorted(unknown)


def known_shards(directory: Path, manifest: Mapping[str, Any]) -> list[int]:
    """The numbers of the shards that are there; anything else there is refused."""
    numbers, unknown = listed_shards(directory, manifest)
    for path in unknown:
        refuse_unknown(path, manifest)
    return numbers


def refuse_unknown(path: Path, manifest: Mapping[str, Any]) -> NoReturn:
    """Something is where only shards are."""
    raise DamagedShard(
        f"{printable(path)} is no shard of this Run, which has {manifest['shards']}. Move it elsewhere, or have it"
        " moved aside with --repair."
    )


def check_shard(
    directory: Path, manifest: Mapping[str, Any], number: int, sealed: Sequence[str] | None
) -> dict[str, Any]:
    """Compare every byte of a shard with its hash; its record is returned."""
    record = read_record(directory, manifest, number, sealed)
    for name in record["files"]:
        check_shard_file(directory, manifest, record, name)
    return record


def read_record(
    directory: Path, manifest: Mapping[str, Any], number: int, sealed: Sequence[str] | None
) -> dict[str, Any]:
    """The record of a shard, checked against itself, the Run, and the hashes of records that the Run ended with."""
    path = shard_path(directory, number)
    with _in_shard(path):
        check_directory(path)
        content, data = read_json(path / RECORD, _MOST_RECORD)
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise DamagedRun(f"{printable(path / RECORD)} is damaged, or no record of a shard ({FORMAT}).")
        record: dict[str, Any] = content
        with understanding(printable(path / RECORD)):
            check_hashed(path / RECORD, record, data)
            if (record["run"], record["shard"]) != (manifest["run"], number):
                raise DamagedRun(
                    f"{printable(path)} belongs to another Run or place (Run {str(record['run'])[:12]}…, shard"
                    f" {str(record['shard'])[:12]}; this is Run {manifest['run'][:12]}…)."
                )
            check_record(record, manifest, number)
        if sealed is not None and record["hash"] != sealed[number]:
            raise DamagedRun(f"{printable(path)} is not the shard that the Run ended with.")
    return record


def check_shard_file(directory: Path, manifest: Mapping[str, Any], record: Mapping[str, Any], name: str) -> None:
    """Compare one file of a shard with its hash, in the memory of a part of it."""
    path, expected = shard_path(directory, record["shard"]), record["files"][name]
    with _in_shard(path):
        # One byte more than is right is enough to see that it is not.
        if file_facts(path / name, expected["bytes"]) != expected:
            raise DamagedRun(_not_its_hash(path / name))


def read_shard_file(directory: Path, record: Mapping[str, Any], name: str) -> bytes:
    """The bytes of one file of a shard, checked."""
    path, expected = shard_path(directory, record["shard"]), record["files"][name]
    with _in_shard(path):
        data = read_bounded(path / name, expected["bytes"])
        if facts_of(data) != expected:
            raise DamagedRun(_not_its_hash(path / name))
        return data


def read_shard_table(directory: Path, manifest: Mapping[str, Any], record: Mapping[str, Any], name: str) -> pa.Table:
    """A table of a shard, checked: `texts`, or that of a method."""
    data = read_shard_file(directory, record, f"{name}.parquet")
    path = shard_path(directory, record["shard"])
    with _in_shard(path), understanding(printable(path / f"{name}.parquet")):
        table = read_table(data, table_rows(name, manifest, record))
        check_table(table, name, manifest, record)
        return with_blocks(table, name, manifest)


@contextmanager
def saying_damage(path: Path) -> Iterator[None]:
    """What the system refuses to show is damage."""
    try:
        yield
    except OSError as error:
        raise DamagedRun(f"{printable(path)} cannot be read: {error}.") from error


@contextmanager
def _in_shard(path: Path) -> Iterator[None]:
    """Damage found in a shard names it, and what can be done."""
    try:
        yield
    except DamagedShard:
        raise
    except DamagedRun as error:
        raise DamagedShard(
            f"shard {path.name}: {error} Remove {printable(path)} to have it computed again (or give --repair)."
        ) from error


def _not_its_hash(path: Path) -> str:
    return f"{printable(path)} is damaged: its bytes do not match the hash that was written with them."


def _entries(place: Path) -> list[os.DirEntry[str]]:
    with os.scandir(place) as entries:
        return list(entries)


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
