"""What is given to strangers: a wheel and an sdist with all that belongs in them, and nothing else."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import identiscope

PROJECT = Path(__file__).parents[1]
SOURCE = PROJECT / "src" / "identiscope"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="no distributions: the package hatchling is missing")
    folder = tmp_path_factory.mktemp("built")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=PROJECT, check=True, capture_output=True)
    return folder


def own_files() -> set[str]:
    return {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_holds_the_package_alone(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    assert wheel.name == f"identiscope-{identiscope.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith("/METADATA"))).decode()
    package = {name.removeprefix("identiscope/") for name in names if name.startswith("identiscope/")}
    about = [name for name in names if not name.startswith("identiscope/")]
    assert package == own_files() and "py.typed" in package
    assert all(name.startswith(f"identiscope-{identiscope.__version__}.dist-info/") for name in about)
    assert any(name.endswith("licenses/LICENSE") for name in about)
    assert f"\nVersion: {identiscope.__version__}\n" in metadata


def test_the_sdist_can_be_built_from_and_tested(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/identiscope/{name}" for name in own_files()} <= names
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "tests/conftest.py", "docs/format.md"} <= names
    # What is beside the package and in the repository: tests read it, and `make test` and `make demo` run from it.
    known = subprocess.run(["git", "ls-files"], cwd=PROJECT, capture_output=True, text=True)
    kept = {name for name in known.stdout.splitlines() if (PROJECT / name).is_file() and not name.startswith(".ci/")}
    assert not kept - names or known.returncode
    assert {"Makefile", "constraints.txt", "requirements.lock", "soak/__main__.py", "scripts/lock.py"} <= names
    unwanted = ("__pycache__", ".venv", "demo-output", ".pyc", "sbom.json", ".hypothesis")
    assert not [name for name in names if any(part in name for part in unwanted)]
