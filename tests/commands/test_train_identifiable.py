"""`identiscope train-identifiable`, as a user runs it."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import identiscope
from identiscope.commands.train_identifiable import train_identifiable
from identiscope.papers.bhardwaj2021.classifier import load_classifier

QUICK = ("--epochs=2", "--width=16", "--heads=4", "--seeds=2", "--learning-rate=0.01", "--per-length=1")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    generator = np.random.default_rng(0)
    rows = []
    for _ in range(120):
        words = generator.choice(["cat", "dog", "tree", "house", "river"], size=generator.integers(2, 9)).tolist()
        rows.append(f"{'yes' if 'cat' in words else 'no'}\t{' '.join(words)}")
    path = tmp_path / "corpus.tsv"
    path.write_text("kind\tsentence\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


def run(*arguments: object) -> str:
    result = CliRunner().invoke(train_identifiable, [str(one) for one in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_tables_plots_result_and_classifiers(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = run(corpus, "--label", "kind", "--out", out, *QUICK)
    assert "108 texts, 12 to test, labels no, yes; 2 seeds" in said
    assert "small d_k" in said and "added heads" in said and "n=8" in said and "Criterion: " in said
    result = identiscope.load_result(out / "comparison.safetensors")
    assert result.sizes["seed"] == 2 and result.attrs["configs"]["small d_k"]["key_width"] == 2
    assert {path.name for path in out.glob("*.png")} == {
        "accuracy.png", "difference.png", "null-space-by-length.png", "realisable-by-length.png",
        "identifiable-by-length.png",
    }  # fmt: skip
    classifier = load_classifier(out / "added-heads.safetensors")
    assert classifier.labels == ("no", "yes")
    assert identiscope.trace(classifier.model, "cat dog tree").verify().verified
    assert run(corpus, "--label", "kind", "--out", out, *QUICK) == said


def test_a_test_file_and_a_choice_of_variants(corpus: Path, tmp_path: Path) -> None:
    said = run(
        corpus, "--test", corpus, "--label", "kind", "--columns", "sentence", "--variant", "added, small d_k",
        "--key-width", 1, "--limit", 50, "--out", tmp_path / "out", *QUICK,
    )  # fmt: skip
    assert "50 texts, 50 to test" in said and "added, small d_k" in said and "\nsmall d_k" not in said
    assert (tmp_path / "out" / "added-small-d_k.safetensors").is_file()


def test_pairs_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("sentence1\tsentence2\tlabel\na b\tc d\t1\n", encoding="utf-8")
    with pytest.raises(identiscope.InputError, match="name one column with --columns"):
        run(path)
