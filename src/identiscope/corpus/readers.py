"""Texts from files: lines, tables, JSON lines and CoNLL-U, one record at a time."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from identiscope.errors import InputError

#: Columns that hold the text where the user names none, the first that are all there.
USUAL_COLUMNS = (
    ("sentence1", "sentence2"), ("text1", "text2"), ("premise", "hypothesis"), ("sentence",), ("text",), ("question",),
)  # fmt: skip


@dataclass(frozen=True)
class Word:
    """A word with its tag: characters start to end (not included) of one of the text's parts."""

    part: int
    start: int
    end: int
    tag: str


@dataclass(frozen=True)
class Text:
    """One text of a corpus: a sentence or a pair of them, with its label and tagged words if it has any."""

    parts: tuple[str, ...]
    label: str | None = None
    words: tuple[Word, ...] = ()

    @property
    def given(self) -> str | tuple[str, str]:
        """As `identiscope.trace` takes it."""
        return self.parts[0] if len(self.parts) == 1 else (self.parts[0], self.parts[1])


def read_corpus(
    path: str | Path,
    *,
    text_columns: Sequence[str] | None = None,
    label_column: str | None = None,
    tags: str = "xpos",
    limit: int | None = None,
) -> Iterator[Text]:
    """The texts of a file, by its suffix: .txt (a text a line), .tsv, .csv, .jsonl, .conllu.

    >>> texts = read_corpus("mrpc/dev.tsv", text_columns=["sentence1", "sentence2"])

    text_columns: one column, or two for pairs; by default the usual names are tried. label_column: of a table or
    JSON lines. A .tsv has no quoting; a .csv has. A JSON line may have "words": [start, end, tag] or [part, start,
    end, tag] of its tagged words. tags: "xpos" or "upos", for CoNLL-U. limit: at most so many texts.
    """
    path = Path(path)
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path} ends in {path.suffix!r}; expected one of {', '.join(READERS)}.")
    if not path.is_file():
        raise InputError(f"there is no file {path}.")
    if text_columns is not None and not 1 <= len(text_columns) <= 2:
        raise InputError(f"text columns {list(text_columns)} were given; expected one, or two for pairs.")
    return _checked(path, reader(path, _Columns(text_columns, label_column, tags)), limit)


@dataclass(frozen=True)
class _Columns:
    text: Sequence[str] | None
    label: str | None
    tags: str


def _checked(path: Path, texts: Iterable[Text], limit: int | None) -> Iterator[Text]:
    number = 0
    try:
        for number, text in enumerate(islice(texts, limit), 1):
            if any(not part.strip() for part in text.parts):
                raise InputError(f"text {number} of {path} is empty; remove it or fill it in.")
            yield text
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: {error}.") from error
    if number == 0 and limit != 0:
        raise InputError(f"{path} has no texts.")


def _lines(path: Path, columns: _Columns) -> Iterator[Text]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.strip():
                yield Text((line.strip(),))


def _tsv(path: Path, columns: _Columns) -> Iterator[Text]:
    with path.open(encoding="utf-8", newline="") as file:
        header = next(file, "").rstrip("\r\n").split("\t")
        for number, line in enumerate(file, 2):
            cells = line.rstrip("\r\n").split("\t")
            if cells == [""]:
                continue
            if len(cells) != len(header):
                raise InputError(
                    f"line {number} of {path} has {len(cells)} cells, and the header {len(header)}. Cells of a .tsv are"
                    " not quoted and hold no tabs; for quoted cells use .csv."
                )
            yield _record(path, dict(zip(header, cells, strict=True)), columns)


def _csv(path: Path, columns: _Columns) -> Iterator[Text]:
    with path.open(encoding="utf-8", newline="") as file:
        try:
            for number, row in enumerate(csv.DictReader(file, strict=True), 2):
                if None in row or None in row.values():
                    raise InputError(f"row {number} of {path} has not as many cells as the header.")
                yield _record(path, row, columns)
        except csv.Error as error:
            raise InputError(f"{path} is not well-formed CSV: {error}.") from error


