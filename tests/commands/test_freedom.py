"""`identiscope freedom`: a sentence, the ladder by layer, and the weights that bear a load."""

import csv
import json
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner
from matplotlib.figure import Figure

import contract
import identiscope
from identiscope.commands.run import _methods, run
from identiscope.views.page.sections import section_of
from tiny_text_model import save_tiny, words


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("freedom") / "model"))


def command(*arguments: str) -> Any:
    from identiscope.cli import main

    return CliRunner().invoke(main, ["freedom", *arguments], catch_exceptions=False)


def test_it_says_a_sentence_and_shows_the_ladder(model: str, tmp_path: Path) -> None:
    out, page = tmp_path / "ladder.safetensors", tmp_path / "page.html"
    done = command(
        model, words(12), "--outcome", "similarity:w1 w2", "--tolerance", "0.001", "--rows", "3", "--out", str(out),
        "--html", str(page),
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert done.output.startswith("With the same head outputs") and "How far can attention move?" in done.output
    # All directions of this model's heads are apart: no rung between them, and no column.
    assert "between heads" not in done.output and "merged" in done.output
    result = identiscope.load_result(out)
    assert result.attrs["method"] == "freedom_ladder" and result["epsilon"].values.tolist() == [0.01, 0.05]
    assert (result["merged_exact_width"] <= result["merged_epsilon_width"].isel(epsilon=0) + 1e-6).all()
    assert (result["merged_epsilon_width"].diff("epsilon") >= -1e-6).all()
    assert (result["moved_within"] <= 0.001).all()
    assert "How far can attention move" not in page.read_text(encoding="utf-8") and page.stat().st_size > 1000
    assert section_of(result).kind == "plain" and identiscope.plot(result, Figure().add_subplot()).has_data()


def test_a_table_has_every_rung(model: str, tmp_path: Path) -> None:
    out = tmp_path / "ladder.csv"
    command(model, words(9), "--outcome", "similarity:w3", "--rows", "2", "--epsilon", "0.02", "--out", str(out))
    with out.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["layer"] for row in rows] == ["0", "1"]
    for name in ("merged_exact_width", "merged_epsilon_width_0.02", "merged_reach_within_0.05", "load"):
        assert all(float(row[name]) >= 0 for row in rows), name


def test_json_has_rows_by_layer(model: str) -> None:
    done = command(model, words(9), "--outcome", "similarity:w3", "--layers", "1", "--rows", "2", "--json")
    said = json.loads(done.output)
    assert said["layers"][0]["layer"] == "1" and said["sentence"] and said["passes"] > 10
    assert {"exact", "merged", "between heads", "load", "control"} <= set(said["layers"][0])
    assert "together" not in said["sentence"] and "Random maps as far away keep it so in" in said["sentence"]


def test_without_an_outcome_the_other_rungs_are_shown(model: str) -> None:
    done = command(model, words(9), "--rows", "2")
    assert done.exit_code == 0 and "What a prediction needs is not known" in done.output


@pytest.mark.parametrize(
    ("options", "words_"),
    [(("--epsilon", "-1"), "epsilon"), (("--epsilon", "nan"), "epsilon"), (("--tolerance", "-0.1"), "tolerance")],
)
def test_bad_numbers_are_refused(model: str, options: tuple[str, ...], words_: str) -> None:
    done = command(model, words(9), *options)
    assert done.exit_code == 2 and words_ in done.output


def test_an_outcome_that_the_model_does_not_have_is_refused(model: str) -> None:
    with pytest.raises(identiscope.InputError, match="no usual outcome"):
        command(model, words(9), "--outcome", "Paris")


def test_the_ladder_of_a_causal_model_names_the_weight_that_bears_most() -> None:
    traced = contract.trace(contract.CASES["causal, grouped queries"])
    ladder = identiscope.freedom_ladder(traced, tolerance=0.0005, epsilon=0.02, most_rows=2, top=3)
    assert ladder["criterion"].values.tolist() == ["0.0005", "same choice"]
    assert ladder.sizes["cell"] == 3 and float(ladder["merged_lower"][0]) > 0
    # What was measured is what is said to stay.
    assert "all probabilities staying within 0.0005 together where the" in ladder.attrs["sentence"]
    assert "all layers' together by" in ladder.attrs["sentence"]
    held = int((ladder["control_moved"] <= 0.0005).sum())
    assert f"keep it so in {held} of 2 layers" in ladder.attrs["sentence"]
    assert "most of all on" in ladder.attrs["sentence"]
    with pytest.raises(identiscope.InputError, match="above 0"):
        identiscope.freedom_ladder(traced, epsilon=[])


def test_the_ladder_seeks_what_it_reports_where_tokens_are_repeated() -> None:
    traced = identiscope.trace(contract.model("Llama"), [5, 7, 5, 7, 5, 7, 5, 9])
    ladder = identiscope.freedom_ladder(traced, tolerance=0.001, epsilon=0.02, most_rows=1, top=1)
    merged = identiscope.prediction_freedom(traced, tolerance=0.001, merged=True)
    for name in ("merged_reach_within", "all_merged_reach_within", "control_moved"):
        np.testing.assert_array_equal(ladder[name], merged[name])
    assert (merged["merged_reach"] > 0).all()


def test_the_outcome_of_a_corpus_goes_to_every_method_that_has_one() -> None:
    context = click.Context(run)
    given: dict[str, Any] = {
        "methods": "prediction_freedom,rollout",
        "explain": None,
        "outcome": "good",
        "settings": (),
    }
    assert _methods(context, given) == (("prediction_freedom", "rollout"), ("prediction_freedom.outcome=good",))
    assert _methods(context, given | {"methods": "rollout"}) == (("rollout", "explain"), ("explain.outcome=good",))
