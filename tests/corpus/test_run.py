"""Runs over a corpus: order, statuses, resuming after a kill at any point, refusals, damage, and bad surroundings."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import identiscope
from identiscope.corpus import run as run_module
from identiscope.corpus import shards
from identiscope.corpus.lock import locked
from identiscope.corpus.manifest import CorpusFacts
from identiscope.corpus.opened_run import Run, open_run
from identiscope.corpus.readers import Corpus
from identiscope.corpus.run import Interrupted, RunProgress, run_corpus
from identiscope.corpus.run_options import RunOptions
from identiscope.errors import InputError
from tiny_text_model import contents, save_tiny, words

OPTIONS = RunOptions(methods=("attention", "tokens"), shard_size=3, batch_size=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def model(folder: Path) -> identiscope.Model:
    return identiscope.load(folder)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts of many lengths, not in order."""
    path = tmp_path_factory.mktemp("corpus") / "texts.tsv"
    lengths = [20, 3, 11, 7, 30, 2, 9, 16, 5, 24]
    rows = [f"{words(length, number)}\t{number % 2}" for number, length in enumerate(lengths)]
    path.write_text("\n".join(["sentence\tlabel", *rows, ""]), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def whole(model: identiscope.Model, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_corpus(model, corpus, tmp_path_factory.mktemp("runs") / "whole", options=OPTIONS, label_column="label")


def start(model: Any, corpus: Any, directory: Path, options: RunOptions = OPTIONS, **more: Any) -> Run:
    return run_corpus(model, corpus, directory, options=options, label_column="label", **more)


def test_results_are_in_the_order_of_the_corpus(whole: Run, model: identiscope.Model, corpus: Path) -> None:
    texts = [text.given for text in Corpus(str(corpus), label_column="label").read()]
    table = whole.to_pandas("texts")
    assert table["part_1"].tolist() == texts and table["label"].tolist() == [str(n % 2) for n in range(10)]
    assert table["tokens"].tolist() == [len(model.tokenizer(text)["input_ids"]) for text in texts]
    array = whole.to_xarray()
    assert array.null_share.dims == ("text", "layer", "head") and array.sizes == {"text": 10, "layer": 2, "head": 4}
    for number in (0, 4, 5):
        alone = identiscope.attention_identifiability(identiscope.trace(model, texts[number]))
        np.testing.assert_allclose(array.null_share[number], alone.null_share, atol=1e-5)


def test_the_summary_is_that_of_the_tables(whole: Run) -> None:
    rows = whole.to_pandas("tokens")
    means, first = whole.means("tokens"), rows.groupby("layer")["identified_cosine"]
    np.testing.assert_allclose(means["mean"].sel(column="identified_cosine"), first.mean(), rtol=1e-6)
    np.testing.assert_allclose(means["deviation"].sel(column="identified_cosine"), first.std(), rtol=1e-5)
    assert int(means["histogram"].sel(column="norm").sum()) == len(rows)
    assert whole.summary["texts"] == 10 and whole.summary["statuses"] == {"ok": 10}
    assert whole.summary["tokens"] == whole.to_pandas("texts")["tokens"].sum()


def test_tables_can_be_asked(whole: Run) -> None:
    found = whole.query("tokens > 15 and layer == 1 and null_share > 0")
    assert set(found["layer"]) == {1} and found["tokens"].min() > 15 and len(found) == 4 * 4
    assert len(whole.query("label == '1'", "texts")) == 5
    assert len(list(whole.iterate("texts"))) == 4 and list(whole.to_pandas("tokens", ["text"]).columns) == ["text"]
    for ask, said in (
        (lambda: whole.query("colour > 1"), "columns are text"),
        (lambda: whole.to_pandas("structure"), "there are attention, tokens, texts"),
        (lambda: whole.to_pandas("texts", ["size"]), "no columns size"),
        (lambda: whole.to_xarray("texts"), "to_pandas"),
        (lambda: whole.plot("size"), "no column 'size'"),
        (lambda: whole.plot("entropy", kind="pie"), "histogram"),
        (whole.subspaces, "subspace_length"),
        (lambda: open_run(whole.directory / "shards"), "no Run directory"),
    ):
        with pytest.raises(InputError, match=said):
            ask()
    assert "complete" in repr(whole)


def test_a_second_call_changes_nothing(whole: Run, model: identiscope.Model, corpus: Path) -> None:
    before = contents(whole.directory)
    seen: list[RunProgress] = []
    start(model, corpus, whole.directory, progress=seen.append)
    assert contents(whole.directory) == before and not seen


def test_progress_counts_texts_and_tokens(model: identiscope.Model, corpus: Path, tmp_path: Path) -> None:
    seen: list[RunProgress] = []
    run = start(model, corpus, tmp_path / "run", progress=seen.append)
    assert seen[-1].texts == seen[-1].total == 10 and seen[-1].tokens == run.summary["tokens"]
    assert seen[0].seconds_left is not None and seen[-1].seconds_left == 0 and seen[-1].tokens_per_second > 0
    shutil.rmtree(run.directory / "shards" / "000001")
    start(model, corpus, tmp_path / "run", progress=seen.append)
    assert (seen[-1].before, seen[-1].texts) == (7, 3)


KILLER = """
import os, random, signal, sys, time
from pathlib import Path
import torch
torch.set_num_threads(1)
from identiscope.corpus.run import run_corpus
from identiscope.corpus.run_options import RunOptions

model, corpus, base, trials = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
options = RunOptions(methods=("attention", "tokens"), shard_size=3, batch_size=2)

def child(directory):
    number = os.fork()
    if number == 0:
        try:
            run_corpus(model, corpus, directory, options=options, label_column="label")
            os._exit(0)
        finally:
            os._exit(1)
    return number

run_corpus(model, corpus, base / "warm", options=options, label_column="label")
begun = time.monotonic()
os.waitpid(child(base / "again"), 0)
seconds = time.monotonic() - begun
chance = random.Random(0)
killed = 0
for trial in range(trials):
    directory = base / str(trial)
    first = True
    while True:
        number = child(directory)
        if first and trial % 2:
            # Wait for a shard being written, and kill in the middle of it if we can.
            wanted, end = f"00000{trial % 4}", time.monotonic() + 20
            while not any(p.name.endswith(wanted) for p in directory.glob("shards/*")) and time.monotonic() < end:
                pass
        elif first:
            time.sleep(chance.uniform(0.2, 1.0) * seconds)
        else:
            time.sleep(chance.uniform(0.5, 1.8) * seconds)
        first = False
        os.kill(number, signal.SIGKILL)
        _, status = os.waitpid(number, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            break
        killed += 1
print(killed)
"""


def test_killed_at_random_points_it_ends_with_the_same_bytes(
    whole: Run, folder: Path, corpus: Path, tmp_path: Path
) -> None:
    trials = 8
    done = subprocess.run(
        [sys.executable, "-c", KILLER, str(folder), str(corpus), str(tmp_path), str(trials)],
        capture_output=True, text=True, check=False, env=os.environ | {"TOKENIZERS_PARALLELISM": "false"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= trials // 2, "hardly any kill came before the end"
    expected = contents(tmp_path / "warm")
    # The same as of the model that was in memory, but for the name it was given by.
    assert {name: data for name, data in expected.items() if name != "manifest.json"} == {
        name: data for name, data in contents(whole.directory).items() if name != "manifest.json"
    }
    for trial in range(trials):
        assert contents(tmp_path / str(trial)) == expected


def test_processes_give_the_same_bytes(whole: Run, folder: Path, corpus: Path, tmp_path: Path) -> None:
    start(str(folder), corpus, tmp_path / "two", workers=2)
    found, expected = contents(tmp_path / "two"), contents(whole.directory)
    found.pop("manifest.json"), expected.pop("manifest.json")
    assert found == expected


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"options": RunOptions(methods=("attention",), shard_size=3, batch_size=2)}, "options methods"),
        ({"options": RunOptions(methods=("attention", "tokens"), shard_size=3, batch_size=5)}, "options batch_size"),
        ({"limit": 9}, "corpus hash.*corpus texts .there: 10, now: 9"),
    ],
)
def test_another_run_is_refused(
    whole: Run, model: identiscope.Model, corpus: Path, change: dict[str, Any], said: str
) -> None:
    before = contents(whole.directory)
    with pytest.raises(InputError, match=f"begun otherwise: .*{said}"):
        start(model, corpus, whole.directory, **change)
    assert contents(whole.directory) == before


