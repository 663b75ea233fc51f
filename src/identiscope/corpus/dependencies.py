"""Sentences with their dependencies, from CoNLL-U: words, whom each depends on, and how."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from identiscope.corpus.readers import conllu_sentences, written_sentence
from identiscope.errors import InputError
from identiscope.files import printable


@dataclass(frozen=True)
class Dependency:
    """A word, as characters begin to end of its sentence; head: the place of the word it depends on, −1 for the root;
    relation: how, without its subtype."""

    begin: int
    end: int
    head: int
    relation: str


@dataclass(frozen=True)
class Sentence:
    """A sentence as it was written, and its words in order; number: its place in the file, from 1."""

    text: str
    words: tuple[Dependency, ...]
    number: int


def read_dependencies(path: str | Path, limit: int | None = None) -> Iterator[Sentence]:
    """The sentences of a CoNLL-U file with their dependencies; words of a multiword token share its characters."""
    if Path(path).suffix.lower() != ".conllu":
        raise InputError(f"{printable(path)} was given for dependencies; expected a file that ends in .conllu.")
    if not Path(path).exists():
        raise InputError(f"there is no file {printable(path)}.")
    for number, rows in enumerate(islice(conllu_sentences(Path(path)), limit), 1):
        text, spans = written_sentence(rows)
        cells = [row for row in rows if row[0].isdigit()]
        words = []
        for row, (begin, end) in zip(cells, spans, strict=True):
            if not row[6].isdigit() or int(row[6]) > len(cells):
                raise InputError(
                    f"word {row[0]} ({row[1]!r}) of sentence {number} of {printable(path)} has the head {row[6]!r};"
                    f" expected a number from 0 to {len(cells)}."
                )
            words.append(Dependency(begin, end, int(row[6]) - 1, row[7].partition(":")[0]))
        yield Sentence(text, tuple(words), number)


def pieces_of_words(sentence: Sentence, offsets: Sequence[tuple[int, int]], special: Sequence[bool]) -> list[list[int]]:
    """The places of the tokens of each word: those that share a character with it. A word without any is refused.

    offsets: characters (begin, end) of each token.

    >>> one = Sentence("walks on", (Dependency(0, 5, -1, "root"), Dependency(6, 8, 0, "advmod")), 1)
    >>> pieces_of_words(one, [(0, 0), (0, 4), (4, 5), (5, 8)], [True, False, False, False])
    [[1, 2], [3]]
    """
    ordinary = [(place, *span) for place, span in enumerate(offsets) if not special[place]]
    pieces = []
    for word in sentence.words:
        own = [place for place, begin, end in ordinary if min(end, word.end) > max(begin, word.begin)]
        if not own:
            raise InputError(
                f"no token covers {sentence.text[word.begin : word.end]!r} (characters {word.begin} to {word.end} of"
                f" sentence {sentence.number}); the words of the file and the model's tokens do not align."
            )
        pieces.append(own)
    return pieces
