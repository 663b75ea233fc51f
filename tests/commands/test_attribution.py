"""`identiscope attribution` on the command line."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from identiscope.commands.attribution import attribution
from identiscope.errors import InputError
from identiscope.results import load_result

TEXT = "The cat sat on the mat."


def run(*arguments: str) -> str:
    done = CliRunner().invoke(attribution, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_summary_is_readable_and_saved(tmp_path: Path) -> None:
    path = tmp_path / "cat.safetensors"
    shown = run("minilm", TEXT, "--probes", "4", "--out", str(path))
    assert "4 of 384 directions" in shown and "median" in shown and "cat" in shown and str(path) in shown
    kept = load_result(path)
    assert kept.attrs["probes"] == 4
    more = run("minilm", TEXT, "--probes", "12", "--resume", str(path))
    assert "12 of 384 directions" in more
    with pytest.raises(InputError, match="another text"):
        run("minilm", "The dog sat on the log.", "--probes", "12", "--resume", str(path))
    with pytest.raises(InputError, match="another input"):
        run("minilm", TEXT, "--probes", "12", "--input", "embedding_sum", "--resume", str(path))


def test_save_is_called_out_now(tmp_path: Path) -> None:
    old, new = tmp_path / "old.safetensors", tmp_path / "new.safetensors"
    run("minilm", TEXT, "--probes", "2", "--layers", "0", "--out", str(new))
    with pytest.warns(FutureWarning, match=r"--save is called --out now, and will be gone in 0\.2"):
        run("minilm", TEXT, "--probes", "2", "--layers", "0", "--save", str(old))
    assert load_result(old).identical(load_result(new))
    assert "--save" not in run("--help")


def test_json_has_the_numbers() -> None:
    report = json.loads(run("minilm", TEXT, "--layers", "0,5", "--seconds", "0.001", "--json"))
    assert report["layers"] == [0, 5] and report["inputs"][2] == "cat"
    column = [row[2] for row in report["contribution"][0]]
    assert sum(column) == pytest.approx(1, abs=1e-4)


def test_what_does_not_go_together_is_said() -> None:
    with pytest.raises(InputError, match="exact follows every direction"):
        run("minilm", TEXT, "--exact", "--probes", "4")
