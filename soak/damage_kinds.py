"""Kinds of damage to a finished Run: is each seen by `verify`, and mended by --repair or refused?"""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from identiscope.careful_reading import facts_of, hashed, json_bytes
from identiscope.errors import IdentiscopeError
from identiscope.runs.compute.run import run_corpus
from identiscope.runs.format.manifest import NAME
from identiscope.runs.format.opened_run import open_run
from identiscope.runs.format.seal import FACTS, SEAL
from identiscope.runs.format.shard_shape import HIDDEN_STATES, STATISTICS, SUBSPACES, TEXTS
from identiscope.runs.format.shards import RECORD, shard_path
from identiscope.runs.format.verification import verify_run
from soak.prepared import EVERYTHING, prepare
from tiny_text_model import contents

Harm = Callable[[Path, Path], None]
_SHARD = "shards/000001"
_ATTENTION, _TOKENS = "attention_identifiability.parquet", "token_identifiability.parquet"
FILES = (
    NAME, SEAL, FACTS, STATISTICS, SUBSPACES,
    *(f"{_SHARD}/{name}" for name in (RECORD, TEXTS, _ATTENTION, _TOKENS, STATISTICS, HIDDEN_STATES)),
)  # fmt: skip


@dataclass(frozen=True)
class Damage:
    """One kind: its name, and what it does to the Run in a directory, given another Run of other texts."""

    name: str
    harm: Harm


