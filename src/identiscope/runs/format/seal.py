"""The seal of a Run, written last: the hash of every shard's record and of every file of the summary.

With the hashes inside the records and in the manifest, every byte of a complete Run has one.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from identiscope.careful_reading import (
    DamagedRun,
    check_hashed,
    facts_of,
    hashed,
    json_bytes,
    read_bounded,
    read_json,
    understanding,
)
from identiscope.files import printable
from identiscope.json_shapes import COUNT, HASH, TEXT, Each, check_shape
from identiscope.runs.format.shard_shape import STATISTICS, SUBSPACES, most_bytes

FORMAT = "identiscope-seal-1"
SEAL = "seal.json"
FACTS = "summary.json"
#: The files of the summary; the last only where sums of projectors were asked for.
SUMMARY = (STATISTICS, FACTS, SUBSPACES)
_SHAPE = {
    "format": TEXT, "run": HASH, "shards": [HASH], "files": Each({"bytes": COUNT, "sha256": HASH}), "hash": HASH,
}  # fmt: skip
_MOST_FACTS = 2**20


@dataclass(frozen=True)
class Seal:
    """What a Run ended with: the hash of each shard's record, in their order, and size and hash of each file."""

    shards: Sequence[str]
    files: Mapping[str, Mapping[str, Any]]


def seal_bytes(manifest: Mapping[str, Any], records: Sequence[Mapping[str, Any]], files: Mapping[str, bytes]) -> bytes:
    """The seal as written to disk."""
    body = {
        "format": FORMAT,
        "run": manifest["run"],
        "shards": [record["hash"] for record in records],
        "files": {name: facts_of(data) for name, data in files.items()},
    }
    return json_bytes(hashed(body))


def read_seal(directory: Path, manifest: Mapping[str, Any]) -> Seal | None:
    """The seal, checked; None where there is none."""
    path = directory / SEAL
    if not os.path.lexists(path):
        return None
    content, data = read_json(path, min(2**28, 2**16 + 100 * manifest["shards"]))
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise DamagedRun(f"{printable(path)} is damaged, or no seal of a Run ({FORMAT}).")
    with understanding(printable(path)):
        check_hashed(path, content, data)
        check_shape(content, _SHAPE)
        if content["run"] != manifest["run"]:
            raise DamagedRun(f"{printable(path)} is the seal of another Run.")
        names = set(content["files"])
        if len(content["shards"]) != manifest["shards"] or not {STATISTICS, FACTS} <= names <= set(SUMMARY):
            raise ValueError("its shards or files are not those of the Run")
    return Seal(content["shards"], content["files"])


def read_summary_file(directory: Path, manifest: Mapping[str, Any], seal: Seal | None, name: str) -> bytes:
    """The bytes of a file of the summary, compared with the seal; of an old Run, which has none, as they are."""
    path, most = directory / name, _MOST_FACTS if name == FACTS else most_bytes(name, manifest)
    if seal is None:
        return read_bounded(path, most)
    expected = seal.files[name]
    data = read_bounded(path, min(expected["bytes"], most))
    if facts_of(data) != expected:
        raise DamagedRun(f"{printable(path)} is damaged: its bytes do not match the hash that the Run ended with.")
    return data
