"""`identiscope reverse-demo`, as a user runs it."""

from pathlib import Path

from click.testing import CliRunner

import identiscope
from identiscope.commands.reverse_demo import reverse_demo
from identiscope.papers.structure_draft.reversal_model import load_reversal

SMALL = ("--length=6", "--vocabulary=12", "--width=32", "--steps=600", "--batch-size=32", "--learning-rate=0.01")
FEW = ("--samples=30", "--texts=3", "--sets=3")


def run(*arguments: object) -> str:
    result = CliRunner().invoke(reverse_demo, [str(one) for one in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_model_results_tables_and_plots(tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = run("--out", out, *SMALL, *FEW)
    assert float(said.split()[1]) >= 0.99
    assert "antidiagonal" in said and "recommended l" in said and "times as much" in said and "published" in said
    model = load_reversal(out / "model.safetensors")
    assert model.config.length == 6
    assert identiscope.load_result(out / "structure.safetensors").attrs["pattern"] == "antidiagonal"
    assert identiscope.load_result(out / "damage.safetensors").sizes == {"noise": 3, "share": 10}
    assert identiscope.load_result(out / "perturbations.safetensors").attrs["sets"] == 3
    assert {path.stem for path in out.glob("*.png")} == {
        "figure-1-map", "mean-map", "figure-2-thresholds", "noise", "distances",
    }  # fmt: skip
    again = run("--out", tmp_path / "again", "--model", out / "model.safetensors", *FEW)
    assert again.partition("saved ")[0] == said.partition("saved ")[0]
    assert not (tmp_path / "again" / "model.safetensors").exists()