def edited(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a JSON file, and give it the hash of its new content."""
    value = json.loads(path.read_bytes())
    change(value)
    value.pop("hash", None)
    path.write_bytes(json_bytes(hashed(value)))


def resealed(run: Path) -> None:
    """Make the seal again, of whatever is there now, as somebody who knows the format could."""

    def change(seal: dict[str, Any]) -> None:
        seal["files"] = {name: facts_of((run / name).read_bytes()) for name in seal["files"]}
        seal["shards"] = [
            json.loads((shard_path(run, number) / RECORD).read_bytes())["hash"] for number in range(len(seal["shards"]))
        ]

    edited(run / SEAL, change)


def _bytes(change: Callable[[bytes], bytes], name: str, run: Path, other: Path) -> None:
    (run / name).write_bytes(change((run / name).read_bytes()))


def _flip(data: bytes) -> bytes:
    return data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 4]) + data[len(data) // 2 + 1 :]


def _in_record(change: Callable[[dict[str, Any]], object], run: Path, other: Path) -> None:
    edited(run / _SHARD / RECORD, change)


def _replaced(place: str, make: Callable[[Path], object], run: Path, other: Path) -> None:
    path = run / place
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    make(path)


def _linked(place: str, run: Path, other: Path) -> None:
    """A link to what was there, with every byte as it was."""
    path, moved = run / place, run.parent / "moved"
    shutil.rmtree(moved) if moved.is_dir() else moved.unlink(missing_ok=True)
    path.rename(moved)
    path.symlink_to(moved)


def _swapped(one: str, two: str, run: Path, other: Path) -> None:
    first, second, between = run / one, run / two, run.parent / "between"
    first.rename(between)
    second.rename(first)
    between.rename(second)


def _foreign(place: str, run: Path, other: Path) -> None:
    path = run / place
    if path.is_dir():
        shutil.rmtree(path)
        shutil.copytree(other / place, path)
    else:
        shutil.copyfile(other / place, path)


def _copied(source: str, target: str, run: Path, other: Path) -> None:
    shutil.copytree(run / source, run / target)


def _renamed_file(record: dict[str, Any], name: str) -> None:
    record["files"][name] = record["files"].pop(TEXTS)


def _huge(record: dict[str, Any]) -> None:
    record["files"][TEXTS]["bytes"] = 2**50


def _text_edited(run: Path, other: Path) -> None:
    """Another text in a table, and its record in step; the seal as it was."""
    _table_of_other_texts(run, other)


def _table_of_other_texts(run: Path, other: Path) -> None:
    data = (other / _SHARD / TEXTS).read_bytes()
    (run / _SHARD / TEXTS).write_bytes(data)
    edited(run / _SHARD / RECORD, lambda record: record["files"].update({TEXTS: facts_of(data)}))


def _other_texts_and_seal(run: Path, other: Path) -> None:
    edited(run / _SHARD / RECORD, lambda record: record.update(corpus="0" * 64))
    resealed(run)


def _counts_and_seal(run: Path, other: Path) -> None:
    facts = json.loads((run / FACTS).read_bytes())
    (run / FACTS).write_bytes(json_bytes(facts | {"tokens": facts["tokens"] + 1}))
    resealed(run)


def _sparse(run: Path, other: Path) -> None:
    os.truncate(run / _SHARD / TEXTS, 2**42)


def _nested(data: bytes) -> bytes:
    return b"[" * 200_000


def _spaced(data: bytes) -> bytes:
    return json.dumps(json.loads(data)).encode()


def _twice(data: bytes) -> bytes:
    return data.replace(b'"run":', b'"run": "", "run":', 1)


def _downgraded(run: Path, other: Path) -> None:
    """As if it were a Run of the old format, whose summary has no digest."""
    manifest = json.loads((run / NAME).read_bytes())
    manifest["format"] = "identiscope-run-1"
    manifest.pop("hash")
    (run / NAME).write_bytes(json_bytes(manifest))
    (run / SEAL).unlink()


def _shards_short(seal: dict[str, Any]) -> None:
    seal["shards"].pop()


def _number(name: str, data: bytes) -> bytes:
    value = json.loads(data)
    value[name] += 1
    return json_bytes(value)


def _mean(data: bytes) -> bytes:
    value = json.loads(data)
    value["means"]["attention_identifiability"]["correlation"] = 0.5
    return json_bytes(value)


def _damages() -> list[Damage]:
    kinds: list[tuple[str, Harm]] = []
    for name in FILES:
        kinds += [
            (f"a bit of {name} is flipped", partial(_bytes, _flip, name)),
            (f"{name} is a byte short", partial(_bytes, lambda data: data[:-1], name)),
            (f"{name} is empty", partial(_bytes, lambda data: b"", name)),
            (f"{name} has a byte more", partial(_bytes, lambda data: data + b"\n", name)),
            (f"{name} is zeros of its length", partial(_bytes, lambda data: bytes(len(data)), name)),
            (f"{name} is gone", partial(_replaced, name, lambda path: None)),
            (f"{name} is a link", partial(_linked, name)),
            (f"{name} is a pipe", partial(_replaced, name, os.mkfifo)),
            (f"{name} is a directory", partial(_replaced, name, Path.mkdir)),
            (f"{name} is another Run's", partial(_foreign, name)),
        ]
    for name in (NAME, SEAL, FACTS, f"{_SHARD}/{RECORD}"):
        kinds += [
            (f"{name} is nested without end", partial(_bytes, _nested, name)),
            (f"{name} holds a number that is none", partial(_bytes, lambda data: b'{"format": NaN}', name)),
            (f"{name} holds a list", partial(_bytes, lambda data: b"[]\n", name)),
            (f"{name} is written otherwise", partial(_bytes, _spaced, name)),
            (f"{name} says something twice", partial(_bytes, _twice, name)),
        ]
    edits: dict[str, Callable[[dict[str, Any]], object]] = {
        "counts other tokens": lambda record: record.update(tokens=record["tokens"] + 1),
        "counts negative tokens": lambda record: record.update(tokens=-1),
        "is of another place": lambda record: record.update(shard=2),
        "has another first text": lambda record: record.update(first=0),
        "is of other texts": lambda record: record.update(corpus="0" * 64),
        "names a device": partial(_renamed_file, name="/dev/zero"),
        "names a file outside": partial(_renamed_file, name="../000000/texts.parquet"),
        "names no file": lambda record: record.update(files={}),
        "names a file too many": lambda record: record["files"].update({"thesis.tex": record["files"][TEXTS]}),
        "names a huge file": _huge,
        "lacks a name": lambda record: record.pop("statuses"),
        "has a text for a number": lambda record: record.update(texts="2"),
        "has other statuses": lambda record: record.update(statuses={"fine": 2}),
        "is of another format": lambda record: record.update(format="identiscope-shard-9"),
    }
    kinds += [(f"a record with the right hash {name}", partial(_in_record, change)) for name, change in edits.items()]
    kinds += [
        ("a shard is gone", partial(_replaced, _SHARD, lambda path: None)),
        ("the last shard is gone", partial(_replaced, "shards/000003", lambda path: None)),
        ("all shards are gone", partial(_replaced, "shards", Path.mkdir)),
        ("the directory of shards is gone", partial(_replaced, "shards", lambda path: None)),
        ("the directory of shards is a link", partial(_linked, "shards")),
        ("the directory of shards is a file", partial(_replaced, "shards", Path.touch)),
        ("a shard is a link", partial(_linked, _SHARD)),
        ("a shard is a file", partial(_replaced, _SHARD, Path.touch)),
        ("a shard is an empty directory", partial(_replaced, _SHARD, Path.mkdir)),
        ("a shard is another Run's", partial(_foreign, _SHARD)),
        ("two shards are swapped", partial(_swapped, _SHARD, "shards/000002")),
        ("tables of two shards are swapped", partial(_swapped, f"{_SHARD}/{TEXTS}", f"shards/000002/{TEXTS}")),
        ("two tables of a shard are swapped", partial(_swapped, f"{_SHARD}/{TEXTS}", f"{_SHARD}/{_TOKENS}")),
        ("two files of the summary are swapped", partial(_swapped, STATISTICS, FACTS)),
        ("there is a shard too many", partial(_copied, _SHARD, "shards/000009")),
        ("there is a shard under another name", partial(_copied, _SHARD, "shards/1")),
        ("there is somebody's directory among the shards", lambda run, _: (run / "shards/2024-notes").mkdir()),
        ("there is somebody's file among the shards", lambda run, _: (run / "shards/notes.txt").touch()),
        ("there is somebody's file in a shard", lambda run, _: (run / _SHARD / "notes.txt").touch()),
        ("a table is far too large", _sparse),
        ("a table of other texts, with its record in step", _text_edited),
        ("a shard of other texts, with record and seal in step", _other_texts_and_seal),
        ("a summary of other counts, with the seal in step", _counts_and_seal),
        ("the summary counts other tokens", partial(_bytes, partial(_number, "tokens"), FACTS)),
        ("the summary has another mean", partial(_bytes, _mean, FACTS)),
        ("a seal with the right hash has a shard less", lambda run, _: edited(run / SEAL, _shards_short)),
        ("a seal with the right hash has no files", lambda run, _: edited(run / SEAL, lambda s: s.update(files={}))),
        ("a seal with the right hash is another Run's",
         lambda run, _: edited(run / SEAL, lambda seal: seal.update(run="0" * 64))),
        ("the manifest names another model", partial(_bytes, lambda data: data.replace(b"model", b"modem"), NAME)),
        ("a manifest with the right hash has other options",
         lambda run, _: edited(run / NAME, lambda manifest: manifest["options"].update(seed=5))),
        ("a manifest with the right hash has a column less",
         lambda run, _: edited(
             run / NAME, lambda manifest: manifest["tables"]["token_identifiability"]["columns"].pop())),
        ("a manifest with the right hash has a shard less",
         lambda run, _: edited(run / NAME, lambda manifest: manifest.update(shards=3))),
        ("a manifest with the right hash has no names",
         lambda run, _: edited(run / NAME, lambda manifest: manifest.pop("names"))),
        ("the manifest is said to be of the old format", _downgraded),
    ]  # fmt: skip
    return [Damage(name, harm) for name, harm in kinds]


DAMAGES = _damages()


@dataclass(frozen=True)
class Tried:
    """What went wrong, a line each; and whether --repair mended it, or refused to (None: it was not asked)."""

    failures: list[str]
    mended: bool | None = None


def trial(damage: Damage, whole: Path, other: Path, base: Path, *, repair: bool) -> Tried:
    """Do it to a copy."""
    run = base / "damaged"
    for left in (run, base / "damaged.aside"):
        shutil.rmtree(left, ignore_errors=True)
    shutil.copytree(whole, run)
    damage.harm(run, other)
    failures = []
    if not verify_run(run).problems:
        failures.append(f"{damage.name}: not seen by verify")
    try:
        if open_run(run).complete and damage.name not in _INSIDE:
            failures.append(f"{damage.name}: still complete")
    except IdentiscopeError:
        pass
    if not repair:
        return Tried(failures)
    after = _repaired(damage, run, whole, base)
    return Tried(failures + after.failures, after.mended)


#: `complete` does not read what is inside the tables of shards, nor compares counts, nor looks for what is too many.
_INSIDE = {
    *(f"a bit of {name} is flipped" for name in FILES if name.endswith((".parquet", "hidden_states.safetensors"))),
    *(f"{name} is zeros of its length" for name in FILES if name.endswith((".parquet", "hidden_states.safetensors"))),
    f"a bit of {_SHARD}/{STATISTICS} is flipped", f"{_SHARD}/{STATISTICS} is zeros of its length",
    f"{_SHARD}/{STATISTICS} is another Run's", f"{_SHARD}/attention_identifiability.parquet is another Run's",
    f"{_SHARD}/token_identifiability.parquet is another Run's", f"{_SHARD}/{TEXTS} is another Run's",
    f"{_SHARD}/{HIDDEN_STATES} is another Run's", "there is somebody's file in a shard",
    "a shard of other texts, with record and seal in step", "a summary of other counts, with the seal in step",
}  # fmt: skip


def _repaired(damage: Damage, run: Path, whole: Path, base: Path) -> Tried:
    """After --repair the bytes are those of before; where it is refused, nothing was changed or lost."""
    model, corpus = prepare(base)
    before = _everything(run, base)
    try:
        run_corpus(str(model), corpus, run, options=EVERYTHING, label_column="label", repair=True)
    except IdentiscopeError:
        kept = _everything(run, base) >= before
        return Tried([] if kept else [f"{damage.name}: refused, and something is gone"], False)
    if contents(run) != contents(whole) or verify_run(run).problems:
        return Tried([f"{damage.name}: not the same after --repair"], False)
    lost = {(name, data) for name, data in before if "notes" in name and (name, data) not in _everything(run, base)}
    return Tried([f"{damage.name}: --repair deleted {sorted(lost)}"] if lost else [], not lost)


def _everything(run: Path, base: Path) -> set[tuple[str, bytes]]:
    """Name and content of every regular file of the Run, wherever beside it it is now."""
    return {
        (path.name, path.read_bytes() if path.stat().st_size < 2**30 else b"huge")
        for place in (run, base / "damaged.aside", base / "moved")
        for path in [place, *place.rglob("*")]
        if path.is_file()
    }
