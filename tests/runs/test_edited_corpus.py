"""A corpus that is edited during a Run: no number of the edited texts is kept, whichever way it is gone on."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import identiscope
from identiscope.errors import InputError
from identiscope.runs.compute import run as run_module
from identiscope.runs.compute.run import run_corpus
from identiscope.runs.engines.local import run_here
from identiscope.runs.format.opened_run import Run
from identiscope.runs.format.shards import ShardFiles
from identiscope.runs.format.verification import verify_run
from soak.damage_kinds import edited
from soak.prepared import EVERYTHING, prepare
from tiny_text_model import contents

OPTIONS = replace(EVERYTHING, hidden_states=False, subspace_length=None)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[identiscope.Model, Path]:
    model, corpus = prepare(tmp_path_factory.mktemp("edited"))
    return identiscope.load(model), corpus


@pytest.fixture
def corpus(prepared: tuple[identiscope.Model, Path], tmp_path: Path) -> Path:
    return Path(shutil.copyfile(prepared[1], tmp_path / "texts.tsv"))


@pytest.fixture
def start(prepared: tuple[identiscope.Model, Path], corpus: Path, tmp_path: Path) -> Callable[..., Run]:
    def started(name: str = "run", **more: Any) -> Run:
        return run_corpus(prepared[0], corpus, tmp_path / name, options=OPTIONS, label_column="label", **more)

    return started


def test_an_edit_during_a_run_changes_no_byte(start: Callable[..., Run], corpus: Path, tmp_path: Path) -> None:
    """It was read by then, all of it, also where it is larger than what is read ahead of a file."""
    rows = [f"w1 w2 w{number}\t{'x' * 600}" for number in range(40)]
    before = "\n".join(["sentence\tlabel", *rows, ""])
    corpus.write_text(before)

    def edit(done: int, total: int) -> None:
        with corpus.open("r+") as file:
            file.write(before[:20_000] + before[20_000:].replace("w1", "w9"))

    run = start(progress=edit)
    assert corpus.read_text() != before and run.query("part_1.str.contains('w9 ')", "texts").empty
    with pytest.raises(InputError, match="begun otherwise: corpus hash"):
        start()
    corpus.write_text(before)
    assert contents(start().directory) == contents(start("whole").directory)


def test_what_comes_back_of_other_texts_is_not_written(
    start: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(*given: Any) -> Iterator[ShardFiles]:
        for shard in run_here(*given):
            yield replace(shard, facts=dict(shard.facts) | {"corpus": "0" * 64}) if shard.number == 2 else shard

    monkeypatch.setattr(run_module, "run_here", other)
    with pytest.raises(InputError, match="shard 2 came back made of other texts"):
        start()
    assert sorted(path.name for path in (tmp_path / "run" / "shards").iterdir()) == ["000000", "000001"]


@pytest.mark.parametrize("missing", [True, False], ids=["more to compute", "nothing to compute"])
def test_shards_of_edited_texts_are_not_gone_on_with(start: Callable[..., Run], tmp_path: Path, missing: bool) -> None:
    """As they were left by versions that wrote them and then refused the corpus."""
    whole = start("whole").directory
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    for name in ("seal.json", "summary.json", "statistics.safetensors"):
        (run / name).unlink()
    if missing:
        shutil.rmtree(run / "shards" / "000003")
    edited(run / "shards" / "000001" / "shard.json", lambda record: record.update(corpus="0" * 64))
    with pytest.raises(InputError, match=r"shard 000001 was made of other texts .*--repair"):
        start()
    assert not (run / "seal.json").exists() and not (run / "summary.json").exists()
    start(repair=True)
    assert contents(run) == contents(whole) and (tmp_path / "run.aside" / "000001").is_dir()


def test_a_finished_run_of_edited_texts_is_seen_without_the_corpus(start: Callable[..., Run], tmp_path: Path) -> None:
    run = start().directory
    edited(run / "shards" / "000001" / "shard.json", lambda record: record.update(corpus="0" * 64))
    (run / "seal.json").unlink()
    assert any("made of other texts" in problem for problem in verify_run(run).problems)
