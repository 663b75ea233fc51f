"""`identiscope structure` on the command line."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from identiscope.commands.structure import structure
from identiscope.results import load_result

TEXTS = [
    "The cat sat on the mat.", "A dog ran in the park.", "Nobody knows the answer yet.", "It was raining all day long.",
    "She sold her old bicycle.", "The train left at noon.",
]  # fmt: skip


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS), encoding="utf-8")
    return path


def run(*arguments: str) -> str:
    done = CliRunner().invoke(structure, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_everything_is_shown_and_saved(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shown = run(
        "minilm", str(corpus), "--out", str(out), "--layers", "0", "--clusters", "3", "--length", "8", "--first-keys",
        "--perturb", "0.2", "--sets", "2",
    )  # fmt: skip
    assert "3 clusters as asked for" in shown and "previous" in shown and "of their variance (Otsu)" in shown
    assert "Shared subspace" in shown and "Perturbations of layer 0, head 2" in shown
    assert load_result(out / "structure.safetensors").attrs["texts"] == 3
    assert load_result(out / "subspaces.safetensors")["length"].values.tolist() == [8]
    assert load_result(out / "effects-0-2.safetensors").attrs["sets"] == 2
    assert {"patterns.png", "subspaces.png", "effects-0-2.png", "sweep-0-2.png"} <= {one.name for one in out.iterdir()}


def test_few_texts_of_no_common_length(tmp_path: Path) -> None:
    path = tmp_path / "two.txt"
    path.write_text("One two three.\nOne two three four five.\n", encoding="utf-8")
    shown = run("minilm", str(path), "--out", str(tmp_path / "out"), "--layers", "1", "--heads", "0-1", "--all-texts")
    assert "no two texts have the same length" in shown and "all 2 texts" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--perturb", "3"], "layer 3, head 5"),
        (["--layers", "0", "--perturb", "1.2", "--out", "{out}"], "1.2 is not among the heads"),
        (["--first-keys"], "needs --length"),
        (["--layout", "odd"], "odd"),
    ],
)
def test_wrong_options_are_explained(corpus: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    given = [argument.replace("{out}", str(tmp_path / "out")) for argument in arguments]
    done = CliRunner().invoke(structure, ["minilm", str(corpus), *given])
    assert done.exit_code == 2 and message in done.output
