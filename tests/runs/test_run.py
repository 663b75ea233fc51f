"""Runs over a corpus: order, statuses, resuming after a kill at any point, refusals, damage, and bad surroundings."""

import errno
import json
import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import identiscope
from heard import Heard
from identiscope.corpus.readers import Corpus
from identiscope.errors import InputError
from identiscope.papers.brunner2020.attribution_figures import self_contributions
from identiscope.runs.compute import run as run_module
from identiscope.runs.compute.corpus_copy import CorpusCopy
from identiscope.runs.compute.methods import RUN_METHODS
from identiscope.runs.compute.options import RunOptions
from identiscope.runs.compute.run import Interrupted, RunProgress, run_corpus
from identiscope.runs.format import shards
from identiscope.runs.format.lock import locked
from identiscope.runs.format.opened_run import Run, open_run
from identiscope.runs.format.text_hash import text_hash
from tiny_text_model import contents, save_tiny, words

OPTIONS = RunOptions(methods=("attention_identifiability", "tokens"), shard_size=3, batch_size=2)


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
        (lambda: whole.to_pandas("structure"), "there are attention_identifiability, token_identifiability, texts"),
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
    seen = Heard()
    start(model, corpus, whole.directory, progress=seen)
    assert contents(whole.directory) == before and not seen.steps and not seen.states


def test_progress_counts_texts_and_tokens(model: identiscope.Model, corpus: Path, tmp_path: Path) -> None:
    heard = Heard()
    run = start(model, corpus, tmp_path / "run", progress=heard)
    seen: list[RunProgress] = heard.states
    assert heard.steps == [("", state.before + state.texts, 10) for state in seen]
    assert seen[-1].texts == seen[-1].total == 10 and seen[-1].tokens == run.summary["tokens"]
    assert seen[0].seconds_left is not None and seen[-1].seconds_left == 0 and seen[-1].tokens_per_second > 0
    shutil.rmtree(run.directory / "shards" / "000001")
    start(model, corpus, tmp_path / "run", progress=heard)
    assert (seen[-1].before, seen[-1].texts) == (7, 3)