def _json_lines(path: Path, columns: _Columns) -> Iterator[Text]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise InputError(f"line {number} of {path} is not JSON: {error}.") from error
            if not isinstance(row, dict):
                raise InputError(f"line {number} of {path} is not a JSON object.")
            yield _record(path, row, columns)


def _record(path: Path, row: Mapping[str, Any], columns: _Columns) -> Text:
    names = columns.text or next((usual for usual in USUAL_COLUMNS if all(name in row for name in usual)), ())
    missing = [name for name in (*names, *([columns.label] if columns.label else ())) if name not in row]
    if not names or missing:
        asked = f"no column {', '.join(missing)}" if missing else "no column of a usual name for its text"
        raise InputError(f"{path} has {asked}; its columns are {', '.join(row)}. Name the columns with the text.")
    words = tuple(
        Word(*(word if len(word) == 4 else (0, *word))) for word in row.get("words", ()) if len(word) in (3, 4)
    )
    label = None if columns.label is None else str(row[columns.label])
    return Text(tuple(str(row[name]) for name in names), label, words)


def _conllu(path: Path, columns: _Columns) -> Iterator[Text]:
    if columns.tags not in ("xpos", "upos"):
        raise InputError(f"tags {columns.tags!r} were asked for; CoNLL-U has xpos and upos.")
    rows: list[list[str]] = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.strip() and not line.startswith("#"):
                cells = line.rstrip("\r\n").split("\t")
                if len(cells) != 10:
                    raise InputError(f"line {number} of {path} has {len(cells)} cells; CoNLL-U has 10.")
                rows.append(cells)
            elif not line.strip() and rows:
                yield _tagged(rows, columns.tags)
                rows = []
    if rows:
        yield _tagged(rows, columns.tags)


def _tagged(rows: list[list[str]], tags: str) -> Text:
    """The sentence as it was written, and its words; a multiword token's words share its characters."""
    written, words, covered = "", [], 0
    span = (0, 0)
    for cells in rows:
        number, form = cells[0], cells[1]
        if "." in number:
            continue  # an empty node, which was not written
        first, _, last = number.partition("-")
        if last or int(first) > covered:
            span = (len(written), len(written) + len(form))
            written += form + ("" if "SpaceAfter=No" in cells[9].split("|") else " ")
            covered = int(last or first)
        if not last:
            words.append(Word(0, *span, cells[4 if tags == "xpos" else 3]))
    return Text((written.strip(),), None, tuple(words))


#: The readers by suffix. A reader takes a path and the columns asked for, and yields texts.
READERS: dict[str, Callable[[Path, _Columns], Iterator[Text]]] = {
    ".txt": _lines,
    ".tsv": _tsv,
    ".csv": _csv,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".conllu": _conllu,
}


def token_tags(text: Text, offsets: Sequence[tuple[int, int]] | None, special: Sequence[bool]) -> list[str | None]:
    """The tag of the word in which each token begins; None for special tokens and untagged characters.

    offsets: characters of each token in its own part of the text, as tokenizers give them. The second part of a
    pair begins at the first ordinary token after a special one that follows the first part.
    """
    if offsets is None or not text.words:
        return [None] * len(special)
    tags: list[str | None] = []
    part, seen, between = 0, False, False
    for (start, end), is_special in zip(offsets, special, strict=True):
        if is_special:
            between = seen
            tags.append(None)
            continue
        part += between and part == 0 and len(text.parts) > 1
        seen, between = True, False
        # Byte-level tokenizers count the space before a word as its first character.
        while start < end - 1 and text.parts[part][start : start + 1].isspace():
            start += 1
        inside = (word.tag for word in text.words if word.part == part and word.start <= start < word.end)
        tags.append(next(inside, None))
    return tags
