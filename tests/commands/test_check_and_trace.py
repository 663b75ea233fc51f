"""The commands `check` and `trace`, run as a user runs them."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import families
from identiscope.cli import main, run


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(main, list(arguments))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    model: Any = families.FAMILIES["Llama"].model()
    model.save_pretrained(path)
    return path


def test_check_says_what_it_found() -> None:
    result = invoke("check", "minilm")
    assert result.exit_code == 0
    assert "verified to float32: 6 of 6 attention modules recorded" in result.output
    assert "encoder.layer.5.attention.self" in result.output


def test_check_reads_a_directory_without_a_tokenizer(folder: Path) -> None:
    result = invoke("check", str(folder), "--json")
    assert result.exit_code == 0
    report = json.loads(result.output)
    assert report["verified"] is True
    assert report["input"] == "24 random token ids"
    assert (report["recorded"], report["expected"]) == (2, 2)
    assert report["error"] < 1e-12
    assert {site["precision"] for site in report["sites"]} == {"float64"}
    assert [site["mask"] for site in report["sites"]] == ["causal", "causal"]


@pytest.mark.parametrize("as_json", [True, False])
def test_check_fails_with_an_exit_code(as_json: bool) -> None:
    result = invoke("check", "./nowhere", *(["--json"] if as_json else []))
    assert result.exit_code == 1
    assert "no directory ./nowhere" in result.output
    if as_json:
        assert json.loads(result.output)["verified"] is False


def test_check_counts_what_truncation_cut() -> None:
    result = invoke("check", "minilm", "--text", "word " * 600, "--truncate", "--json")
    assert json.loads(result.output)["cut"] == 90


def test_trace_shows_chosen_heads_and_does_not_take_tokens_for_markup() -> None:
    result = invoke("trace", "minilm", "The [bold] cat sat.", "--layers", "0,2", "--heads", "1-3")
    assert result.exit_code == 0
    assert "[CLS] the [ bold ] cat sat . [SEP]" in result.output
    assert result.output.count("encoder-self") == 6


def test_trace_as_json() -> None:
    report = json.loads(invoke("trace", "minilm", "The cat sat.", "--json").output)
    assert len(report["heads"]) == 72
    row = report["heads"][0]
    assert 0 <= row["to_special"] <= 1
    assert row["from"] in report["tokens"] and row["to"] in report["tokens"]


def test_numbers_that_are_none() -> None:
    result = invoke("trace", "minilm", "x", "--layers", "first")
    assert result.exit_code == 2
    assert "is not a list of numbers" in result.output


def test_an_error_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["identiscope", "trace", "minilm", "  "])
    with pytest.raises(SystemExit) as stop:
        run()
    assert stop.value.code == 2
    assert capsys.readouterr().err.startswith("error: the text is empty")


def test_a_warning_is_its_message_alone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # put back what the console script replaces
    monkeypatch.setattr("identiscope.cli.main", lambda: warnings.warn("the rank is uncertain", stacklevel=1))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        run()
    assert capsys.readouterr().err == "warning: the rank is uncertain\n"