def test_another_model_or_version_is_refused(
    whole: Run, corpus: Path, tmp_path: Path, model: identiscope.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = identiscope.load(save_tiny(tmp_path / "other", intermediate_size=40))
    with pytest.raises(InputError, match="model weights"):
        start(other, corpus, whole.directory)
    monkeypatch.setattr("identiscope.corpus.manifest.__version__", "9.9")
    with pytest.raises(InputError, match=r"environment identiscope .there: [\d.]+, now: 9.9"):
        start(model, corpus, whole.directory)


@pytest.mark.parametrize("harm", ["byte", "short", "gone", "record", "foreign", "moved"])
def test_a_damaged_or_foreign_shard_is_named(
    whole: Run, model: identiscope.Model, corpus: Path, tmp_path: Path, harm: str
) -> None:
    directory = tmp_path / "run"
    shutil.copytree(whole.directory, directory)
    shard = directory / "shards" / "000002"
    file = shard / "attention.parquet"
    data = bytearray(file.read_bytes())
    if harm == "byte":
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    elif harm == "short":
        file.write_bytes(data[:-1])
    elif harm == "gone":
        file.unlink()
    elif harm == "record":
        record = json.loads((shard / "shard.json").read_text())
        (shard / "shard.json").write_text(json.dumps(record | {"tokens": 1}))
    elif harm == "foreign":
        options = RunOptions(methods=("attention", "tokens"), shard_size=3, batch_size=1)
        other = start(model, corpus, tmp_path / "other", options)
        shutil.rmtree(shard)
        shutil.copytree(other.directory / "shards" / "000002", shard)
    else:
        shutil.rmtree(shard)
        shutil.copytree(directory / "shards" / "000001", shard)
    with pytest.raises(InputError, match="shard 000002"):
        start(model, corpus, directory)
    with pytest.raises(InputError, match="shard 000002"):
        open_run(directory).verify()
    start(model, corpus, directory, repair=True)
    assert contents(directory) == contents(whole.directory)


def test_a_shard_too_many_and_a_changed_manifest_are_noticed(
    whole: Run, model: identiscope.Model, corpus: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "run"
    shutil.copytree(whole.directory, directory)
    shutil.copytree(directory / "shards" / "000001", directory / "shards" / "000009")
    with pytest.raises(InputError, match="000009 is no shard"):
        start(model, corpus, directory)
    manifest = json.loads((directory / "manifest.json").read_text())
    manifest["options"]["seed"] = 5
    (directory / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="was changed"):
        open_run(directory)
    (directory / "manifest.json").write_text("{")
    with pytest.raises(InputError, match="damaged"):
        open_run(directory)


def test_two_runs_into_one_directory(whole: Run, model: identiscope.Model, corpus: Path) -> None:
    with locked(whole.directory), pytest.raises(InputError, match=f"process {os.getpid()} on "):
        start(model, corpus, whole.directory)
    # What a killed process left behind is no lock.
    (whole.directory / ".lock").write_text("process 1 on nowhere\n")
    start(model, corpus, whole.directory)
    assert not (whole.directory / ".lock").exists()


@pytest.mark.parametrize(("code", "said"), [(errno.ENOSPC, "disk is full"), (errno.EACCES, "no permission")])
def test_what_the_system_refuses_loses_nothing(
    whole: Run, model: identiscope.Model, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int,
    said: str,
) -> None:  # fmt: skip
    directory, write = tmp_path / "run", shards._write

    def failing(path: Path, data: bytes) -> None:
        if "000002" in str(path) and path.name.startswith("tokens"):
            path.write_bytes(data[:10])
            raise OSError(code, os.strerror(code))
        write(path, data)

    monkeypatch.setattr(shards, "_write", failing)
    with pytest.raises(InputError, match=f"000002 could not be written: .*{said}.*goes on"):
        start(model, corpus, directory)
    assert sorted(path.name for path in (directory / "shards").iterdir()) == ["000000", "000001"]
    assert not (directory / ".lock").exists()
    monkeypatch.undo()
    start(model, corpus, directory)
    assert contents(directory) == contents(whole.directory)


def test_directories_that_cannot_be_used(
    model: identiscope.Model, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        start(model, corpus, tmp_path / "file")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("")
    with pytest.raises(InputError, match="thesis"):
        start(model, corpus, tmp_path / "other")

    def denied(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", denied)
    with pytest.raises(InputError, match="no permission"):
        start(model, corpus, tmp_path / "new")


def test_ctrl_c_leaves_a_run_that_goes_on(
    whole: Run, model: identiscope.Model, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(progress: RunProgress) -> None:
        if progress.texts >= 5:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match=r"3 of 10 texts .* goes on"):
        start(model, corpus, tmp_path / "run", progress=interrupted)
    assert not open_run(tmp_path / "run").complete
    with pytest.raises(InputError, match="not complete"):
        _ = open_run(tmp_path / "run").summary
    start(model, corpus, tmp_path / "run")
    assert contents(tmp_path / "run") == contents(whole.directory)


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """An empty cell, a text without tokens, one that is too long for the model (64), and two good ones."""
    path = tmp_path / "odd.csv"
    path.write_text(f'text\nw1 w2\n""\n\x07\n"{words(80)}"\nw3 w4 w5\n', encoding="utf-8")
    return path


@pytest.mark.parametrize("too_long", ["keep", "cut"])
def test_texts_without_statistics_keep_their_places(
    model: identiscope.Model, odd: Path, tmp_path: Path, too_long: Any
) -> None:
    options = RunOptions(methods=("attention", "attribution"), too_long=too_long, shard_size=2, probes=2)
    run = run_corpus(model, odd, tmp_path / "run", options=options)
    table = run.to_pandas("texts")
    long = "too long" if too_long == "keep" else "ok"
    assert table["status"].tolist() == ["ok", "empty", "no tokens", long, "ok"]
    assert table["tokens"].tolist() == [4, 0, 0, 82 if too_long == "keep" else 64, 5]
    assert table["cut"].tolist() == [0, 0, 0, 0 if too_long == "keep" else 18, 0]
    assert sorted(set(run.to_pandas()["text"])) == ([0, 4] if too_long == "keep" else [0, 3, 4])
    assert run.summary["cut_tokens"] == (0 if too_long == "keep" else 18)
    statuses = {"empty": 1, "no tokens": 1, "ok": 2 + (too_long == "cut")}
    assert run.summary["statuses"] == statuses | ({"too long": 1} if too_long == "keep" else {})
    assert len(run.query("tokens == 4")) == 8 and run.to_xarray("attribution").sizes["text"] == len(
        set(run.to_pandas()["text"])
    )


def test_too_long_is_refused_before_any_work(model: identiscope.Model, odd: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"1 of 5 texts .* first text 3 with 82 tokens.*--too-long cut"):
        run_corpus(model, odd, tmp_path / "run")
    assert not (tmp_path / "run" / "manifest.json").exists()
    # And the directory is as good as before for a second try.
    options = RunOptions(methods=("attention",), too_long="cut")
    assert run_corpus(model, odd, tmp_path / "run", options=options).complete


def test_max_tokens_cuts_at_less_than_the_model_takes(model: identiscope.Model, corpus: Path, tmp_path: Path) -> None:
    options = RunOptions(max_tokens=10, too_long="cut")
    run = start(model, corpus, tmp_path / "run", options)
    assert run.to_pandas("texts")["tokens"].max() == 10 and run.to_xarray()["rank"].max() <= 8
    text = next(Corpus(str(corpus), label_column="label").read()).given
    ids = model.tokenizer(text, truncation=True, max_length=10)["input_ids"]
    alone = identiscope.attention_identifiability(identiscope.trace(model, ids))
    np.testing.assert_allclose(run.to_xarray().correlation[0], alone.correlation, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"methods": ("attention", "colour")}, "colour"),
        ({"methods": ()}, "none"),
        ({"methods": ("tokens", "tokens")}, "each once"),
        ({"too_long": "shrink"}, "refuse, cut or keep"),
        ({"batch_size": 0}, "at least 1"),
        ({"max_tokens": 1}, "at least 3"),
        ({"max_tokens": 65}, "at most 64"),
        ({"layers": (2,)}, "layers 0 to 1"),
        ({"heads": (4,)}, "heads 0 to 3"),
    ],
)
def test_bad_options(model: identiscope.Model, corpus: Path, tmp_path: Path, options: dict, said: str) -> None:
    with pytest.raises(InputError, match=said):
        start(model, corpus, tmp_path / "run", RunOptions(**options))


def test_engines_that_cannot_be(model: identiscope.Model, corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="local or ray"):
        start(model, corpus, tmp_path / "run", engine="slurm")
    with pytest.raises(InputError, match="stays in one process"):
        start(model, corpus, tmp_path / "run", workers=2)


def test_all_methods_and_arrays(model: identiscope.Model, corpus: Path, tmp_path: Path) -> None:
    length = 13
    options = RunOptions(
        methods=("structure", "attribution", "tokens"), shard_size=4, hidden_states=True, subspace_length=length,
        probes=4, keep_texts=False,
    )  # fmt: skip
    run = start(model, corpus, tmp_path / "run", options)
    assert "part_1" not in run.to_pandas("texts")
    patterns = run.to_xarray("structure")
    text = list(Corpus(str(corpus), label_column="label").read())[2].given
    site = identiscope.trace(model, text).site(1)
    from identiscope.methods.head_pattern import head_pattern

    assert float(patterns["next"][2, 1, 3]) == pytest.approx(head_pattern(site.attention(3)).next, abs=1e-6)
    shares = run.to_xarray("attribution")
    assert float(shares["self_contribution"].min()) > 0 and float(shares["standard_error"].min()) > 0
    total = shares["self_contribution"] + sum(shares[name] for name in shares if str(name).startswith("from_distance"))
    np.testing.assert_allclose(total, 1, atol=1e-5)
    subspaces = run.subspaces()
    assert sorted(subspaces) == [0, 1] and subspaces[0].samples == 1 and subspaces[0].keys == length
    arrays, described = run_module_arrays(run)
    assert described["texts"] == [0, 1, 2, 3] and arrays["layer_02"].shape == (sum(described["lengths"]), 32)
    np.testing.assert_allclose(
        arrays["layer_02"][: described["lengths"][0]],
        identiscope.trace(model, next(Corpus(str(corpus), label_column="label").read()).given).hidden_states[2],
        atol=1e-4,
    )


def run_module_arrays(run: Run) -> Any:
    from identiscope.corpus.shard_files import read_arrays

    return read_arrays((run.directory / "shards" / "000000" / "hidden_states.safetensors").read_bytes())


def test_a_model_that_changes_under_a_worker_is_noticed(folder: Path, corpus: Path, whole: Run) -> None:
    from identiscope.corpus.engines.work import Work

    manifest = json.loads((whole.directory / "manifest.json").read_text())
    manifest["model"]["weights"] = "0"
    with pytest.raises(InputError, match="another model"):
        Work(manifest, str(folder), {}).worker()
    manifest["environment"]["torch"] = "1.0"
    with pytest.raises(InputError, match=r"torch .* \(the Run: 1.0\)"):
        Work(manifest, str(folder), {}).worker()


def test_memory_does_not_grow_with_the_corpus(model: identiscope.Model, tmp_path: Path) -> None:
    """What is held while shards are made is one shard of texts, whatever the corpus has."""
    held: list[int] = []

    class Watched(Corpus):
        def read(self) -> Any:
            for number in range(400):
                held.append(number)
                yield from (text for text in [next(iter(Corpus(self.source).read()))])

    path = tmp_path / "one.txt"
    path.write_text("w1 w2 w3\n")
    tasks = run_module._tasks(Watched(str(path)), CorpusFacts("", 400, "another"), 4, {})
    for _ in range(3):
        next(tasks)
    assert len(held) == 12
    with pytest.raises(InputError, match="changed while it was read"):
        list(tasks)
