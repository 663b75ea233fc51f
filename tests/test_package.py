"""The package as a whole: who imports whom, what is loaded when, and that what is public is documented."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import identiscope

ROOT = Path(identiscope.__file__).parent
PROJECT = ROOT.parents[1]
MODULES = sorted(ROOT.rglob("*.py"))

# Who may import whom: part → the parts of identiscope it may import.
ALLOWED = {
    "errors": set(),
    "files": {"errors"},
    "linalg": {"linalg", "errors"},
    "methods": {"methods", "linalg", "errors"},
    "results": {"files", "errors", "identiscope"},
    "capture": {"capture", "linalg", "errors"},
    "analysis": {"analysis", "methods", "results", "linalg", "errors", "capture"},
    "views": {"views", "results", "files", "errors"},
    "corpus": {"corpus", "analysis", "capture", "methods", "results", "linalg", "files", "errors", "identiscope"},
    "experiments": {
        "experiments",
        "analysis",
        "corpus",
        "capture",
        "methods",
        "results",
        "views",
        "linalg",
        "files",
        "errors",
    },
    "commands": {
        "commands",
        "experiments",
        "analysis",
        "corpus",
        "capture",
        "methods",
        "results",
        "views",
        "files",
        "errors",
    },
    "accessor": {"experiments", "results", "views"},
    "cli": {"commands", "errors", "identiscope"},
    "__main__": {"cli"},
    "identiscope": {"analysis", "capture", "errors", "experiments", "methods", "results", "views", "corpus"},
}
# Who may import which package of others.
ONLY = {"transformers": {"capture"}, "xarray": {"accessor", "results", "analysis", "views", "corpus", "experiments"}}
HEAVY = {"torch", "transformers", "numpy", "scipy", "xarray", "matplotlib", "rich"}
NOT = {"views": {"torch", "transformers"}}


def part(path: Path) -> str:
    names = path.relative_to(ROOT).with_suffix("").parts
    return "identiscope" if names == ("__init__",) else names[0]


def imports(path: Path) -> set[str]:
    """Every module that a file imports, at its top or inside a function."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            module = node.module or ""
            # `from identiscope import capture` imports a part; `from identiscope import __version__` does not.
            found |= {f"{module}.{name.name}" if module == "identiscope" else module for name in node.names}
    return found


def offences(own: str, modules: set[str]) -> list[str]:
    """What a part of identiscope imports that it may not."""
    found = []
    for module in modules:
        top, _, rest = module.partition(".")
        if top == "identiscope":
            target = rest.partition(".")[0]
            target = target if target in ALLOWED else "identiscope"
            found += [module] * (target not in ALLOWED[own])
        else:
            found += [module] * (own not in ONLY.get(top, {own}) or top in NOT.get(own, set()))
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_import_rule(path: Path) -> None:
    assert offences(part(path), imports(path)) == []


def test_the_import_rule_can_fail(tmp_path: Path) -> None:
    source = tmp_path / "method.py"
    source.write_text("import transformers.models\ndef f():\n    from identiscope.capture import load\nimport torch\n")
    assert sorted(offences("methods", imports(source))) == ["identiscope.capture", "transformers.models"]
    assert offences("views", {"torch"}) == ["torch"]


@pytest.mark.parametrize("statement", ["import identiscope", "import identiscope.cli"])
def test_nothing_heavy_is_loaded_before_it_is_needed(statement: str) -> None:
    """What makes `identiscope --help` quick; its CPU time is in benchmarks/start.py."""
    code = f"{statement}; import sys; print(sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_lists_the_commands() -> None:
    done = subprocess.run([sys.executable, "-m", "identiscope", "--help"], capture_output=True, text=True, check=True)
    assert {"check", "trace"} <= set(done.stdout.split())


def test_public_names_exist_and_are_documented() -> None:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in (PROJECT / "docs").rglob("*.md"))
    for name in identiscope.__all__:
        assert getattr(identiscope, name).__doc__
        assert f"`{name}" in pages or f".{name}" in pages, f"no page of docs/ speaks of {name}"
    assert set(identiscope.__all__) <= set(dir(identiscope))
    with pytest.raises(AttributeError):
        _ = identiscope.nothing  # type: ignore[attr-defined]
