"""Generated pages are up to date, and links between pages lead somewhere."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import pytest

import identiscope
from identiscope.capture.samples import PASSAGE

PROJECT = Path(__file__).parents[1]
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]


@pytest.fixture(scope="module")
def generate() -> Any:
    spec = importlib.util.spec_from_file_location("generate", PROJECT / "docs" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_command_page_is_what_the_commands_say() -> None:
    """In a process of its own: click remembers a command's help from where it was first asked for it."""
    code = "import runpy, sys; sys.stdout.write(runpy.run_path(sys.argv[1])['command_page']())"
    path = str(PROJECT / "docs" / "generate.py")
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert (PROJECT / "docs" / "cli.md").read_text(encoding="utf-8") == done.stdout


def test_family_page_is_what_is_measured_here(generate: Any) -> None:
    """Every row but its error to the letter; the error below what is written."""
    written = (PROJECT / "docs" / "families.md").read_text(encoding="utf-8")
    measured = generate.measure()
    errors = [float(row.split("|")[5]) for row in written.splitlines() if row.count("|") == 6 and "e-" in row]
    assert len(errors) == len(measured)
    for row, error in zip(measured, errors, strict=True):
        assert row[4] <= error, row[0]
    given = [(*row[:4], error / 2) for row, error in zip(measured, errors, strict=True)]
    assert written == generate.family_page(given)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_readme_s_python_runs() -> None:
    text = (PROJECT / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["trace"].verify().error < 5e-6
    assert float(names["other"].total_variation.max()) > 0.1


def run_chapter(number: int, names: dict[str, Any]) -> dict[str, Any]:
    """Run the Python of one chapter of the tutorial; the names it has in the end."""
    text = (PROJECT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    chapter = re.split(r"^# \d+\. ", text, flags=re.MULTILINE)[number]
    codes = re.findall(r"```python\n(.*?)```", chapter, flags=re.DOTALL)
    assert codes
    matplotlib.use("Agg")
    for code in codes:
        exec(code, names)
    plt.close("all")
    return names


def test_the_tutorial_s_second_chapter_runs() -> None:
    names = run_chapter(2, {"identiscope": identiscope, "passage": PASSAGE})
    assert float(names["other"].total_variation.max()) > 0.1


def test_the_tutorial_s_last_chapter_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = identiscope.RunOptions(methods=("attention",))
    identiscope.run_corpus("minilm", "passages", "my-run", options=options, limit=2)
    assert run_chapter(5, {"identiscope": identiscope})["run"].complete
