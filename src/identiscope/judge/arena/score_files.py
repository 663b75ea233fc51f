"""Scores of other tools in a file: our own JSON lines, Captum's attributions written so, and what inseq saves.

A line of ours is `{"method": NAME, "ids": [...], "scores": [...]}`: the token ids as the model was given them, special
tokens included, and one number for each. Texts are found by their ids, so that a file that does not fit says so.
"""

import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from identiscope.careful_reading import read_bounded
from identiscope.errors import InputError
from identiscope.files import printable
from identiscope.judge.arena.asking import Scorer, plain_numbers
from identiscope.judge.arena.inseq_files import inseq_lines, inseq_output
from identiscope.methods.outcome_runs import OutcomeRuns

_MOST_BYTES = 2**30
_LARGEST = float(np.finfo(np.float64).max)
_GZIP = b"\x1f\x8b"
Known = dict[tuple[int, ...], list[float]]


def read_scores(path: str | Path, digest: str | None = None) -> dict[str, Scorer]:
    """The scores of a file as methods, by their names. digest: what the file's bytes must have, if it is known."""
    place = Path(path)
    data = read_bounded(place, _MOST_BYTES)
    if digest is not None and file_digest(place) != digest:
        raise InputError(f"{printable(place)} is not the file of scores that was judged before; judge it anew.")
    methods: dict[str, Known] = {}
    for number, line in _lines(data, place):
        name, ids, scores = _entry(line, number, place)
        if tuple(ids) in methods.setdefault(name, {}):
            raise InputError(f"{printable(place)}, line {number}: {name} has scores of this text already.")
        methods[name][tuple(ids)] = scores
    if not methods:
        raise InputError(f"{printable(place)} holds no scores.")
    return {name: _scorer(name, known, place) for name, known in methods.items()}


def file_digest(path: str | Path) -> str:
    """SHA-256 of a file of scores."""
    return hashlib.sha256(read_bounded(Path(path), _MOST_BYTES)).hexdigest()


def score_line(method: str, ids: Sequence[int], scores: Any) -> str:
    """A line of a file of scores, of what another tool gave: Captum's attributions [token] or [token, model] summed.

    >>> score_line("mine", [101, 7, 102], [0.0, 1.5, 0.0])
    '{"method": "mine", "ids": [101, 7, 102], "scores": [0.0, 1.5, 0.0]}'
    """
    numbers = plain_numbers(scores)
    if numbers.ndim and numbers.shape[0] == 1 and len(ids) != 1:
        numbers = numbers[0]
    if numbers.ndim == 2:
        numbers = numbers.sum(1)  # by token, as the outcome's change adds up
    if numbers.shape != (len(ids),):
        raise InputError(f"scores of shape {list(numbers.shape)} were given for {len(ids)} tokens.")
    if not np.isfinite(numbers).all():
        raise InputError(f"{int((~np.isfinite(numbers)).sum())} scores of {method} are no finite numbers.")
    return json.dumps({"method": method, "ids": [int(token) for token in ids], "scores": numbers.tolist()})


def _lines(data: bytes, path: Path) -> Iterator[tuple[int, Any]]:
    if data[:2] == _GZIP:
        data = _unpacked(data, path)
    try:
        text = data.decode("utf-8-sig")  # with the mark that Windows puts first, or without
    except UnicodeDecodeError as error:
        raise InputError(f"{printable(path)} is no text: {error.reason}.") from error
    try:
        whole = json.loads(text) if text.lstrip()[:1] in ("[", "{") else None
    except (ValueError, RecursionError):
        whole = None
    if (saved := inseq_output(whole)) is not None:
        yield from enumerate(inseq_lines(saved, printable(path)), 1)
        return
    # Not by every end of a line there is: some may stand in a string, such as a text beside its scores.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InputError(f"{printable(path)}, line {number} is no JSON: {error}.") from error


def _unpacked(data: bytes, path: Path) -> bytes:
    """What a compressed file holds, and no more of it than a plain one may."""
    try:
        with gzip.open(io.BytesIO(data)) as file:
            text = file.read(_MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{printable(path)} is no whole gzip file: {error}.") from error
    if len(text) > _MOST_BYTES:
        raise InputError(f"{printable(path)} holds more than {_MOST_BYTES:,} bytes.")
    return text


def _entry(line: Any, number: int, path: Path) -> tuple[str, list[int], list[float]]:
    where = f"{printable(path)}, line {number}"
    if not isinstance(line, dict) or not {"method", "ids", "scores"} <= line.keys():
        raise InputError(f'{where}: expected {{"method": NAME, "ids": [...], "scores": [...]}}.')
    name, ids, scores = line["method"], line["ids"], line["scores"]
    lists = isinstance(name, str) and isinstance(ids, list) and isinstance(scores, list)
    if not lists or not ids or len(ids) != len(scores):
        raise InputError(f"{where}: expected a name, and as many scores as ids; {name!r:.40} has other.")
    if not all(type(token) is int for token in ids):
        raise InputError(f"{where}: ids are whole numbers.")
    # No Python number is compared with a float by rounding it: what is larger than any float is so.
    if not all(type(score) in (int, float) and abs(score) <= _LARGEST for score in scores):
        raise InputError(f"{where}: a score of {name} is no finite number.")
    return name, ids, [float(score) for score in scores]


def _scorer(name: str, known: Known, path: Path) -> Scorer:
    def scores(model: Any, ids: Sequence[int], runs: OutcomeRuns) -> list[float]:
        if tuple(ids) not in known:
            raise InputError(
                f"{printable(path)} has no scores of {name} for this text of {len(ids)} tokens; ids are those that the"
                " model is given, special tokens included."
            )
        return known[tuple(ids)]

    return scores
