"""A corpus is read once, and each of its texts is tokenized once, however a Run goes."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import identiscope
from heard import Heard
from identiscope.corpus.readers import Corpus, Text
from identiscope.errors import InputError
from identiscope.runs.compute.options import RunOptions
from identiscope.runs.compute.run import run_corpus
from identiscope.runs.compute.shard import ShardTask, compute_shard
from identiscope.runs.engines import local
from tiny_text_model import contents, save_tiny, words

OPTIONS = RunOptions(
    methods=("attention_identifiability", "attribution", "tokens"), shard_size=4, batch_size=3, probes=2
)
TEXTS = [words(3 + number % 5, number) for number in range(12)]


class Counting:
    """A tokenizer that counts how often it is called with each text."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.calls: Counter[str] = Counter()

    def __call__(self, *parts: str, **options: Any) -> Any:
        self.calls["|".join(parts)] += 1
        return self.tokenizer(*parts, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> identiscope.Model:
    return identiscope.load(save_tiny(tmp_path_factory.mktemp("once") / "model"))


@pytest.fixture
def model(loaded: identiscope.Model) -> identiscope.Model:
    return replace(loaded, tokenizer=Counting(loaded.tokenizer))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The corpora that were read, each time."""
    seen: list[str] = []
    read = Corpus.read

    def counted(corpus: Corpus) -> Iterator[Text]:
        seen.append(corpus.source)
        return read(corpus)

    monkeypatch.setattr(Corpus, "read", counted)
    return seen


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS), encoding="utf-8")
    return path


def calls_of(model: identiscope.Model) -> Counter[str]:
    tokenizer: Counting = model.tokenizer
    return tokenizer.calls


@pytest.mark.parametrize("too_long", ["refuse", "cut", "keep"])
def test_once_from_the_beginning_to_the_end(
    model: identiscope.Model, corpus: Path, reads: list[str], tmp_path: Path, too_long: Any
) -> None:
    """Also where it is told beforehand what the Run will cost, and where several methods want tokens."""
    heard = Heard()
    options = replace(OPTIONS, too_long=too_long)
    run_corpus(model, corpus, tmp_path / "run", options=options, progress=heard)
    assert heard.states[0].costs is not None and reads == [str(corpus)]
    assert calls_of(model) == dict.fromkeys(TEXTS, 1)


def test_once_where_a_run_goes_on(
    model: identiscope.Model, corpus: Path, reads: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = contents(run_corpus(model, corpus, tmp_path / "whole", options=OPTIONS).directory)
    stopped = compute_shard

    def stopping(worker: Any, task: ShardTask, *more: Any) -> Any:
        if task.number == 1:
            raise InputError("enough")
        return stopped(worker, task, *more)

    monkeypatch.setattr(local, "compute_shard", stopping)
    with pytest.raises(InputError, match="enough"):
        run_corpus(model, corpus, tmp_path / "run", options=OPTIONS)
    monkeypatch.setattr(local, "compute_shard", stopped)
    reads.clear()
    calls_of(model).clear()
    run_corpus(model, corpus, tmp_path / "run", options=OPTIONS)
    assert reads == [str(corpus)] and calls_of(model) == dict.fromkeys(TEXTS[4:], 1), "of the shards that are missing"
    assert contents(tmp_path / "run") == whole
    reads.clear()
    calls_of(model).clear()
    run_corpus(model, corpus, tmp_path / "run", options=OPTIONS)
    assert reads == [str(corpus)] and not calls_of(model), "all is there"


def test_a_text_that_is_cut_is_tokenized_twice(model: identiscope.Model, corpus: Path, tmp_path: Path) -> None:
    """Once to know that it is too long and by how much, and once more cut, as its tokenizer cuts."""
    options = replace(OPTIONS, too_long="cut", max_tokens=6)
    run = run_corpus(model, corpus, tmp_path / "run", options=options)
    cut = dict(zip(TEXTS, run.to_pandas("texts")["cut"] > 0, strict=True))
    assert sum(cut.values()) == run.summary["cut_texts"] > 0
    assert calls_of(model) == {text: 1 + bool(cut[text]) for text in TEXTS}


def test_pairs_and_whoever_tokenizes_them_give_the_same_bytes(
    model: identiscope.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured before the work, kept aside in a file and handed on; or measured by the worker."""
    corpus = tmp_path / "pairs.tsv"
    rows = [f"{words(4, number)}\t{words(2 + number, number)}" for number in range(9)]
    corpus.write_text("\n".join(["sentence1\tsentence2", *rows, ""]), encoding="utf-8")
    monkeypatch.setattr("identiscope.runs.compute.corpus_copy.IN_MEMORY", 100)
    before = run_corpus(model, corpus, tmp_path / "before", options=OPTIONS)
    monkeypatch.setattr("identiscope.runs.compute.corpus_copy.CorpusCopy.measured", lambda copy: None)
    assert contents(run_corpus(model, corpus, tmp_path / "by-worker", options=OPTIONS).directory) == contents(
        before.directory
    )
