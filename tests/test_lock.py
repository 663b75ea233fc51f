"""What the two commands install is pinned, file by file, and says so in one place."""

import re
import tomllib
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.lower())


@pytest.fixture(scope="module")
def locked() -> dict[str, str]:
    """Package → its entry in the lock."""
    text = (PROJECT / "requirements.lock").read_text(encoding="utf-8")
    entries = re.split(r"(?m)^(?=[A-Za-z0-9])", text)[1:]
    return {plain(entry.partition("==")[0]): entry for entry in entries}


@pytest.fixture(scope="module")
def pinned() -> dict[str, str]:
    """Package → its version in the constraints."""
    lines = (PROJECT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line.strip() and not line.startswith("#")]
    return {plain(name): version for name, version in pairs}


def test_every_file_has_a_hash_and_every_package_one_version(locked: dict[str, str]) -> None:
    for name, entry in locked.items():
        assert re.fullmatch(r"[^\s=;]+==\S+( ; [^\n]+)? \\\n(    --hash=sha256:[0-9a-f]{64}( \\)?\n)+", entry), name


def test_lock_and_constraints_name_the_same_versions(locked: dict[str, str], pinned: dict[str, str]) -> None:
    for name, entry in locked.items():
        assert pinned[name] == entry.split("==")[1].split()[0], name


def test_torch_is_apart_and_pinned(locked: dict[str, str], pinned: dict[str, str]) -> None:
    assert "torch" in pinned and "torch" not in locked


def test_all_that_the_project_asks_for_is_locked(locked: dict[str, str]) -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    asked = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    asked += [one for name, part in extras.items() if name != "bench" for one in part]
    names = {plain(re.split(r"[\[<>=!~; ]", one)[0]) for one in asked}
    assert names - {"torch"} <= set(locked)


def test_what_builds_the_project_is_pinned() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    assert all("==" in one for one in project["build-system"]["requires"])


def test_the_page_of_licences_is_of_what_is_locked(locked: dict[str, str], pinned: dict[str, str]) -> None:
    page = (PROJECT / "docs" / "licences.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:4]] for line in page.splitlines() if line.startswith("| ")][1:]
    versions = {plain(name): version.partition("+")[0] for name, version, _ in rows}
    assert all(licence for _, _, licence in rows)
    for name in {*locked, "torch"} - {"setuptools"}:
        assert versions[name] == pinned[name], name
