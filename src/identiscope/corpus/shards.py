"""Shards on disk: written aside and renamed, so that a shard is there as a whole or not at all; hashed, so that one
that is damaged or of another Run is noticed."""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from identiscope.corpus.manifest import canonical
from identiscope.corpus.run_shard import ShardFiles
from identiscope.errors import InputError
from identiscope.files import ASIDE, flush, saying

FORMAT = "identiscope-shard-1"
RECORD = "shard.json"


class DamagedShard(InputError):
    """A shard that is damaged, incomplete, or of another Run."""


def shard_path(directory: Path, number: int) -> Path:
    """Where a shard is."""
    return directory / "shards" / f"{number:06d}"


def write_shard(directory: Path, run: str, shard: ShardFiles) -> dict[str, Any]:
    """Write a shard aside, make sure it is on the disk, and rename it into place; its record is returned."""
    record: dict[str, Any] = {
        "format": FORMAT,
        "run": run,
        "shard": shard.number,
        **shard.facts,
        "files": {
            name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in sorted(shard.files.items())
        },
    }
    record["hash"] = hashlib.sha256(canonical(record)).hexdigest()
    place = shard_path(directory, shard.number)
    aside = place.with_name(ASIDE + place.name)
    with writing(place):
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        try:
            for name, data in shard.files.items():
                _write(aside / name, data)
            _write(aside / RECORD, (json.dumps(record, indent=1, sort_keys=True) + "\n").encode())
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
    """Remove what a killed process was writing."""
    for place in (directory, directory / "shards"):
        for path in place.glob(f"{ASIDE}*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def finished_shards(directory: Path, manifest: Mapping[str, Any], *, verify: bool = True) -> dict[int, dict[str, Any]]:
    """The records of the shards that are there; one that is damaged or foreign is named in a `DamagedShard`."""
    records: dict[int, dict[str, Any]] = {}
    for path in sorted((directory / "shards").glob("*")):
        if path.name.startswith(ASIDE):
            continue
        if not path.name.isdigit() or int(path.name) >= manifest["shards"]:
            raise DamagedShard(f"{path} is no shard of this Run, which has {manifest['shards']}. Remove it.")
        record = read_record(path, manifest["run"])
        if verify:
            for name in record["files"]:
                read_shard_file(path, record, name)
        records[int(path.name)] = record
    return records


def read_record(path: Path, run: str) -> dict[str, Any]:
    """The record of a shard, checked against itself and the Run."""
    again = f"Remove {path} to have it computed again (or give --repair)."
    try:
        record = json.loads((path / RECORD).read_bytes())
        body = {name: value for name, value in record.items() if name != "hash"}
        whole = record["hash"] == hashlib.sha256(canonical(body)).hexdigest() and record["format"] == FORMAT
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedShard(f"shard {path.name}: {path / RECORD} is missing or damaged: {error}. {again}") from error
    if not whole:
        raise DamagedShard(f"shard {path.name}: {path / RECORD} is damaged: it does not match its own hash. {again}")
    if record["run"] != run or record["shard"] != int(path.name):
        raise DamagedShard(
            f"shard {path.name}: {path} belongs to another Run or place (Run {record['run'][:12]}…, shard"
            f" {record['shard']}; this is Run {run[:12]}…). {again}"
        )
    assert isinstance(record, dict)
    return record


def read_shard_file(path: Path, record: Mapping[str, Any], name: str) -> bytes:
    """The bytes of one file of a shard, checked."""
    expected = record["files"][name]
    try:
        data = (path / name).read_bytes()
    except OSError as error:
        raise DamagedShard(f"shard {path.name}: {path / name} cannot be read: {error}.") from error
    if len(data) != expected["bytes"] or hashlib.sha256(data).hexdigest() != expected["sha256"]:
        raise DamagedShard(
            f"shard {path.name}: {path / name} is damaged: its {len(data)} bytes do not match the hash that was written"
            f" with it. Remove {path} to have it computed again (or give --repair)."
        )
    return data


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
