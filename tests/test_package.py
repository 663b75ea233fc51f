"""The package as a whole: who imports whom, what is loaded when, and that what is public is documented."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import identiscope

ROOT = Path(identiscope.__file__).parent
PROJECT = Path(__file__).parents[1]
MODULES = sorted(ROOT.rglob("*.py"))

# Who may import whom: part → the parts of identiscope it may import.
_BASE = {
    "errors",
    "json_shapes",
    "numbers",
    "files",
    "token_text",
    "tensor_files",
    "careful_reading",
    "validation",
    "progress",
}
ALLOWED = {
    "errors": set(),
    "token_text": set(),
    "progress": set(),
    "files": {"errors"},
    "json_shapes": {"errors", "files"},
    "numbers": {"errors"},
    "validation": {"errors", "identiscope"},
    "tensor_files": {"files", "errors"},
    "careful_reading": {"files", "errors"},
    "stats": {"stats", "errors"},
    "linalg": {"linalg", "errors"},
    "results": {"files", "tensor_files", "errors", "version"},
    "capture": {"capture", "linalg", "errors", "token_text"},
    "methods": {"methods", "linalg", "stats", "errors", "token_text", "progress"},
    "asking": {"asking", "methods", "results", "linalg", "stats", "capture", *_BASE},
    "corpus": {"corpus", "capture", "methods", "results", "version", *_BASE},
    # What methods and kinds there are, and none of the methods themselves, which know torch.
    "views": {"views", "results", "methods.registry", "methods.kinds", "methods.signatures", *_BASE},
    "runs": {"runs", "views", "asking", "corpus", "capture", "methods", "results", "linalg", "stats", "version",
             *_BASE},
    # Reads a Run: what has no torch in it. Only a plot leads to views, when it is asked for.
    "runs.format": {"runs.format", "views", "results", "stats", "methods.registry", *_BASE} - {"validation"},
    "judge": {"judge", "asking", "runs", "corpus", "capture", "methods", "results", "linalg", "stats", *_BASE},
    "papers": {"papers", "judge", "asking", "runs", "corpus", "capture", "methods", "results", "views", "linalg",
               "stats", *_BASE},
    "reports": {"reports", "judge", "asking", "runs", "capture", "methods", "results", "views", "linalg", *_BASE},
    "accessor": {"reports", "results", "views", "validation"},
    "commands": {"commands", "reports", "papers", "judge", "asking", "runs", "corpus", "capture", "methods", "results",
                 "views", *_BASE},
    "cli": {"commands", "errors", "files", "version"},
    "__main__": {"cli"},
    "version": set(),
    "identiscope": {"accessor", "asking", "capture", "corpus", "errors", "judge", "methods", "papers", "reports",
                    "results", "runs", "version", "validation", "views"},
}  # fmt: skip
# Who may import which package of others.
ONLY = {
    "transformers": {"capture"},
    "xarray": {"accessor", "results", "asking", "views", "runs", "judge", "papers", "reports"},
}
HEAVY = {"torch", "transformers", "numpy", "scipy", "xarray", "matplotlib", "rich"}
NOT = {
    "views": {"torch", "transformers"},
    "runs.format": {"torch", "transformers", "matplotlib"},
}
#: Parts of parts that have a rule of their own; who may import the part may import these.
INSIDE = ("runs.format",)


def test_no_part_has_the_name_of_what_is_public() -> None:
    """Whoever loaded it first would find the module in the function's place."""
    parts = {path.stem if path.suffix == ".py" else path.name for path in ROOT.iterdir()}
    assert "capture" in parts and not parts & set(identiscope.__all__)


def part(path: Path) -> str:
    names = path.relative_to(ROOT).with_suffix("").parts
    return "identiscope" if names == ("__init__",) else part_of(".".join(names))


def part_of(module: str) -> str:
    """The part of identiscope that a module is in, by its name without `identiscope.`."""
    inside = [name for name in INSIDE if f"{module}.".startswith(f"{name}.")]
    return inside[0] if inside else module.partition(".")[0]


