"""The command `statistic`, run as a user runs it."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import identiscope
from identiscope.cli import main


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["statistic", *arguments])


def test_what_it_is_and_what_it_could_be(tmp_path: Path, minilm: identiscope.Model) -> None:
    out = tmp_path / "statistic.safetensors"
    result = invoke(
        "minilm", "--on", "special", "--layers", "0,3", "--sample", "8", "--threshold", "0.9", "-o", str(out)
    )
    assert result.exit_code == 0, result.output
    words = " ".join(result.output.split())
    assert "138 tokens: mean weight on special" in words and "It is below 0.9 whatever the attention was" in words
    assert "12 of 24" in words and "± (rows drawn)" in words
    saved = identiscope.load_result(out)
    trace = identiscope.trace(minilm, identiscope.PASSAGE)
    again = identiscope.statistic_interval(trace, on="special", layers=[0, 3], sample=8)
    assert (saved.lower.values == again.lower.values).all()
    assert f"it is {float(saved.statistic.mean()):.3f}." in words


def test_as_json_with_words_of_the_text() -> None:
    text = "The keeper of the lighthouse waited for the boat."
    report = json.loads(invoke("minilm", text, "--on", "keeper", "--minus", "boat", "--from", "last", "--json").output)
    # Twelve tokens: nothing can move.
    assert report["lower"] == pytest.approx(report["statistic"]) == pytest.approx(report["upper"])
    assert report["threshold"] is None and report["verdict"] is None and len(report["heads"]) == 72


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--on", "zebra"], "'zebra' was given, which is no word of this text"),
        (["--on", "500:600"], "the span '500:600' was given; the text has positions 0 to 137"),
        (["--threshold", "nan"], "'nan' is not a finite number"),
        (["--threshold", "much"], "'much' is not a valid float"),
        (["--sample", "1"], "1 is not in the range x>=2"),
        (["--on", ""], "'' was given, which is no word"),
    ],
)
def test_what_cannot_be_asked(arguments: list[str], words: str) -> None:
    result = invoke("minilm", *arguments)
    assert result.exit_code != 0
    assert words in (result.output + str(result.exception))


def test_a_quotient_that_is_nowhere_defined_says_so() -> None:
    text = " ".join(["one two three four five six seven eight nine ten"] * 4)
    result = invoke("minilm", text, "--on", "one", "--over", "one", "--layers", "0", "--heads", "0", "--from", "3")
    assert result.exit_code == 0, result.output
    assert "1.000" in result.output or "Not defined" in result.output


def test_one_token() -> None:
    result = invoke("smollm2", "Yes", "--on", "first", "--layers", "0", "--json")
    report = json.loads(result.stdout)
    assert report["statistic"] == report["lower"] == report["upper"] == 1.0
