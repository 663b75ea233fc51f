"""Texts from files: lines, tables, JSON lines, CoNLL-U, Parquet and datasets, one record at a time."""

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from identiscope.corpus.dataset_rows import dataset_rows, parquet_rows
from identiscope.corpus.lines import MOST, lines
from identiscope.errors import InputError
from identiscope.files import printable, reading
from identiscope.methods.tokens.tags import TaggedWord, tags_of_tokens
from identiscope.numbers import whole_number

#: Columns that hold the text where the user names none, the first that are all there.
USUAL_COLUMNS = (
    ("sentence1", "sentence2"), ("text1", "text2"), ("premise", "hypothesis"), ("sentence",), ("text",), ("question",),
)  # fmt: skip

#: What an id of a dataset looks like: name, owner/name, either with :configuration.
_DATASET = re.compile(r"[\w-]+(/[\w.-]+)?(:[\w.-]+)?")

#: What the first cell of a word in CoNLL-U looks like; of more digits than any sentence has words, it is none.
_ID = re.compile(r"[0-9]{1,9}([-.][0-9]{1,9})?")

#: The corpora that come with the package, by name.
BUILTIN = {path.stem: path for path in sorted((Path(__file__).parent / "builtin").glob("*.*"))}


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

    def tagged_words(self) -> list[list[TaggedWord]]:
        """The words of each part with their tags, as taggers of tokens take them."""
        words: list[list[TaggedWord]] = [[] for _ in self.parts]
        for word in self.words:
            words[word.part].append((word.start, word.end, word.tag))
        return words


def read_corpus(
    path: str | Path,
    *,
    text_columns: Sequence[str] | None = None,
    label_column: str | None = None,
    tags: str = "xpos",
    limit: int | None = None,
    split: str | None = None,
    empty: Literal["refuse", "keep"] = "refuse",
) -> Iterator[Text]:
    """The texts of a file, by its suffix: .txt (a text a line), .tsv, .csv, .jsonl, .conllu, .parquet.

    >>> texts = read_corpus("mrpc/dev.tsv", text_columns=["sentence1", "sentence2"])
    >>> texts = read_corpus("pairs")                       # built in: pairs and passages
    >>> texts = read_corpus("glue:mrpc", split="validation")  # a dataset of the hub, or a directory of a saved one

    text_columns: one column, or two for pairs; by default the usual names are tried. label_column: of a table or
    JSON lines. A .tsv has no quoting; a .csv has. A JSON line may have "words": [start, end, tag] or [part, start,
    end, tag] of its tagged words. tags: "xpos" or "upos", for CoNLL-U. limit: at most so many texts. split: of a
    dataset. empty: an empty text in a table is refused, or kept as it is. A line, and a text, has at most 1 MiB
    (`corpus.lines.MOST`); a longer one is refused with its number.
    """
    if limit is not None:
        limit = whole_number("limit", limit, 0, 2**62)
    if text_columns is not None and not 1 <= len(text_columns) <= 2:
        raise InputError(f"text columns {list(text_columns)} were given; expected one, or two for pairs.")
    given = path
    with reading(path):
        path = Path(path) if Path(path).exists() else BUILTIN.get(str(path), Path(path))
    columns = _Columns(text_columns, label_column, tags)
    reader = READERS.get(path.suffix.lower())
    if path.is_dir() or (reader is None and not path.exists() and _DATASET.fullmatch(str(given))):
        rows = dataset_rows(str(given), split)
        records = (_record(path, number, row, columns, "row") for number, row in enumerate(rows, 1))
        return _checked(path, records, limit, empty)
    if not path.exists():
        raise InputError(
            f"there is no file {printable(path)}, and no built-in corpus of that name ({', '.join(BUILTIN)})."
        )
    if reader is None:
        raise InputError(f"{path} ends in {path.suffix!r}; expected one of {', '.join(READERS)}.")
    asked = [*(text_columns or ()), *([label_column] if label_column else ())]
    if reader in (_lines, _conllu) and asked:
        raise InputError(f"{printable(given)} has texts and no columns; it was asked for {', '.join(asked)}.")
    return _checked(path, reader(path, columns), limit, empty)


