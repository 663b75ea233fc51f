"""What is given to strangers: a wheel and an sdist with all that belongs in them, and nothing else."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import identiscope

PROJECT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (PROJECT / "src").is_dir():
        pytest.skip("no distributions: the source is not here, and the package that is tested is an installed one")
    pytest.importorskip("hatchling", reason="no distributions: the package hatchling is missing")
    folder = tmp_path_factory.mktemp("built")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=PROJECT, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def in_wheel(built: Path) -> set[str]:
    (wheel,) = built.glob("*.whl")
    assert wheel.name == f"identiscope-{identiscope.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def in_sdist(built: Path) -> set[str]:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        return {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}


@pytest.fixture(scope="module")
def known() -> set[str]:
    """What the project consists of: the files that git knows, whatever else lies in the folder."""
    listed = subprocess.run(["git", "ls-files", "-z", "--full-name"], cwd=PROJECT, capture_output=True, text=True)
    names = {name for name in listed.stdout.split("\0") if name and (PROJECT / name).is_file()}
    if listed.returncode or "pyproject.toml" not in names:
        pytest.skip("this is no checkout: what belongs to the project is not known")
    return names


def test_the_wheel_says_what_it_is(built: Path, in_wheel: set[str]) -> None:
    assert {"identiscope/py.typed", "identiscope/cli.py", "identiscope/views/static/viewer.js"} <= in_wheel
    about = f"identiscope-{identiscope.__version__}.dist-info/"
    assert all(name.startswith(("identiscope/", about)) for name in in_wheel)
    assert f"{about}licenses/LICENSE" in in_wheel
    with zipfile.ZipFile(next(built.glob("*.whl"))) as archive:
        assert f"\nVersion: {identiscope.__version__}\n" in archive.read(f"{about}METADATA").decode()


def test_the_sdist_can_be_built_from_and_tested(in_sdist: set[str]) -> None:
    needed = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "tests/conftest.py", "docs/format.md"}
    assert needed | {"src/identiscope/cli.py", "Makefile", "constraints.txt", "requirements.lock"} <= in_sdist
    unwanted = ("__pycache__", ".venv", "demo-output", ".pyc", "sbom.json", ".hypothesis")
    assert not [name for name in in_sdist if any(part in name for part in unwanted)]


ADVICE = "git add what belongs there, and delete what does not"


def test_the_wheel_has_the_package_and_nothing_that_only_lies_there(in_wheel: set[str], known: set[str]) -> None:
    package = {name.removeprefix("src/") for name in known if name.startswith("src/identiscope/")}
    assert {name for name in in_wheel if name.startswith("identiscope/")} == package, ADVICE


def test_the_sdist_has_the_repository_and_nothing_that_only_lies_there(in_sdist: set[str], known: set[str]) -> None:
    """Tests read what is beside the package, and `make test` and `make demo` run from it."""
    assert in_sdist - {"PKG-INFO"} == {name for name in known if not name.startswith(".ci/")}, ADVICE
