"""`identiscope run`: what it prints, what it leaves, and how it ends."""

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from identiscope.commands.run import METHODS, run
from identiscope.corpus.opened_run import open_run
from identiscope.corpus.run_options import METHODS as KNOWN
from identiscope.errors import InputError
from tiny_text_model import save_tiny, words


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    base = tmp_path_factory.mktemp("given")
    corpus = base / "texts.txt"
    corpus.write_text("\n".join(words(3 + number, number) for number in range(5)), encoding="utf-8")
    return str(save_tiny(base / "model")), str(corpus)


def invoke(*arguments: Any) -> Any:
    return CliRunner().invoke(run, [str(argument) for argument in arguments], catch_exceptions=False)


def test_a_run_ends_in_words_or_in_json(given: tuple[str, str], tmp_path: Path) -> None:
    done = invoke(*given, "-o", tmp_path / "run", "--methods", "attention, tokens", "--shard-size", 2)
    assert done.exit_code == 0 and "5 of 5 texts" in done.output and "identified_cosine" in done.output
    assert open_run(tmp_path / "run").methods == ("attention", "tokens")
    done = invoke(*given, "-o", tmp_path / "again", "--json", "--layers", "1", "--heads", "0-1", "--no-texts")
    lines = [json.loads(line) for line in done.output.splitlines()]
    assert [line["event"] for line in lines] == ["progress", "done"] and lines[0]["texts"] == 5
    found = open_run(tmp_path / "again")
    assert found.to_xarray().sizes == {"text": 5, "layer": 1, "head": 2}


def test_ctrl_c_says_how_to_go_on(given: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("identiscope.corpus.engines.local.compute_shard", interrupted)
    done = invoke(*given, "-o", tmp_path / "run")
    assert done.exit_code == 130 and "0 of 5 texts" in done.output and "the same command goes on" in done.output


def test_errors_are_ours(given: tuple[str, str], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="colour"):
        invoke(*given, "-o", tmp_path / "run", "--methods", "colour")
    with pytest.raises(InputError, match="no file"):
        invoke(given[0], tmp_path / "none.txt", "-o", tmp_path / "run")


def test_the_methods_of_the_help_are_those_there_are() -> None:
    assert METHODS == KNOWN and isinstance(run, click.Command)