@dataclass(frozen=True)
class Corpus:
    """A corpus by its source and columns, which can be read again from the start."""

    source: str
    text_columns: Sequence[str] | None = None
    label_column: str | None = None
    limit: int | None = None
    split: str | None = None

    def read(self) -> Iterator[Text]:
        """Its texts; empty ones are kept, so that the numbers of texts are those of the file."""
        return read_corpus(
            self.source, text_columns=self.text_columns, label_column=self.label_column, limit=self.limit,
            split=self.split, empty="keep",
        )  # fmt: skip


@dataclass(frozen=True)
class _Columns:
    text: Sequence[str] | None
    label: str | None
    tags: str


def _checked(path: Path, texts: Iterable[Text], limit: int | None, empty: str) -> Iterator[Text]:
    number = 0
    for number, text in enumerate(islice(texts, limit), 1):
        if empty == "refuse" and any(not part.strip() for part in text.parts):
            raise InputError(f"text {number} of {path} is empty; remove it or fill it in.")
        yield text
    if number == 0 and limit != 0:
        raise InputError(f"{path} has no texts.")


def _lines(path: Path, columns: _Columns) -> Iterator[Text]:
    for line in lines(path):
        if line.strip():
            yield Text((line.strip(),))


def _tsv(path: Path, columns: _Columns) -> Iterator[Text]:
    file = lines(path)
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
        yield _record(path, number, dict(zip(header, cells, strict=True)), columns, tagged=False)


def _csv(path: Path, columns: _Columns) -> Iterator[Text]:
    number = 0

    def counted() -> Iterator[str]:
        nonlocal number
        for number, line in enumerate(lines(path), 1):  # noqa: B007  (it is read where an error is raised)
            yield line

    try:
        for row in csv.DictReader(counted(), strict=True):
            if None in row or None in row.values():
                raise InputError(f"the row that ends in line {number} of {path} has not as many cells as the header.")
            yield _record(path, number, row, columns, tagged=False)
    except csv.Error as error:
        raise InputError(f"line {number} of {path} is not well-formed CSV: {error}.") from error


def _json_lines(path: Path, columns: _Columns) -> Iterator[Text]:
    for number, line in enumerate(lines(path), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except RecursionError as error:
            raise InputError(
                f"line {number} of {path} is not JSON that can be read: it is nested too deeply."
            ) from error
        except ValueError as error:  # also a number of thousands of digits
            raise InputError(f"line {number} of {path} is not JSON: {error}.") from error
        if not isinstance(row, dict):
            raise InputError(f"line {number} of {path} is not a JSON object.")
        yield _record(path, number, row, columns)


def _parquet(path: Path, columns: _Columns) -> Iterator[Text]:
    for number, row in enumerate(parquet_rows(path), 1):
        yield _record(path, number, row, columns, "row")


def _record(
    path: Path, number: int, row: Mapping[str, Any], columns: _Columns, unit: str = "line", tagged: bool = True
) -> Text:
    """One text of a row. number, unit: where it stands, for errors; tagged: whether "words" are words with tags."""
    names = columns.text or next((usual for usual in USUAL_COLUMNS if all(name in row for name in usual)), ())
    missing = [name for name in (*names, *([columns.label] if columns.label else ())) if name not in row]
    if not names or missing:
        asked = f"no column {', '.join(missing)}" if missing else "no column of a usual name for its text"
        raise InputError(f"{path} has {asked}; its columns are {', '.join(row)}. Name the columns with the text.")
    where = f"{unit} {number} of {path}"
    parts = tuple(_cell(row[name], f"{name} in {where}") for name in names)
    label = None if columns.label is None else _cell(row[columns.label], f"{columns.label} in {where}")
    words = row.get("words") if tagged and "words" not in names else None
    return Text(parts, label, tuple(_word(word, parts, where) for word in _several(words, where)))


def _cell(value: Any, where: str) -> str:
    """A cell as text; one without a value is an empty text."""
    try:
        text = "" if value is None else str(value)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} cannot be read as text: {error}.") from error
    if len(text) > MOST:
        raise InputError(f"{where} has {len(text):,} characters; at most {MOST:,} are taken for one text. Divide it.")
    if any("\ud800" <= sign <= "\udfff" for sign in text):
        raise InputError(f"{where} has half a surrogate pair, which is no character. Write the file as UTF-8 again.")
    return text


