"""The manifest of a Run: of which model, tokenizer, corpus, options and versions its numbers are."""

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from identiscope.careful_reading import (
    DamagedRun,
    canonical,
    check_hashed,
    hashed,
    read_json,
    understanding,
)
from identiscope.errors import InputError
from identiscope.files import printable
from identiscope.json_shapes import ANYTHING, COUNT, HASH, TEXT, Each, check_shape
from identiscope.runs.format.legacy import FORMATS as OLD_FORMATS
from identiscope.runs.format.legacy import TABLES as OLD_TABLES
from identiscope.runs.format.legacy import lacks_digests
from identiscope.runs.format.old_columns import described_columns
from identiscope.runs.format.options import MOST_LAYERS, checked_options, described_options
from identiscope.runs.format.tables import tables_from

FORMAT = "identiscope-run-3"
NAME = "manifest.json"
#: What decides the numbers of a Run; the tables only since it describes them.
DECIDES = ("model", "tokenizer", "corpus", "options", "tables", "environment")


def make_manifest(decides: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest of all that decides the numbers (`DECIDES`), and the names it was given by.

    `run` is the hash of what decides, which the shards repeat.
    """
    return hashed({
        "format": FORMAT,
        **decides,
        "shards": -(-decides["corpus"]["texts"] // decides["options"]["shard_size"]),
        # What is no JSON, such as a type of torch, is there in words.
        "names": json.loads(json.dumps(dict(names), default=str)),
        "run": identity(decides),
    })  # fmt: skip


def identity(manifest: Mapping[str, Any]) -> str:
    """The Run's identity: the hash of what decides its numbers."""
    decides = {name: manifest[name] for name in DECIDES if name in manifest}
    return hashlib.sha256(canonical(decides)).hexdigest()


def shards_hash(shards: "tuple[str, ...] | list[str]") -> str:
    """The hash of the hashes of the texts of all shards, in their order."""
    return hashlib.sha256("\n".join(shards).encode()).hexdigest()


def has_manifest(directory: Path) -> bool:
    """Whether something is where the manifest of a Run would be."""
    return os.path.lexists(directory / NAME)


def read_manifest(directory: Path) -> dict[str, Any]:
    """The manifest of a Run directory, checked; one that does not describe its tables is given what its shards show."""
    path = directory / NAME
    if not _is_directory(directory):
        raise InputError(f"there is no directory {printable(directory)}.")
    if not has_manifest(directory):
        raise DamagedRun(f"{printable(directory)} has no {NAME}: it is no Run directory.")
    try:
        manifest = _checked_manifest(path)
    except DamagedRun as error:
        raise DamagedRun(f"{error} Put back a copy of it, or begin the Run anew in another directory.") from error
    described = "tables" in manifest
    return manifest if described else manifest | {"tables": described_columns(directory, manifest)}


def _checked_manifest(path: Path) -> dict[str, Any]:
    content, data = read_json(path, _MOST_BYTES)
    if not isinstance(content, dict) or content.get("format") not in (FORMAT, *OLD_FORMATS):
        known = f"{FORMAT}, {' or '.join(OLD_FORMATS)}"
        raise DamagedRun(f"{printable(path)} is damaged, or not the manifest of a Run ({known}).")
    manifest: dict[str, Any] = content
    with understanding(printable(path)):
        check_shape(manifest, _shape(manifest))
        if manifest["run"] != identity(manifest):
            raise DamagedRun(f"{printable(path)} was changed: it does not match the Run's identity in it.")
        if not lacks_digests(manifest):
            check_hashed(path, manifest, data)
        _check_sense(manifest)
    return manifest


#: Far more than the names, layers, heads and columns of any Run take.
_MOST_BYTES = 2**22
_SHAPE: dict[str, Any] = {
    "format": TEXT,
    "model": {"weights": HASH, "class": TEXT, "dtype": TEXT, "layers": [COUNT], "heads": [COUNT]},
    "tokenizer": TEXT,
    "corpus": {"texts": COUNT, "hash": HASH, "shards": HASH},
    "options": Each(ANYTHING),
    "tables": Each(ANYTHING),
    "environment": Each(TEXT),
    "shards": COUNT,
    "names": {"model": TEXT, "corpus": TEXT, "loading": Each(ANYTHING)},
    "run": HASH,
    "hash": HASH,
}


def _shape(manifest: dict[str, Any]) -> dict[str, Any]:
    """What a manifest of its format holds; that of a model that was not on the CPU says where it was."""
    shape, model = dict(_SHAPE), manifest.get("model")
    if manifest["format"] in OLD_FORMATS:
        del shape["tables"]
    if lacks_digests(manifest):
        del shape["hash"]
        return shape | {"corpus": {"texts": COUNT, "hash": HASH}}
    elsewhere = {"device": TEXT, "analysis_device": TEXT} if isinstance(model, dict) and "device" in model else {}
    return shape | {"model": shape["model"] | elsewhere}


def _check_sense(manifest: Mapping[str, Any]) -> None:
    """What a manifest says of itself, against itself."""
    given = manifest["options"]
    tables = OLD_TABLES if manifest["format"] in OLD_FORMATS else tables_from(manifest["tables"])
    options = described_options(checked_options(given, tables))
    # Layers and heads may be in any order, as they were once.
    if options | {name: given[name] for name in ("layers", "heads")} != given:
        raise ValueError("its options are not in the form that a Run has")
    if tables is not OLD_TABLES and tables.keys() != set(given["methods"]):
        raise ValueError("its tables are not those of its methods")
    if manifest["shards"] != -(-manifest["corpus"]["texts"] // given["shard_size"]):
        raise ValueError(f"{manifest['shards']} shards are not those of its texts")
    for name in ("layers", "heads"):
        numbers = manifest["model"][name]
        if not numbers or len(set(numbers)) != len(numbers) or max(numbers) > MOST_LAYERS:
            raise ValueError(f"its {name} are none, or not those of a model")


def _is_directory(directory: Path) -> bool:
    try:
        return stat.S_ISDIR(os.stat(directory).st_mode)
    except (OSError, ValueError):
        return False


def check_same(directory: Path, recorded: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse to continue a Run with anything else than it was begun with, and say what differs."""
    differing = [
        f"{name} (there: {there}, now: {here})"
        for name, there, here in _differences(recorded, wanted)
        if not name.startswith(("names", "run", "shards", "hash"))
    ]
    if differing:
        raise InputError(
            f"{printable(directory)} holds a Run that was begun otherwise: {'; '.join(differing)}. Continue it as it"
            " was begun, or name another directory."
        )


def _differences(one: Any, other: Any, name: str = "") -> list[tuple[str, str, str]]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        keys = sorted({*one, *other})
        return [
            difference
            for key in keys
            for difference in _differences(one.get(key), other.get(key), f"{name} {key}".strip())
        ]
    return [] if one == other else [(name, _short(one), _short(other))]


def _short(value: Any) -> str:
    shown = "all" if value is None else str(value)
    return shown if len(shown) <= 40 else f"{shown[:12]}…"
