"""Whether a Run directory is as it was written: everything that is not, and what cannot be said."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from identiscope.careful_reading import DamagedRun, parse_json, understanding
from identiscope.errors import IdentiscopeError
from identiscope.files import printable
from identiscope.runs.format.legacy import UNDIGESTED, lacks_digests
from identiscope.runs.format.lock import NAME as LOCK
from identiscope.runs.format.manifest import NAME, read_manifest
from identiscope.runs.format.old_summary import check_old_summary
from identiscope.runs.format.seal import FACTS, SEAL, SUMMARY, Seal, read_seal, read_summary_file
from identiscope.runs.format.shard_shape import STATISTICS
from identiscope.runs.format.shards import (
    RECORD,
    SHARDS,
    check_shard_file,
    is_unfinished,
    known_shards,
    listed_shards,
    read_record,
    read_shard_table,
    saying_damage,
    shard_name,
    shard_path,
)
from identiscope.runs.format.summary import check_corpus, counts_of, read_facts
from identiscope.runs.format.text_hash import text_hash


@dataclass(frozen=True)
class Verification:
    """What verifying a Run came to: problems, all that is wrong, a line each; notes, what could not be checked and what
    lies there that is no part of it; shards, how many were read."""

    directory: Path
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    shards: int


def verify_run(directory: str | Path) -> Verification:
    """Compare every byte of a Run directory with its hash, and go on after what is wrong."""
    look = _Look(Path(directory))
    with look.noting():
        look.manifest = read_manifest(look.directory)
    if look.manifest is None:
        look.notes.append(f"nothing else was checked, since all is checked against {NAME}.")
    else:
        _look_at_all(look, look.manifest)
    return Verification(look.directory, tuple(look.problems), tuple(look.notes), len(look.records))


def is_complete(directory: Path, manifest: Mapping[str, Any]) -> bool:
    """Whether everything is there, and the summary and all records match their hashes; tables are not read."""
    try:
        sealed = not lacks_digests(manifest)
        seal = read_seal(directory, manifest) if sealed else None
        if (sealed and seal is None) or len(known_shards(directory, manifest)) != manifest["shards"]:
            return False
        for name in (STATISTICS, FACTS) if seal is None else seal.files:
            read_summary_file(directory, manifest, seal, name)
        for number in range(manifest["shards"]):
            record = read_record(directory, manifest, number, seal.shards if seal else None)
            path = shard_path(directory, number)
            for name, facts in record["files"].items():
                status = os.lstat(path / name)
                if status.st_size != facts["bytes"]:
                    return False
    except (IdentiscopeError, OSError):
        return False
    return True


class _Look:
    """A look at a Run directory, and what it has shown so far."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.manifest: dict[str, Any] | None = None
        self.problems: list[str] = []
        self.notes: list[str] = []
        self.records: dict[int, dict[str, Any]] = {}

    @contextmanager
    def noting(self) -> Iterator[None]:
        """A block whose damage is noted and not raised."""
        try:
            yield
        except DamagedRun as error:
            self.problems.append(str(error))


def _look_at_all(look: _Look, manifest: Mapping[str, Any]) -> None:
    seal: Seal | None = None
    with look.noting():
        seal = None if lacks_digests(manifest) else read_seal(look.directory, manifest)
    _look_at_shards(look, manifest, seal)
    whole = len(look.records) == manifest["shards"] and not look.problems
    if whole:
        with look.noting():
            check_corpus(look.directory, manifest, list(look.records.values()))
    _look_at_summary(look, manifest, seal)
    if lacks_digests(manifest):
        _look_at_old(look, manifest, whole)
    _look_around(look)