def _several(words: Any, where: str) -> Sequence[Any]:
    if words is None:
        return ()
    if not isinstance(words, (list, tuple)):
        raise InputError(
            f'"words" in {where} is no list; expected [start, end, tag] or [part, start, end, tag] of each.'
        )
    return words


def _word(word: Any, parts: tuple[str, ...], where: str) -> Word:
    if isinstance(word, (list, tuple)) and len(word) in (3, 4):
        part, start, end, tag = (0, *word) if len(word) == 3 else word
        whole = all(type(place) is int for place in (part, start, end)) and isinstance(tag, str)
        if whole and 0 <= part < len(parts) and 0 <= start <= end <= len(parts[part]):
            return Word(part, start, end, tag)
    raise InputError(
        f"a word in {where} is {str(word)[:80]}; expected [start, end, tag] or [part, start, end, tag], with characters"
        " that the text has."
    )


def _conllu(path: Path, columns: _Columns) -> Iterator[Text]:
    if columns.tags not in ("xpos", "upos"):
        raise InputError(f"tags {columns.tags!r} were asked for; CoNLL-U has xpos and upos.")
    for rows in conllu_sentences(path):
        text, spans = written_sentence(rows)
        tags = [cells[4 if columns.tags == "xpos" else 3] for cells in rows if cells[0].isdigit()]
        yield Text((text,), None, tuple(Word(0, *span, tag) for span, tag in zip(spans, tags, strict=True)))


def conllu_sentences(path: Path) -> Iterator[list[list[str]]]:
    """The rows of each sentence of a CoNLL-U file, ten cells each."""
    rows: list[list[str]] = []
    size = 0
    for number, line in enumerate(lines(path), 1):
        if line.strip() and not line.startswith("#"):
            size += len(line)
            if size > MOST:
                raise InputError(
                    f"the sentence that goes on in line {number} of {path} has more than {MOST:,} characters; at most"
                    " so many are taken for one text. Divide it: an empty line ends a sentence."
                )
            cells = line.rstrip("\r\n").split("\t")
            if len(cells) != 10:
                raise InputError(f"line {number} of {path} has {len(cells)} cells; CoNLL-U has 10.")
            if not _ID.fullmatch(cells[0]):
                raise InputError(
                    f"line {number} of {path} begins with {cells[0][:40]!r}; expected an id: 3, 3-4 or 3.1."
                )
            rows.append(cells)
        elif not line.strip() and rows:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def written_sentence(rows: list[list[str]]) -> tuple[str, list[tuple[int, int]]]:
    """A sentence as it was written, and the characters of its words; those of a multiword token share its own."""
    written, covered = "", 0
    words: list[tuple[int, int]] = []
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
            words.append(span)
    return written.strip(), words


#: The readers by suffix. A reader takes a path and the columns asked for, and yields texts.
READERS: dict[str, Callable[[Path, _Columns], Iterator[Text]]] = {
    ".txt": _lines,
    ".tsv": _tsv,
    ".csv": _csv,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".conllu": _conllu,
    ".parquet": _parquet,
}


def token_tags(text: Text, offsets: Sequence[tuple[int, int]] | None, special: Sequence[bool]) -> list[str | None]:
    """The tag of each token's word, as `tags_of_tokens` has it; None for special tokens and untagged characters.

    offsets: characters of each token in its own part of the text, as tokenizers give them.
    """
    if offsets is None or not text.words:
        return [None] * len(special)
    tags = tags_of_tokens([""] * len(special), offsets, special, text.tagged_words())
    return [None if is_special else tag for tag, is_special in zip(tags, special, strict=True)]