#: `identiscope.asking`, `identiscope.asking.ask` and so on; the package itself is named in many texts.
NAMES_OF_MODULES = {
    ".".join(("identiscope", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    for path in MODULES
} - {"identiscope"}


def imports(path: Path) -> set[str]:
    """Every module that a file imports, at its top or inside a function, by statement or by name; what is there for
    type checkers is not run."""
    found: set[str] = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documentation = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            module = node.module or ""
            # `from identiscope import capture` imports a part; `from identiscope import __version__` does not.
            found |= {f"{module}.{name.name}" if module == "identiscope" else module for name in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in (
            "import_module",
            "__import__",
        ):
            found |= {beginning(argument).rstrip(".") for argument in node.args[:1]} - {""}
        elif isinstance(node, (ast.Constant, ast.JoinedStr)) and id(node) not in documentation:
            # The name of a module, for someone who will import it: of all that is public, or of a method's file.
            name = beginning(node).rstrip(".")
            found |= {name} if name in NAMES_OF_MODULES else set()
    return found


def beginning(node: ast.AST) -> str:
    """The text of a literal, of one that is filled in the part before that, and of anything else nothing."""
    if isinstance(node, ast.JoinedStr):
        return beginning(node.values[0]) if node.values else ""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def offences(own: str, modules: set[str]) -> list[str]:
    """What a part of identiscope imports that it may not."""
    found = []
    for module in modules:
        top, _, rest = module.partition(".")
        if top == "identiscope":
            target = part_of(rest)
            target = target if target in ALLOWED else "identiscope"
            found += [module] * ALLOWED[own].isdisjoint({rest, target, target.partition(".")[0]})
        else:
            allowed = ONLY.get(top, {own})
            found += [module] * (allowed.isdisjoint({own, own.partition(".")[0]}) or top in NOT.get(own, set()))
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_import_rule(path: Path) -> None:
    assert offences(part(path), imports(path)) == []


def test_the_import_rule_can_fail(tmp_path: Path) -> None:
    source = tmp_path / "method.py"
    source.write_text("import transformers.models\ndef f():\n    from identiscope.capture import load\nimport torch\n")
    assert sorted(offences("methods", imports(source))) == ["identiscope.capture", "transformers.models"]
    assert offences("views", {"torch"}) == ["torch"]
    source.write_text(
        '"""Not `identiscope.cli`."""\nfrom importlib import import_module\nimport importlib\n'
        'def f(name):\n    """identiscope.cli"""\n    import_module("transformers.models")\n'
        '    importlib.import_module(f"identiscope.runs.{name}")\n    return import_module(name)\n'
        'f("identiscope.capture")\n'
    )
    assert sorted(offences("methods", imports(source))) == [
        "identiscope.capture", "identiscope.runs", "transformers.models",
    ]  # fmt: skip
    for module in ("torch", "matplotlib.axes", "identiscope.runs.compute.methods", "identiscope.runs.engines.work",
                   "identiscope.capture", "identiscope.methods.fields", "identiscope.corpus.readers"):  # fmt: skip
        assert offences("runs.format", {module}) == [module]
    assert offences("runs", {"identiscope.runs.format.shards", "identiscope.runs.compute.run"}) == []
    assert part(ROOT / "runs/format/shards.py") == "runs.format" and part(ROOT / "runs/engines/ray.py") == "runs"
    assert offences("views", {"identiscope.methods.maps.null", "identiscope.methods.registry"}) == [
        "identiscope.methods.maps.null"
    ]


@pytest.mark.parametrize("statement", ["import identiscope", "import identiscope.cli"])
def test_nothing_heavy_is_loaded_before_it_is_needed(statement: str) -> None:
    """What makes `identiscope --help` quick; its CPU time is in benchmarks/start.py."""
    code = f"{statement}; import sys; print(sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("arguments", [[], ["method"], ["method", "row_rank"], ["attention"], ["methods"]], ids=str)
def test_help_loads_nothing_heavy_and_takes_no_time(arguments: list[str]) -> None:
    """All that is said of a method is read from the registry and its file, neither of which needs torch."""
    code = f"""
import sys, time
from identiscope.cli import main
main({[*arguments, *(["--help"] if arguments != ["methods"] else [])]!r}, standalone_mode=False)
print(sorted({HEAVY | {"pandas"}!r} & set(sys.modules)), time.process_time())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded, _, seconds = done.stdout.splitlines()[-1].rpartition(" ")
    assert loaded == "[]"
    assert float(seconds) < 0.5


def test_help_lists_the_commands_in_sections() -> None:
    done = subprocess.run([sys.executable, "-m", "identiscope", "--help"], capture_output=True, text=True, check=True)
    places = [
        done.stdout.index(word)
        for word in ("Look at", " check", " trace", " method ", " report", "Explain", " attribution", "Over a corpus",
                     " run", "papers", " reproduce")
    ]  # fmt: skip
    assert places == sorted(places)
    commands = {path.stem.replace("_", "-") for path in (ROOT / "commands").glob("*.py")}
    for command in commands - {"--init--", "options", "sections", "texts", "tracing", "annotations", "memory"}:
        assert f"  {command} " in done.stdout


def test_public_names_exist_and_are_documented() -> None:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in (PROJECT / "docs").rglob("*.md"))
    for name in identiscope.__all__:
        assert getattr(identiscope, name).__doc__
        assert f"`{name}" in pages or f".{name}" in pages, f"no page of docs/ speaks of {name}"
    assert set(identiscope.__all__) <= set(dir(identiscope))
    with pytest.raises(AttributeError):
        _ = identiscope.nothing
