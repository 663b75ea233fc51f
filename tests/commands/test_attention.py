"""The command `attention`, run as a user runs it."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from matplotlib.figure import Figure

import identiscope
from identiscope.asking import ask as asking
from identiscope.cli import main
from identiscope.commands.attention import _enough
from identiscope.errors import InputError
from identiscope.results import load_result
from identiscope.views.page.results import result_page
from views.shape_check import plain

TEXT = (
    "One, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve, thirteen, and so on it went till noon."
)


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["attention", *arguments])


def test_a_verdict_first_then_a_table(tmp_path: Path) -> None:
    out = tmp_path / "result.safetensors"
    result = invoke("minilm", TEXT, "--out", str(out))
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    said = " ".join(lines[2 : lines.index("", 2)])
    # Three dimensions too many in 36 tokens leave no room worth mentioning.
    assert said.startswith("You can take it as it is: of 24 larger attention weights looked into, all are certain.")
    assert "Even the loosest, 0." in said and "could vary by" in said and "In 72 of 72 heads" in " ".join(said.split())
    assert "dim LN([T,1])" in result.output
    saved = load_result(out)
    assert saved.attrs["method"] == "attention_identifiability"
    assert saved.sizes["head"] == 12


def test_a_short_text_is_identifiable() -> None:
    assert "Good news: every attention weight here is real." in invoke("minilm", "The cat sat.").output


def test_one_layer_as_json() -> None:
    report = json.loads(invoke("minilm", TEXT, "--layer", "2", "--json").output)
    assert [line["layer"] for line in report["heads"]] == [2] * 12
    assert all(line["simplex_null_dimension"] == 3 for line in report["heads"])
    # Three on what weights may be, one on the commas, two on why.
    assert len(report["verdict"]) == 6


@pytest.mark.parametrize("method", ["raw", "effective", "canonical"])
def test_one_head(method: str) -> None:
    chosen = ("--layer", "2", "--head", "3")
    weights = json.loads(invoke("minilm", TEXT, *chosen, "--method", method, "--top", "4", "--json").output)["weights"]
    assert len(weights) == 4
    strengths = [abs(cell[method]) for cell in weights]
    assert strengths == sorted(strengths, reverse=True)
    row = json.loads(invoke("minilm", TEXT, *chosen, "--row", str(weights[0]["query"]), "--json").output)["weights"]
    assert abs(weights[0][method]) == pytest.approx(max(abs(cell[method]) for cell in row))
    for cell in weights:
        assert cell["lower"] - 1e-9 <= cell["raw"] <= cell["upper"] + 1e-9
        assert cell["raw"] == pytest.approx(cell["effective"] + cell["null"])


def test_every_weight_of_a_head(tmp_path: Path) -> None:
    out = tmp_path / "head.safetensors"
    text = "one two three four five six seven eight nine ten " * 4
    result = invoke("minilm", text, "--layer", "0", "--head", "3", "--all", "--out", str(out))
    assert result.exit_code == 0, result.output
    assert "all 1764 weights, the strongest by raw attention first" in result.output
    saved = load_result(out)
    assert saved.sizes["cell"] == 42 * 42
    assert (saved.raw.values[:-1] >= saved.raw.values[1:]).all()


@pytest.mark.parametrize("arguments", [("--top", "4"), ("--row", "7")])
def test_what_is_saved_of_a_head_can_be_drawn_and_shown(arguments: tuple[str, str], tmp_path: Path) -> None:
    out = tmp_path / "head.safetensors"
    result = invoke("minilm", TEXT, "--layer", "2", "--head", "3", *arguments, "--out", str(out))
    assert result.exit_code == 0, result.output
    saved = identiscope.load_result(out)
    assert saved.identiscope.plot(Figure().add_subplot()).get_ylabel() == "attention"
    assert saved.identiscope.to_html(tmp_path / "head.html").stat().st_size > 0
    columns = plain(result_page(saved))["tables"][0]["columns"]
    assert {"weight", "lower", "upper", "raw", "effective", "null", "effective_simplex_span"} < set(columns)
    assert (abs(saved.weight - saved.raw) < 1e-14).all()
    trace = identiscope.trace("minilm", TEXT)
    expected = identiscope.attention_intervals(
        trace, 2, 3, cells=list(zip(saved["query"].values, saved["key"].values, strict=True))
    )
    for name in expected.data_vars:
        assert (abs(saved[name] - expected[name]) < 1e-9).all()


def test_one_row(tmp_path: Path) -> None:
    out = tmp_path / "row.safetensors"
    result = invoke(
        "minilm", TEXT, "--layer", "2", "--head", "3", "--row", "7", "--without-value-bias", "--out", str(out)
    )
    assert result.exit_code == 0, result.output
    assert "Layer 2, head 3: row 7" in result.output
    saved = load_result(out)
    assert saved.sizes["cell"] == 36
    assert float(saved.raw.sum()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--head", "1"), "--head needs --layer"),
        (("--layer", "1", "--row", "1"), "--row needs --head"),
    ],
)
def test_usage(arguments: tuple[str, ...], message: str) -> None:
    result = invoke("minilm", TEXT, *arguments)
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--layer", "9"), "layers 0 to 5"),
        (("--layer", "1", "--head", "12"), "head 12 of layer 1 was not captured"),
        (("--layer", "1", "--head", "1", "--row", "99"), "positions 0 to 35"),
    ],
)
def test_out_of_range_is_refused_before_the_work(
    arguments: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*_: Any, **__: Any) -> None:
        raise AssertionError("the work began")

    monkeypatch.setattr(asking, "ask", work)
    result = invoke("minilm", TEXT, *arguments)
    assert isinstance(result.exception, InputError)
    assert message in str(result.exception)


def test_few_keys_in_words_and_json() -> None:
    chosen = ("--layer", "5", "--head", "7", "--few")
    long = "The cat sat on the mat, and the dog sat on the log. " * 4
    result = invoke("minilm", long, *chosen)
    assert result.exit_code == 0, result.output
    words = " ".join(result.output.split())
    assert "never more than 33 are needed" in words and "tokens are enough for all rows of this text: [CLS]" in words
    assert "a weight w on a token that was left out may change the head's output by up to" in words
    report = json.loads(invoke("minilm", long, *chosen, "--json").output)
    assert report["most"] == 33 and report["mean_count"] <= 33 and report["output_error_relative"] < 1e-9
    assert f"{len(report['kept'])} tokens are enough" in words
    # Of later queries nothing is left to say where every token is needed.
    whole = " ".join(invoke("minilm", TEXT, "--layer", "2", "--head", "3", "--few").output.split())
    assert "No token can be left out for all rows of this text: some row needs each of the" in whole
    assert "left out may change" not in whole and "0·w" not in whole and "certified for these rows" in whole
    # What brings nothing new needs no bound, which would be zero.
    nothing = _enough(report | {"largest_dropping_bound": 3e-17})
    assert "brings nothing that those kept cannot" in nothing and "·w" not in nothing
    refused = invoke("minilm", TEXT, "--few")
    assert refused.exit_code != 0 and "--few is of a whole head" in refused.output
