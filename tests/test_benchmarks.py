"""Benchmarks run as they are: without arguments, with baselines that `make bench` installs, ending in one table."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

PROJECT = Path(__file__).parents[1]
FOLDER = PROJECT / "benchmarks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in ("__main__", "claims", "timing"))


def calls(name: str) -> list[ast.Call]:
    tree = ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def called(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_wants_no_argument_and_claims_something(name: str) -> None:
    for call in calls(name):
        if called(call) == "add_argument":
            words = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
            optional = ast.unparse(call.args[0]).strip("'").startswith("-") or words.get("nargs") in ("'?'", "'*'")
            assert optional and "required" not in words, ast.unparse(call)
    assert {called(call) for call in calls(name)} & {"claim", "at_most", "at_least", "faster"}


@pytest.mark.parametrize("name", ["report_size", "causal_texts"])
def test_a_benchmark_runs_to_its_end_on_its_smallest_size(name: str, tmp_path: Path) -> None:
    """What it times is the project's own inside, whose shape changes."""
    told = tmp_path / "claims"
    done = subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py"), "--smoke"], capture_output=True, text=True,
        env=os.environ | {"IDENTISCOPE_CLAIMS": str(told), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(told.read_text(encoding="utf-8").splitlines()) == 4


def two_trees(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FOLDER / "two_trees.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})


def test_two_states_of_the_source_are_measured_to_the_end(tmp_path: Path) -> None:
    """The job that asks most of its texts: equal ones would stand on one side of every split."""
    path = tmp_path / "table.md"
    here = str(PROJECT)
    done = two_trees(here, here, "--repeats", "1", "--jobs", "linear probes", "--markdown", str(path))
    assert done.returncode == 0, done.stderr[-2000:]
    table = path.read_text(encoding="utf-8").splitlines()
    assert len(table) == 3 and table[2].startswith("| tokens of a corpus: linear probes | ")


def test_a_state_that_cannot_do_it_says_why(tmp_path: Path) -> None:
    package = tmp_path / "src" / "identiscope"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ValueError('half written')", encoding="utf-8")
    done = two_trees(str(tmp_path), str(tmp_path))
    assert done.returncode == 1
    assert f"{tmp_path} could not do it" in done.stderr and "ValueError: half written" in done.stderr


def test_make_bench_installs_all_baselines() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    installed = {re.split(r"\W", asked)[0] for asked in project["optional-dependencies"]["bench"]}
    rule = (PROJECT / "Makefile").read_text(encoding="utf-8").partition("\nbench:")[2].partition("\n\n")[0]
    assert '".[bench]"' in rule
    installed |= set(re.findall(r"constraints\.txt (\w+)$", rule, flags=re.MULTILINE))
    needed = {
        ast.literal_eval(one) for name in NAMES for call in calls(name) if called(call) == "need" for one in call.args
    }
    assert needed == installed == {"clarabel", "networkx", "piqp", "quadprog", "bertviz"}


MADE = {
    "holds": "from claims import at_most\nat_most('size', 1.0, 2)",
    "fails": "from claims import at_least\nat_least('speed', 1.0, 2, '×')",
    "stops": "from claims import at_most, need\nat_most('size', 1.0, 2)\nneed('no_such_solver')",
    "silent": "pass",
}


def test_all_ends_in_one_table_and_what_does_not_hold_in_a_status(tmp_path: Path) -> None:
    for name in ("__main__", "claims"):
        (tmp_path / f"{name}.py").write_bytes((FOLDER / f"{name}.py").read_bytes())
    for name, code in MADE.items():
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")

    def run(*names: str) -> tuple[int, list[str]]:
        done = subprocess.run([sys.executable, str(tmp_path), *names], capture_output=True, text=True)
        return done.returncode, done.stdout.splitlines()

    status, lines = run()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    assert rows[0] == ["benchmark", "claim", "wanted", "measured", "holds"]
    assert [(row[0], row[1], row[-1]) for row in rows[2:]] == [
        ("fails", "speed", "NO"),
        ("holds", "size", "yes"),
        ("silent", "runs to its end", "NO"),
        ("stops", "size", "yes"),
        ("stops", "runs to its end", "NO"),
    ]
    assert status == 1 and lines[-1] == "2 of 5 claims hold"
    assert run("holds")[0] == 0


def test_the_table_of_coverage_is_what_the_benchmark_claims() -> None:
    """docs/methods/hidden_token_attribution.md: intervals of 95 % cover 94 to 96 %."""
    page = (PROJECT / "docs" / "methods" / "hidden_token_attribution.md").read_text(encoding="utf-8")
    (seeds,) = re.findall(r"<!-- coverage: (\d+) seeds -->", page)
    rows = re.findall(r"^\| (.+) \| (\d+) \| ([\d.]+) ± ([\d.]+) \| ([\d.]+) ± ([\d.]+) \|", page, flags=re.MULTILINE)
    assert int(seeds) >= 400 and len(rows) == 15
    assert {int(probes) for _, probes, *_ in rows} == {4, 6, 8, 12, 16}
    for model, probes, *numbers in rows:
        norms, norms_error, contributions, contributions_error = map(float, numbers)
        for share, error in ((norms, norms_error), (contributions, contributions_error)):
            assert error <= 0.2 and 94 <= share <= 96, (model, probes)