KILLER = """
import os, random, signal, sys, time
from pathlib import Path
import torch
torch.set_num_threads(1)
from identiscope.runs.compute.run import run_corpus
from identiscope.runs.compute.options import RunOptions

model, corpus, base, trials = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
options = RunOptions(methods=("attention_identifiability", "tokens"), shard_size=3, batch_size=2)

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
        (
            {"options": RunOptions(methods=("attention_identifiability",), shard_size=3, batch_size=2)},
            "options methods",
        ),
        (
            {"options": RunOptions(methods=("attention_identifiability", "tokens"), shard_size=3, batch_size=5)},
            "options batch_size",
        ),
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
    monkeypatch.setattr("identiscope.runs.compute.identity.__version__", "9.9")
    with pytest.raises(InputError, match=r"environment identiscope .there: [\d.]+, now: 9.9"):
        start(model, corpus, whole.directory)


@pytest.mark.parametrize("harm", ["byte", "short", "gone", "record", "foreign", "moved"])
def test_a_damaged_or_foreign_shard_is_named(
    whole: Run, model: identiscope.Model, corpus: Path, tmp_path: Path, harm: str
) -> None:
    directory = tmp_path / "run"
    shutil.copytree(whole.directory, directory)
    shard = directory / "shards" / "000002"
    file = shard / "attention_identifiability.parquet"
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
        options = RunOptions(methods=("attention_identifiability", "tokens"), shard_size=3, batch_size=1)
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
        if "000002" in str(path) and path.name.startswith("token_id"):
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
    for name, said in (("x" * 300, "longer than"), ("zero\0", "no name of a file"), ("\ud800", "no name of a file")):
        with pytest.raises(InputError, match=said):
            start(model, corpus, tmp_path / name)

    def denied(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", denied)
    with pytest.raises(InputError, match="no permission"):
        start(model, corpus, tmp_path / "new")


def test_ctrl_c_leaves_a_run_that_goes_on(
    whole: Run, model: identiscope.Model, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(done: int, total: int) -> None:
        if done >= 5:
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
    options = RunOptions(
        methods=("attention_identifiability", "attribution"), too_long=too_long, shard_size=2, probes=2
    )
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
    options = RunOptions(methods=("attention_identifiability",), too_long="cut")
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
        ({"methods": ("attention_identifiability", "colour")}, "colour"),
        ({"methods": ()}, "none"),
        ({"methods": ("tokens", "tokens")}, "each once"),
        ({"too_long": "shrink"}, "expected '?refuse'?, '?cut'? or '?keep'?"),
        ({"batch_size": 0}, "at least 1"),
        ({"max_tokens": 1}, "at least 3"),
        ({"max_tokens": 65}, "at most 64"),
        ({"threads": 2.0}, "threads=2.0 .* whole number"),
        ({"layers": (2,)}, "layers 0 to 1"),
        ({"heads": (4,)}, "heads 0 to 3"),
    ],
)
def test_bad_options(
    model: identiscope.Model, corpus: Path, tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        start(model, corpus, tmp_path / "run", RunOptions(**options))


@pytest.mark.parametrize("limit", [-1, 0, 2.5, float("nan"), True, "3"])
def test_limits_that_cannot_be(model: identiscope.Model, corpus: Path, tmp_path: Path, limit: Any) -> None:
    with pytest.raises(InputError, match=r"limit=|no texts"):
        start(model, corpus, tmp_path / "run", limit=limit)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("workers", [0, -1, 1.5, True, 10**9, float("inf")])
def test_workers_that_cannot_be(model: identiscope.Model, corpus: Path, tmp_path: Path, workers: Any) -> None:
    with pytest.raises(InputError, match="workers="):
        start(model, corpus, tmp_path / "run", workers=workers)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
@pytest.mark.parametrize("size", ["8k", "16k", "64k"])
def test_a_full_disk_loses_nothing(
    whole: Run, model: identiscope.Model, corpus: Path, tmp_path: Path, size: str
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(disk)], capture_output=True
    ).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        with pytest.raises(InputError, match="disk is full"):
            start(model, corpus, disk / "run")
        if (disk / "run" / "manifest.json").exists():
            problems = open_run(disk / "run").verify if open_run(disk / "run").complete else None
            assert problems is None and not list((disk / "run").glob("**/.part-*"))
        subprocess.run(["mount", "-o", "remount,size=10m", str(disk)], check=True)
        assert contents(start(model, corpus, disk / "run").directory) == contents(whole.directory)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_loading_that_is_no_json_is_there_in_words(folder: Path, corpus: Path, tmp_path: Path) -> None:
    import torch

    run = start(str(folder), corpus, tmp_path / "run", loading={"dtype": torch.float64})
    assert (
        run.manifest["names"]["loading"] == {"dtype": "torch.float64"} and run.manifest["model"]["dtype"] == "float64"
    )
    run.verify()


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
    from identiscope.methods.heads.head_pattern import map_pattern

    assert float(patterns["next"][2, 1, 3]) == pytest.approx(map_pattern(site.attention(3)).next, abs=1e-6)
    shares = run.to_xarray("attribution")
    assert float(shares["self_contribution"].min()) > 0 and float(shares["standard_error"].min()) > 0
    total = shares["self_contribution"] + sum(shares[name] for name in shares if str(name).startswith("from_distance"))
    np.testing.assert_allclose(total, 1, atol=1e-5)
    seen = identiscope.hidden_token_attribution(
        identiscope.trace(model, text), mode="estimate", probes=4, seed=options.seed
    )
    spoken = {column.name: column.meaning for column in RUN_METHODS["hidden_token_attribution"].columns}
    special = seen["output_special"].values
    for name, near, far in (("1", 1, 1), ("2_to_5", 2, 5), ("6_to_10", 6, 10), ("11_or_more", 11, 99)):
        assert "together" in spoken[f"from_distance_{name}"] and "mean" not in spoken[f"from_distance_{name}"]
        for layer in (0, 1):
            sums, ones = together(seen["contribution"].values[layer], special, near, far)
            assert float(shares[f"from_distance_{name}"][2, layer]) == pytest.approx(sums, abs=1e-5)
            assert float(shares["from_special"][2, layer]) == pytest.approx(ones, abs=1e-5)
    own = self_contributions(seen)
    for name in ("not_largest", "not_largest_noise"):
        np.testing.assert_allclose(shares[name][2], own[name], atol=1e-5)
    subspaces = run.subspaces()
    assert sorted(subspaces) == [0, 1] and subspaces[0].samples == 1 and subspaces[0].keys == length
    arrays, described = run_module_arrays(run)
    assert described["texts"] == [0, 1, 2, 3] and arrays["layer_01"].shape == (sum(described["lengths"]), 32)
    assert sorted(arrays) == ["input", "layer_00", "layer_01"], "by the block that wrote them"
    np.testing.assert_allclose(
        arrays["layer_01"][: described["lengths"][0]],
        identiscope.trace(model, next(Corpus(str(corpus), label_column="label").read()).given).hidden_states[2],
        atol=1e-4,
    )


def together(contribution: np.ndarray, special: np.ndarray, near: int, far: int) -> tuple[float, float]:
    """What all tokens so far away, and all special ones, contribute to a token: sums, averaged over the tokens."""
    away, ones = [], []
    for j in range(len(contribution)):
        away.append(sum(contribution[i, j] for i in range(len(contribution)) if near <= abs(i - j) <= far))
        ones.append(sum(contribution[i, j] for i in range(len(contribution)) if special[i]))
    return float(np.mean(away)), float(np.mean(ones))


def run_module_arrays(run: Run) -> Any:
    from identiscope.runs.format.shard_files import read_arrays

    return read_arrays((run.directory / "shards" / "000000" / "hidden_states.safetensors").read_bytes())


def test_a_model_that_changes_under_a_worker_is_noticed(folder: Path, corpus: Path, whole: Run) -> None:
    from identiscope.runs.engines.work import Work

    manifest = json.loads((whole.directory / "manifest.json").read_text())
    manifest["model"]["weights"] = "0"
    with pytest.raises(InputError, match="another model"):
        Work(manifest, str(folder), {}).worker()
    manifest["environment"]["torch"] = "1.0"
    with pytest.raises(InputError, match=r"torch .* \(the Run: 1.0\)"):
        Work(manifest, str(folder), {}).worker()


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held while a corpus is read, and while its shards are made, is one shard of texts, whatever it has."""
    monkeypatch.setattr("identiscope.runs.compute.corpus_copy.IN_MEMORY", 1000)
    path = tmp_path / "many.txt"
    path.write_text("\n".join(f"w{number}" for number in range(400)))
    with closing(CorpusCopy(Corpus(str(path)), 4)) as copy:
        facts = copy.facts
        assert (facts.texts, len(facts.shards)) == (400, 100) and copy.kept.file.name is not None, "it is on the disk"
        path.unlink()
        found = list(run_module._tasks(copy, 100, 4, {1: {}}))
    assert [task.number for task in found] == [0, *range(2, 100)] and found[-1].first == 396
    assert [text.parts for text in found[1].texts] == [("w8",), ("w9",), ("w10",), ("w11",)]
    assert all(text_hash(task.texts).hexdigest() == facts.shards[task.number] for task in found)
