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
    assert "138 tokens: mean weight on special" in words and "192 of 3312 rows were drawn and looked at." in words
    # Of rows that were not looked at nothing is said.
    assert "which is below 0.9 by more than 2 standard errors: an estimate, and no bound" in words
    assert "whatever" not in words
    assert "12 of 24" in words and "± (rows drawn)" in words
    saved = identiscope.load_result(out)
    trace = identiscope.trace(minilm, identiscope.PASSAGE)
    again = identiscope.statistic_interval(trace, on="special", layers=[0, 3], sample=8)
    assert (saved.lower.values == again.lower.values).all()
    assert f"it is about {float(saved.statistic.mean()):.3f} ± " in words


def test_all_rows_are_needed_for_a_bound() -> None:
    given = ("minilm", "--on", "special", "--layers", "0", "--heads", "1,2", "--threshold", "0.9")
    result = invoke(*given)
    assert "It is below 0.9 whatever the attention was" in " ".join(result.output.split())
    report = json.loads(invoke(*given, "--json").output)
    assert [report[f"rows_{name}"] for name in ("meant", "looked_at", "defined")] == [276, 276, 276]
    assert report["rows_said"] == "" and report["statistic_error"] == 0.0


def test_rows_where_a_quotient_is_not_defined_are_counted() -> None:
    given = ("minilm", "--on", "first", "--over", "special", "--from", "3:9", "--layers", "1", "--threshold", "0.01")
    words = " ".join(invoke(*given).output.split())
    report = json.loads(invoke(*given, "--json").output)
    meant, defined = report["rows_meant"], report["rows_defined"]
    assert meant == 72 and 0 < defined < meant
    assert f"In {meant - defined} of {meant} rows it is not defined" in words
    assert f"In the {defined} of {meant} rows where it is defined" in words and "whatever" not in words
    assert "rows defined" in words
    few = json.loads(invoke(*given, "--sample", "3", "--json").output)
    assert few["rows_meant"] == 72 and few["rows_looked_at"] == 36 and few["rows_defined"] < 36
    # Of some head only one row is known, so that nobody knows the error.
    assert few["statistic_error"] is None and "does not decide on which side" in few["verdict"]


def test_rows_of_which_there_are_none() -> None:
    result = invoke("smollm2", "The keeper waited.", "--on", "first", "--from", "special", "--layers", "0")
    assert result.exit_code == 0 and "No row was meant: special is no token of this text." in result.output


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
