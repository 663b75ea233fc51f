"""Corpora that come with the package, Parquet files, Hugging Face datasets, and encodings."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import identiscope
from identiscope.corpus.readers import BUILTIN, Corpus, read_corpus
from identiscope.errors import InputError

ROWS = {"text1": ["One.", "Two."], "text2": ["Eins.", None], "label": [1, 0]}


def test_the_built_in_corpora(minilm: identiscope.Model) -> None:
    pairs = list(read_corpus("pairs", label_column="label"))
    assert len(pairs) == 60 and all(len(text.parts) == 2 for text in pairs)
    assert {text.label for text in pairs} == {"0", "1"} and len({text.parts for text in pairs}) == 60
    passages = list(read_corpus("passages"))
    lengths = [len(minilm.tokenizer(text.given)["input_ids"]) for text in passages]
    assert len(passages) == 10 and min(lengths) >= 100 and max(lengths) <= 300
    assert set(BUILTIN) == {"pairs", "passages"}


def test_a_file_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs").write_text("mine")
    with pytest.raises(InputError, match="ends in ''"):
        list(read_corpus("pairs"))


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(ROWS), path)
    first, second = Corpus(str(path), label_column="label").read()
    assert first.parts == ("One.", "Eins.") and second.parts == ("Two.", "") and second.label == "0"
    with pytest.raises(InputError, match=r"text 2 of .* is empty"):
        list(read_corpus(path))
    with pytest.raises(InputError, match="no column body; its columns are text1, text2, label"):
        list(read_corpus(path, text_columns=["body"]))
    path.write_bytes(b"PAR1 no")
    with pytest.raises(InputError, match="not a Parquet file"):
        list(read_corpus(path))


def test_datasets_saved_on_disk(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="datasets are an extra: identiscope[datasets]")
    datasets.disable_progress_bars()
    made = datasets.Dataset.from_dict(ROWS)
    made.save_to_disk(str(tmp_path / "one"))
    datasets.DatasetDict({"train": made, "test": made.select([0])}).save_to_disk(str(tmp_path / "split"))
    assert [text.parts[0] for text in Corpus(str(tmp_path / "one")).read()] == ["One.", "Two."]
    assert len(list(Corpus(str(tmp_path / "split"), split="test").read())) == 1
    with pytest.raises(InputError, match="it has train, test"):
        list(Corpus(str(tmp_path / "split")).read())
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no dataset that could be read"):
        list(Corpus(str(tmp_path / "empty")).read())


def test_datasets_of_the_hub_are_streamed_with_their_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets", reason="datasets are an extra: identiscope[datasets]")
    asked: list[object] = []

    def load(*names: object, **options: object) -> dict[str, object]:
        asked.append((names, options))
        return {"validation": [{"sentence": "A text."}]}

    monkeypatch.setattr(datasets, "load_dataset", load)
    (text,) = Corpus("owner/glue:mrpc", split="validation").read()
    assert text.given == "A text." and asked == [(("owner/glue", "mrpc"), {"streaming": True})]


def test_datasets_are_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(InputError, match=r"identiscope\[datasets\]"):
        list(read_corpus("owner/name"))


@pytest.mark.parametrize("name", ["a.txt", "a.tsv", "a.csv", "a.jsonl", "a.conllu"])
def test_the_line_that_is_not_utf8_is_named(tmp_path: Path, name: str) -> None:
    starts = {"a.txt": b"good\n", "a.jsonl": b'{"text": "good"}\n', "a.conllu": b"# text\n"}
    (tmp_path / name).write_bytes(starts.get(name, b"text\n") + b"caf\xe9\n")
    with pytest.raises(InputError, match=r"line 2 of .* is not UTF-8"):
        list(read_corpus(tmp_path / name))


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes("\ufefftext\nword\n".encode())
    assert next(read_corpus(tmp_path / "a.tsv")).given == "word"


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no built-in corpus of that name .pairs, passages"):
        list(read_corpus(tmp_path / "none.xyz"))
