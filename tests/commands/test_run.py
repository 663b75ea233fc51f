"""`identiscope run`: what it prints, what it leaves, and how it ends."""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from identiscope.commands.run import run
from identiscope.errors import IdentiscopeError, InputError
from identiscope.methods.registry import in_runs
from identiscope.runs.compute.methods import EXPLAIN
from identiscope.runs.format.opened_run import open_run
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
    done = invoke(*given, "-o", tmp_path / "run", "--methods", "attention_identifiability, tokens", "--shard-size", 2)
    assert done.exit_code == 0 and "5 of 5 texts" in done.output and "identified_cosine" in done.output
    assert open_run(tmp_path / "run").methods == ("attention_identifiability", "token_identifiability")
    done = invoke(*given, "-o", tmp_path / "again", "--json", "--layers", "1", "--heads", "0-1", "--no-texts")
    lines = [json.loads(line) for line in done.output.splitlines()]
    assert [line["event"] for line in lines] == ["progress", "done"] and lines[0]["texts"] == 5
    found = open_run(tmp_path / "again")
    assert found.to_xarray().sizes == {"text": 5, "layer": 1, "head": 2}


def test_ctrl_c_says_how_to_go_on(given: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("identiscope.runs.engines.local.compute_shard", interrupted)
    done = invoke(*given, "-o", tmp_path / "run")
    assert done.exit_code == 130 and "0 of 5 texts" in done.output and "the same command goes on" in done.output


def test_errors_are_ours(given: tuple[str, str], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="colour"):
        invoke(*given, "-o", tmp_path / "run", "--methods", "colour")
    with pytest.raises(InputError, match="no file"):
        invoke(given[0], tmp_path / "none.txt", "-o", tmp_path / "run")


def test_a_run_is_verified_in_one_command(given: tuple[str, str], tmp_path: Path) -> None:
    directory = tmp_path / "run"
    assert invoke(*given, "-o", directory, "--shard-size", 2).exit_code == 0
    done = invoke("--verify", directory)
    assert done.exit_code == 0 and done.output == f"{directory}: complete, 3 shards; every byte is as it was written\n"
    (directory / "summary.json").write_text("{}")
    (directory / "shards" / "000001" / "texts.parquet").unlink()
    done = invoke("--verify", directory)
    assert done.exit_code == 1 and done.output.count("wrong:") == 2 and "2 wrong" in done.output
    assert "summary.json" in done.output and "000001/texts.parquet is missing" in done.output
    found = json.loads(invoke("--verify", directory, "--json").output)
    assert found["event"] == "verified" and len(found["problems"]) == 2 and found["notes"] == []
    with pytest.raises(InputError, match="no directory"):
        invoke("--verify", tmp_path / "none")
    done = invoke(*given, "-o", directory, "--shard-size", 2, "--repair")
    assert done.exit_code == 0 and f"{directory}.aside" in done.output
    assert invoke("--verify", directory).exit_code == 0


@pytest.mark.parametrize("arguments", [[], ["minilm"], ["minilm", "pairs"], ["-o", "run"]])
def test_without_a_model_a_corpus_and_a_place_it_says_what_is_needed(arguments: list[str]) -> None:
    done = invoke(*arguments)
    assert done.exit_code == 2 and "MODEL, CORPUS and -o DIR are needed, or --verify DIR" in done.output


def test_what_it_will_cost_is_said_beforehand(given: tuple[str, str], tmp_path: Path) -> None:
    corpus = tmp_path / "texts.txt"
    corpus.write_text("\n".join(words(3 + number % 5, number) for number in range(12)), encoding="utf-8")
    options = ("--methods", "tokens,attribution,attention_identifiability", "--probes", 2)
    done = invoke(given[0], corpus, "-o", tmp_path / "run", *options)
    first = done.output.splitlines()[0]
    assert re.fullmatch(
        r"a batch of 12 texts takes: forward pass [<\d. ]+ s, token_identifiability [<\d. ]+ s,"
        r" hidden_token_attribution [<\d. ]+ s, attention_identifiability [<\d. ]+ s; about [<\d. ]+ s in all", first
    ), first  # fmt: skip
    lines = [
        json.loads(line)
        for line in invoke(given[0], corpus, "-o", tmp_path / "json", *options, "--json").output.splitlines()
    ]
    # With attribution, which takes texts one after the other, each is told of.
    assert [line["texts"] for line in lines if line["event"] == "progress"] == list(range(13))
    for line in lines[:-1]:
        assert set(line["costs"]["batch_seconds"]) == {
            "forward pass", "token_identifiability", "hidden_token_attribution", "attention_identifiability",
        }  # fmt: skip
        assert line["costs"]["batch_texts"] == 12 and line["seconds_left"] is not None
    assert lines[0]["costs"]["total_seconds"] == lines[0]["seconds_left"] > 0


def test_names_in_bytes_that_are_no_utf8(given: tuple[str, str], tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    corpus = folder / "texts.txt"
    shutil.copyfile(given[1], corpus)
    model = os.path.relpath(shutil.copytree(given[0], folder / "model"))
    done = invoke(given[0], corpus, "-o", folder / "run")
    assert done.exit_code == 0 and r"caf\udce9" in done.output and "5 of 5 texts" in done.output
    assert invoke("--verify", folder / "run").exit_code == 0
    repr(open_run(folder / "run")).encode("utf-8")
    with pytest.raises(IdentiscopeError, match="caf"):  # safetensors takes no such name
        invoke(model, corpus, "-o", tmp_path / "other")


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("file", "is a file; give a directory"),
        ("file/run", "a file and no directory"),
        ("x" * 300, "longer than the file system takes"),
    ],
)
def test_places_where_no_run_can_be(given: tuple[str, str], tmp_path: Path, place: str, said: str) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match=said):
        invoke(*given, "-o", f"{tmp_path}/{place}")
    assert [path.name for path in tmp_path.iterdir()] == ["file"] and (tmp_path / "file").read_text() == "mine"


def test_a_corpus_that_cannot_be(given: tuple[str, str], tmp_path: Path) -> None:
    for name, said in (
        ("x" * 300 + ".txt", "name too long"),
        (f"{tmp_path}/none.txt", "no file"),
        (f"{tmp_path}/\0", "no file"),
    ):
        with pytest.raises(InputError, match=f"(?i){said}"):
            invoke(given[0], name, "-o", tmp_path / "run")
    done = invoke(*given, "-o", tmp_path / "run", "--limit", -1)
    assert done.exit_code == 2 and "--limit" in done.output
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "option", ["--batch-size", "--shard-size", "--threads", "--probes", "--max-tokens", "--workers", "--seed"]
)
@pytest.mark.parametrize("value", ["0", "-3", "100000000000000000000"])
def test_numbers_that_cannot_be(given: tuple[str, str], tmp_path: Path, option: str, value: str) -> None:
    if (option, value) != ("--seed", "0"):
        done = invoke(*given, "-o", tmp_path / "run", option, value)
        assert done.exit_code == 2 and option in done.output and value in done.output
    assert not (tmp_path / "run").exists()


def test_a_run_says_what_is_too_little(given: tuple[str, str], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="max_tokens=2"):
        invoke(*given, "-o", tmp_path / "run", "--max-tokens", "2")


def test_the_methods_of_the_help_are_those_there_are() -> None:
    (methods,) = (option for option in run.params if option.name == "methods")
    assert isinstance(methods, click.Option) and methods.help is not None
    assert all(name in methods.help for name in (*in_runs(), EXPLAIN))