def _look_at_shards(look: _Look, manifest: Mapping[str, Any], seal: Seal | None) -> None:
    numbers: list[int] = []
    with look.noting():
        numbers, unknown = listed_shards(look.directory, manifest)
        look.problems += [f"{printable(path)} is no shard of this Run." for path in unknown]
    for number in numbers:
        with look.noting():
            record = read_record(look.directory, manifest, number, seal.shards if seal else None)
            look.records[number] = record
            for name in record["files"]:
                with look.noting():
                    check_shard_file(look.directory, manifest, record, name)
            for name in _others(shard_path(look.directory, number), {RECORD, *record["files"]}):
                look.problems.append(f"shard {shard_name(number)}: {printable(name)} is no file of this shard.")
    missing = manifest["shards"] - len(numbers)
    if missing:
        first = next((place for place, number in enumerate(numbers) if place != number), len(numbers))
        look.problems.append(
            f"{missing} of {manifest['shards']} shards are missing, the first {shard_name(first)}; the command that"
            " began the Run computes them."
        )


def _look_at_summary(look: _Look, manifest: Mapping[str, Any], seal: Seal | None) -> None:
    ended = FACTS if lacks_digests(manifest) else SEAL
    if not os.path.lexists(look.directory / ended):
        look.problems.append(
            f"{printable(look.directory / ended)} is missing: the Run is not complete; the command that began it"
            " goes on."
        )
        return
    if seal is None and not lacks_digests(manifest):
        return
    files = (FACTS,) if seal is None else seal.files
    contents: dict[str, bytes] = {}
    for name in SUMMARY:
        with look.noting():
            if name in files:
                contents[name] = read_summary_file(look.directory, manifest, seal, name)
            elif seal is not None and os.path.lexists(look.directory / name):
                raise DamagedRun(f"{printable(look.directory / name)} is no file of this Run.")
    if FACTS in contents:
        with look.noting(), understanding(printable(look.directory / FACTS)):
            facts, counts = read_facts(parse_json(contents[FACTS]), manifest), counts_of(list(look.records.values()))
            if len(look.records) == manifest["shards"] and counts != {name: facts[name] for name in counts}:
                raise ValueError("its counts are not those of the shards")


def _look_at_old(look: _Look, manifest: Mapping[str, Any], whole: bool) -> None:
    """An old Run has no hashes of its summary; but the summary follows from the shards, and the texts may be there."""
    look.notes.append(
        f"{NAME} is of the format {UNDIGESTED}, which has no digest of the names in it: they cannot be verified."
    )
    if whole:
        with look.noting():
            check_old_summary(look.directory, manifest, list(look.records.values()))
    else:
        look.notes.append(
            f"{', '.join(SUMMARY)} have no digest in {UNDIGESTED} and cannot be verified: not all shards are good."
        )
    if whole and manifest["options"]["keep_texts"]:
        with look.noting():
            if (
                text_hash(_kept_texts(look.directory, manifest, list(look.records.values()))).hexdigest()
                != (manifest["corpus"]["hash"])
            ):
                raise DamagedRun(f"the texts in {printable(look.directory)} are not those that the Run was begun with.")
    else:
        look.notes.append("that all shards were made of the Run's own texts cannot be verified.")


class _Kept(NamedTuple):
    parts: tuple[str, ...]
    label: str | None


def _kept_texts(directory: Path, manifest: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> Iterator[_Kept]:
    for record in records:
        table = read_shard_table(directory, manifest, record, "texts")
        columns = (table.column(name).to_pylist() for name in ("part_1", "part_2", "label"))
        for first, second, label in zip(*columns, strict=True):
            yield _Kept((first,) if second is None else (first, second), label)


def _look_around(look: _Look) -> None:
    known = {NAME, SEAL, SHARDS, *SUMMARY}
    for path in _others(look.directory, known):
        if path.name == LOCK or is_unfinished(path.name):
            look.notes.append(f"{printable(path)} is there while a Run is written, or was when one was killed.")
        else:
            look.notes.append(f"{printable(path)} is no part of the Run.")


def _others(place: Path, known: set[str]) -> list[Path]:
    with saying_damage(place):
        return sorted(place / name for name in os.listdir(place) if name not in known)
