"""`identiscope tokens` and `identiscope fine-tune`, as a user runs them."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from identiscope.commands.tokens import fine_tune, tokens
from identiscope.errors import InputError
from identiscope.results import load_result

WORDS = ("cat", "dog", "nurse", "parrot", "garden", "bread", "house", "river")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    rows = [f"{number % 2}\tThe {one} saw the {two}, and the {one} ran." for number, (one, two) in enumerate(
        (one, two) for one in WORDS for two in WORDS[:3] if one != two
    )]  # fmt: skip
    path = tmp_path / "corpus.tsv"
    path.write_text("label\tsentence\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


def run(command, *arguments: object) -> str:
    result = CliRunner().invoke(command, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_tables_plots_results_and_probes(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = run(tokens, "minilm", corpus, "--out", out, "--folds", 2)
    assert "linear cosine" in said and "93 %" in said and "random guess" in said and "same type elsewhere" in said
    for name in ("same-layer", "across-layers", "losses"):
        assert load_result(out / f"{name}.safetensors").sizes["layer"] == 6
    names = {path.name for path in out.glob("*.png")}
    assert {"same-layer.png", "train-and-test.png", "across-layers-linear-cosine.png", "losses-reasons.png"} <= names
    again = run(tokens, "minilm", corpus, "--out", out, "--folds", 2)
    assert again == said
    scored = run(tokens, "minilm", corpus, "--out", out, "--probes", out / "probes.safetensors")
    assert "linear l2" in scored and (out / "new-text.safetensors").is_file()


def test_other_experiments(corpus: Path, tmp_path: Path) -> None:
    chosen = [f"--experiment={name}" for name in ("previous-layer", "neighbours", "fractions")]
    said = run(tokens, "minilm", corpus, "--out", tmp_path / "out", "--folds", 1, "--probe", "linear", *chosen)
    assert "offset" in said and "share of the training sentences" in said and ".82" in said
    assert (tmp_path / "out" / "neighbours-linear-cosine.png").is_file()


def test_the_recipe_is_an_option(corpus: Path, tmp_path: Path) -> None:
    recipe = ("--solver=adam", "--learning-rates=1e-3,1e-4", "--patience=1", "--epochs=2", "--hidden-width=8")
    run(tokens, "minilm", corpus, "--out", tmp_path / "out", "--folds=1", "--probe=mlp", "--probe=linear",
        "--experiment=same-layer", "--inputs=sum", *recipe)  # fmt: skip
    result = load_result(tmp_path / "out" / "same-layer.safetensors")
    assert result.attrs["setup"]["recipe"]["learning_rates"] == [1e-3, 1e-4]
    assert result.attrs["setup"]["solver"] == "adam" and int(result.epochs.max()) == 2
    bad = CliRunner().invoke(tokens, ["minilm", str(corpus), "--learning-rates", "fast"])
    assert bad.exit_code == 2 and "1e-3,1e-4" in bad.output


def test_fine_tuned_against_not(corpus: Path, tmp_path: Path) -> None:
    said = run(fine_tune, "minilm", corpus, "--out", tmp_path / "tuned", "--epochs", 1, "--limit", 12)
    assert "2 labels" in said and "held-out" in said
    compared = run(tokens, "minilm", corpus, "--out", tmp_path / "out", "--folds", 1, "--against", tmp_path / "tuned")
    assert "against" in compared and (tmp_path / "out" / "checkpoints.png").is_file()


def test_another_corpus_in_the_same_directory_is_refused(corpus: Path, tmp_path: Path) -> None:
    run(tokens, "minilm", corpus, "--out", tmp_path / "out", "--folds=1", "--probe=naive", "--experiment=same-layer")
    other = tmp_path / "other.txt"
    other.write_text("Something else.\n" * 20, encoding="utf-8")
    with pytest.raises(InputError, match="another text"):
        CliRunner().invoke(tokens, ["minilm", str(other), "--out", str(tmp_path / "out")], catch_exceptions=False)
