"""Readers: every format, its tags and labels, and files that are not what they seem."""

import os
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import identiscope
from identiscope.corpus.lines import whole_text
from identiscope.corpus.readers import Text, Word, read_corpus, token_tags
from identiscope.errors import InputError
from identiscope.methods.tokens.types import types_of_tokens
from identiscope.papers.brunner2020.tokens.tags import token_tags as tags_of_trace


def written(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


def test_lines(tmp_path: Path) -> None:
    path = written(tmp_path, "a.txt", "One line.\n\n Another. \n")
    assert [text.given for text in read_corpus(path)] == ["One line.", "Another."]
    assert len(list(read_corpus(path, limit=1))) == 1


def test_tsv_is_not_quoted_and_finds_pairs(tmp_path: Path) -> None:
    path = written(tmp_path, "a.tsv", 'id\tlabel\tsentence1\tsentence2\n1\tyes\t"Open\tclose.\r\n')
    (text,) = read_corpus(path, label_column="label")
    assert text.given == ('"Open', "close.") and text.label == "yes"


def test_csv_is_quoted(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", 'label,body\n1,"a, b\nc"\n')
    assert next(read_corpus(path, text_columns=["body"])).parts == ("a, b\nc",)


def test_json_lines_with_words(tmp_path: Path) -> None:
    lines = '{"text": "The cat", "words": [[0, 3, "DT"], [0, 4, 7, "NN"]]}\n\n'
    (text,) = read_corpus(written(tmp_path, "a.jsonl", lines))
    assert text.words == (Word(0, 0, 3, "DT"), Word(0, 4, 7, "NN"))


CONLLU = """# text = Don't vámonos.
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\tVB\t_\t0\troot\t_\t_
2\tn't\tnot\tPART\tRB\t_\t1\tadvmod\t_\t_
3\tvámonos\tir\tVERB\tVBP\t_\t1\txcomp\t_\tSpaceAfter=No
3.1\thidden\t_\tVERB\tXX\t_\t_\t_\t_\t_
4\t.\t.\tPUNCT\t.\t_\t1\tpunct\t_\t_

1\tNext\tnext\tADJ\tJJ\t_\t0\troot\t_\t_
"""


def test_conllu_rebuilds_the_text_and_its_spans(tmp_path: Path) -> None:
    path = written(tmp_path, "a.conllu", CONLLU)
    first, second = read_corpus(path)
    assert first.parts == ("Don't vámonos.",) and second.parts == ("Next",)
    spans = [(first.parts[0][word.start : word.end], word.tag) for word in first.words]
    assert spans == [("Don't", "VB"), ("Don't", "RB"), ("vámonos", "VBP"), (".", ".")]
    assert [word.tag for word in next(read_corpus(path, tags="upos")).words] == ["AUX", "PART", "VERB", "PUNCT"]


def test_token_tags_in_pairs() -> None:
    text = Text(("A cat", "It ran"), None, (Word(0, 0, 1, "DT"), Word(0, 2, 5, "NN"), Word(1, 0, 2, "PRP")))
    offsets = [(0, 0), (0, 1), (2, 4), (4, 5), (0, 0), (0, 2), (3, 6), (0, 0)]
    special = [True, False, False, False, True, False, False, True]
    assert token_tags(text, offsets, special) == [None, "DT", "NN", "NN", None, "PRP", None, None]
    assert token_tags(text, None, special) == [None] * 8


def test_token_tags_skip_the_space_of_byte_level_tokens() -> None:
    text = Text(("A cat",), None, (Word(0, 0, 1, "DT"), Word(0, 2, 5, "NN")))
    assert token_tags(text, [(0, 1), (1, 5)], [False, False]) == ["DT", "NN"]


def test_a_corpus_and_a_trace_are_tagged_by_one_rule(minilm: identiscope.Model) -> None:
    """The word that a token shares most characters with, whichever way it is asked; a special token ends no text."""
    words = (Word(0, 0, 1, "DT"), Word(0, 2, 5, "NN"), Word(1, 0, 2, "PRP"), Word(1, 3, 6, "VBD"))
    text = Text(("A cat", "It ran"), None, words)
    trace = identiscope.trace(minilm, text.given)
    stream = trace.main
    of_corpus = token_tags(text, stream.offsets, stream.special)
    of_trace = tags_of_trace(trace, text.tagged_words())
    assert of_corpus == [None, "DT", "NN", None, "PRP", "VBD", None]
    assert of_trace == ["[CLS]", "DT", "NN", "[SEP]", "PRP", "VBD", "[SEP]"]
    one = Text(("A [MASK] ran",), None, (Word(0, 0, 1, "DT"), Word(0, 9, 12, "VBD")))
    assert token_tags(one, [(0, 1), (2, 8), (9, 12)], [False, True, False]) == ["DT", None, "VBD"]
    # Over two words: the longer share decides, not where it begins.
    assert token_tags(Text(("a word",), None, (Word(0, 0, 1, "DT"), Word(0, 2, 6, "NN"))), [(0, 6)], [False]) == ["NN"]


def test_types_of_tokens(minilm: identiscope.Model) -> None:
    stream = identiscope.trace(minilm, "A cat, it ran!").main
    flags = types_of_tokens(stream.tokens, stream.ids, stream.special, minilm.tokenizer)
    there = {name: [stream.tokens[place] for place, flag in enumerate(own) if flag] for name, own in flags.items()}
    assert there == {
        "special": ["[CLS]", "[SEP]"], "cls": ["[CLS]"], "sep": ["[SEP]"], "punctuation": [",", "!"], "point": [","],
        "other": ["a", "cat", "it", "ran"],
    }  # fmt: skip
    assert not any(types_of_tokens(["[CLS]"], None, [True], minilm.tokenizer)["cls"])


@pytest.mark.parametrize(
    ("name", "content", "options", "said"),
    [
        ("a.doc", "x", {}, r"'\.doc'"),
        ("a.txt", "\n", {}, "no texts"),
        ("a.tsv", "a\tb\n1\t2\n", {}, "its columns are a, b"),
        ("a.tsv", "sentence\tb\n1\n", {}, "line 2"),
        ("a.tsv", "sentence\tb\n \tx\n", {}, "text 1 of .* is empty"),
        ("a.tsv", "sentence\nx\n", {"label_column": "mood"}, "no column mood"),
        ("a.tsv", "a\nx\n", {"text_columns": ["a", "b", "c"]}, "two for pairs"),
        ("a.csv", "sentence,b\nx\n", {}, "as many cells"),
        ("a.csv", 'sentence\n"x', {}, "CSV"),
        ("a.jsonl", "{", {}, "line 1"),
        ("a.jsonl", "[1]\n", {}, "object"),
        ("a.jsonl", "[" * 100_000 + "\n", {}, "line 1 .* nested too deeply"),
        ("a.jsonl", '{"text": "x"}\n{"text": ' + "9" * 5000 + "}\n", {}, "line 2 .* is not JSON"),
        ("a.jsonl", '{"text": "x"}\n{"text": "\\ud800"}\n', {}, "text in line 2 of .* half a surrogate pair"),
        ("a.jsonl", '{"text": "a b", "words": "a b"}\n', {}, '"words" in line 1 .* is no list'),
        ("a.jsonl", '{"text": "a b", "words": ["abc"]}\n', {}, "a word in line 1 .* is abc; expected"),
        ("a.jsonl", '{"text": "a b", "words": [[0, 9, "NN"]]}\n', {}, "characters that the text has"),
        ("a.jsonl", '{"text": "a b", "words": [[1, 0, 1, "NN"]]}\n', {}, "a word in line 1"),
        ("a.jsonl", '{"text": "a b", "words": [[0, 1.0, "NN"]]}\n', {}, "a word in line 1"),
        ("a.jsonl", '{"text": "x", "label": "\\udfff"}\n', {"label_column": "label"}, "label in line 1 .* surrogate"),
        ("a.csv", "text\n" + "x" * 200_000 + "\n", {}, "line 2 of .* field larger than field limit"),
        ("a.txt", "one\n" + "x" * (2**20 + 1) + "\ntwo\n", {}, "line 2 of .* more than 1,048,576 bytes"),
        ("a.tsv", "text\tb\n" + "x" * 2**20 + "\ty\n", {}, "line 2 of .* more than 1,048,576 bytes"),
        ("a.conllu", "# a\n" + "\t".join(["one", "x", *"abcdefgh"]) + "\n\n", {}, "line 2 of .* begins with 'one'"),
        ("a.conllu", "\t".join(["1-x", "x", *"abcdefgh"]) + "\n\n", {}, "line 1 of .* expected an id"),
        ("a.conllu", "\t".join(["²", "x", *"abcdefgh"]) + "\n\n", {}, "expected an id"),
        ("a.txt", "x\n", {"limit": -1}, "limit=-1 was given"),
        ("a.conllu", "1\tx\n\n", {}, "10"),
        ("a.conllu", CONLLU, {"tags": "deprel"}, "xpos and upos"),
    ],
)
def test_bad_files_are_explained(tmp_path: Path, name: str, content: str, options: dict[str, Any], said: str) -> None:
    path = written(tmp_path, name, content)
    with pytest.raises(InputError, match=said):
        list(read_corpus(path, **options))


def test_missing_and_binary_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file"):
        list(read_corpus(tmp_path / "none.txt"))
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        list(read_corpus(tmp_path / "b.txt"))


def test_the_words_of_a_table_are_a_column_like_any_other(tmp_path: Path) -> None:
    path = written(tmp_path, "a.tsv", "text\twords\nA cat\tthe cats\n")
    assert [text.words for text in read_corpus(path)] == [()]
    assert [text.parts for text in read_corpus(path, text_columns=["words"])] == [("the cats",)]


def test_a_file_without_line_ends_is_not_taken_into_memory(tmp_path: Path) -> None:
    """Sixty-four megabytes of one line, and no more than a few of them are held."""
    path = tmp_path / "long.txt"
    with path.open("wb") as file:
        for _ in range(64):
            file.write(b"x" * 2**20)
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"line 1 of .*long.txt has more than 1,048,576 bytes"):
            list(read_corpus(path))
        with pytest.raises(InputError, match=r"long.txt has more than 1,048,576 bytes, the most that one text"):
            whole_text(path)
        assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
    finally:
        tracemalloc.stop()


def test_a_sentence_of_conllu_without_end_is_not_taken_into_memory(tmp_path: Path) -> None:
    path = tmp_path / "long.conllu"
    row = "\t".join(["1", "w", *"________"]) + "\n"
    path.write_text((row * 1000 + "\n") * 60)
    assert len(list(read_corpus(path))) == 60
    path.write_text(row * 60_000)
    with pytest.raises(InputError, match=r"line 52429 of .*long.conllu has more than 1,048,576 characters"):
        list(read_corpus(path))


def test_long_and_damaged_cells_of_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["short", "x" * (2**20 + 1)]}), path)
    with pytest.raises(InputError, match=r"text in row 2 of .* has 1,048,577 characters; at most 1,048,576"):
        list(read_corpus(path))
    pq.write_table(pa.table({"text": ["some words"] * 5000}), path)
    data = bytearray(path.read_bytes())
    data[20:60] = bytes(40)
    path.write_bytes(data)
    with pytest.raises(InputError, match="damaged"):
        list(read_corpus(path))


@pytest.mark.parametrize("name", ["pipe.txt", "pipe.parquet"])
def test_a_pipe_is_not_waited_for(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(InputError, match="is a pipe; give a regular file"):
        list(read_corpus(tmp_path / name))


def test_names_that_are_none(tmp_path: Path) -> None:
    for name in ("n" * 300 + ".txt", "a\0b.txt", "\ud800.txt"):
        with pytest.raises(InputError):
            list(read_corpus(tmp_path / name))


def test_columns_of_what_has_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("One text.\n")
    for source in (tmp_path / "lines.txt", "passages"):
        with pytest.raises(InputError, match=r"(lines\.txt|passages) has texts and no columns; it was asked for first"):
            read_corpus(source, text_columns=["first"])
        with pytest.raises(InputError, match="no columns; it was asked for class"):
            read_corpus(source, label_column="class")
