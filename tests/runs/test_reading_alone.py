"""A Run is read without what computes one: in processes of their own, in which nothing else has been imported."""

import subprocess
import sys
from pathlib import Path

import pytest

import identiscope
from identiscope.runs.compute.run import run_corpus
from runs.old_runs import FORMATS, unpacked
from soak.prepared import EVERYTHING, prepare

HEAVY = ("torch", "transformers", "matplotlib", "identiscope.runs.compute", "identiscope.runs.engines",
         "identiscope.capture", "identiscope.methods.fields", "identiscope.linalg", "identiscope.corpus")  # fmt: skip

READING = """
run = identiscope.open_run(directory)
assert run.complete and run.summary["texts"] and "complete" in repr(run)
for name in run.methods:
    assert len(run.to_pandas(name)) and run.to_xarray(name).sizes["text"] and run.means(name).sizes["column"]
    assert [column.meaning for column in run.tables[name].columns] and len(run.query("layer == 0", name))
assert len(run.to_pandas("texts")) and run.subspaces() and run.statistics
assert not run.verify().problems
"""
VERIFYING = """
from identiscope.cli import main
sys.argv = ["identiscope", "run", "--verify", directory]
try:
    main()
except SystemExit as done:
    assert not done.code, done.code
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of all formats that there are, in a folder."""
    folder = tmp_path_factory.mktemp("reading")
    model, corpus = prepare(folder)
    run_corpus(str(model), corpus, folder / "run-3", options=EVERYTHING, label_column="label")
    unpacked(folder)
    return folder


@pytest.mark.parametrize("name", [*FORMATS, "run-3"])
@pytest.mark.parametrize("code", [READING, VERIFYING], ids=["reading", "verifying"])
def test_reading_loads_nothing_heavy(runs: Path, name: str, code: str) -> None:
    begin = f"import sys, identiscope; directory = {str(runs / name)!r}\n"
    end = f"\nprint(sorted(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", begin + code + end], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_there_is_a_run_of_every_format(runs: Path) -> None:
    found = [identiscope.open_run(path).manifest["format"] for path in sorted(runs.glob("run-*"))]
    assert found == ["identiscope-run-1", "identiscope-run-2", "identiscope-run-3"]
