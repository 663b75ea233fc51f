"""Generated pages are up to date, and links between pages lead somewhere."""

import importlib.util
import json
import re
import runpy
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import pytest
import torch

import contract
import every_family
import identiscope
from identiscope.asking.explaining import chosen_methods
from identiscope.capture.samples import PASSAGE
from identiscope.linalg.agreement import TOLERANCES
from identiscope.methods.registry import METHODS, Method, registered
from identiscope.papers import brunner2020, structure_draft

PROJECT = Path(__file__).parents[1]
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]


def test_command_page_is_what_the_commands_say() -> None:
    """In a process of its own: click remembers a command's help from where it was first asked for it."""
    code = "import runpy, sys; sys.stdout.write(runpy.run_path(sys.argv[1])['command_page']())"
    path = str(PROJECT / "docs" / "generate.py")
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert (PROJECT / "docs" / "cli.md").read_text(encoding="utf-8") == done.stdout


def test_the_list_of_methods_is_that_of_the_registry(generate: Any) -> None:
    assert (PROJECT / "docs" / "methods" / "index.md").read_text(encoding="utf-8") == generate.method_index()


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_its_page(generate: Any, name: str) -> None:
    text = (PROJECT / "docs" / "methods" / f"{name}.md").read_text(encoding="utf-8")
    missing = [part for part, pattern in generate.PARTS_OF_A_PAGE.items() if not re.search(pattern, text, re.MULTILINE)]
    assert not missing and f"identiscope.{name}(" in text
    assert "** …" not in text, "the page was begun by docs/generate.py, and not completed"


@pytest.mark.parametrize("name", [one.name for one in chosen_methods("all")] + ["head_output_gradient"])
def test_the_page_of_a_method_that_explains_has_all_parts(name: str) -> None:
    """What it assumes, what others call it, with all its aliases or what another library calls it, and a picture."""
    text = (PROJECT / "docs" / "methods" / f"{name}.md").read_text(encoding="utf-8")
    assert re.search(r"^(\*\*|## )What it assumes", text, re.MULTILINE)
    assert re.search(rf"^!\[.+\]\(\.\./images/methods/{name}\.png\)$", text, re.MULTILINE)
    known = text[text.index("**Known as.** ") :]
    missing = [alias for alias in METHODS[name].aliases if f"`{alias}`" not in known]
    # A name that is written in another way by the library that has it is the same name.
    assert not [alias for alias in missing if alias.replace("_", "") not in known.lower()]


#: Pages whose example is whole: it traces a text of its own.
EXAMPLES = {
    name: codes
    for name in METHODS
    if (page := PROJECT / "docs" / "methods" / f"{name}.md").exists()
    and (codes := re.findall(r"```python\n(trace = .*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL))
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_of_a_page_runs(name: str, minilm: identiscope.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is written, but that the model is loaded once for all pages; the method's answer is what `result` is."""
    traced = identiscope.trace
    monkeypatch.setattr(identiscope, "trace", lambda _, text: traced(minilm, text))
    matplotlib.use("Agg")
    for code in EXAMPLES[name]:
        names: dict[str, Any] = {"identiscope": identiscope}
        exec(code, names)
        assert names["result"].attrs["method"] == name
    plt.close("all")


def test_pictures_are_small_and_those_that_are_drawn() -> None:
    """Each is on the page of its method, and docs/method_figures.py draws it."""
    images = PROJECT / "docs" / "images" / "methods"
    source = (PROJECT / "docs" / "method_figures.py").read_text(encoding="utf-8")
    for path in images.iterdir():
        assert path.stat().st_size < 60_000 and f"\ndef {path.stem}() -> None:" in source, path.name
        shown_on = PROJECT / "docs" / ("explain.md" if path.stem == "explain" else f"methods/{path.stem}.md")
        assert f"images/methods/{path.name})" in shown_on.read_text(encoding="utf-8")


def test_the_page_on_adding_a_method_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """File, line and reference test, to the letter but for the name, which the registry may have; then the contract."""
    page = (PROJECT / "docs" / "add-a-method.md").read_text(encoding="utf-8")
    codes = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    written, line, reference, own = (code.replace("distance", "distance_of_the_page") for code in codes)
    path = tmp_path / "distance_of_the_page.py"
    path.write_text(written, encoding="utf-8")
    name = "identiscope.methods.heads.distance_of_the_page"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    names: dict[str, Any] = {"__name__": "reference"}
    exec(reference, names)
    names["test_it_is_the_formula"]()
    said = eval(line.strip().rstrip(","), {"Method": Method})
    with registered(replace(said, function=module.distance_of_the_page)) as one:
        contract.check_everything(one, tmp_path)
    own_file = tmp_path / "own.py"
    own_file.write_text(own, encoding="utf-8")
    matplotlib.use("Agg")
    runpy.run_path(str(own_file), {"trace": contract.trace(contract.CASES["more"])})
    plt.close("all")


def test_two_runs_of_the_judge_are_joined_if_they_are_of_the_same_texts() -> None:
    """The page that is shown has both, and what the other run said is not touched."""
    joined = runpy.run_path(str(PROJECT / "docs" / "judge_run.py"))["joined"]
    whole = json.loads((PROJECT / "docs" / "judge" / "minilm" / "judge.json").read_text(encoding="utf-8"))
    tests = {test["name"]: test for test in whole["tests"]}
    assert {"planted", "null", "gauge", "redrawn", "erasure", "causal"} == tests.keys()
    null = whole | {"tests": [tests["null"]]}
    others = whole | {"tests": [test for name, test in tests.items() if name != "null"]}
    assert joined(null, others) == joined(others, null) == whole
    newer = tests["null"] | {"passes": -1.0}
    assert joined(whole | {"tests": [newer]}, whole)["tests"] == [newer if one == tests["null"] else one
                                                                  for one in whole["tests"]]  # fmt: skip
    fewer = whole["texts"] - 1
    with pytest.raises(AssertionError, match=f"texts is {fewer}, and was {whole['texts']}"):
        joined(null | {"texts": fewer}, others)


def test_tables_of_pages_are_those_of_the_numbers_beside_them() -> None:
    """What was measured is in a file, and every line that is made of it stands on the page."""
    docs = PROJECT / "docs"
    judge = runpy.run_path(str(docs / "judge_run.py"))
    made = {
        "freedom.md": [runpy.run_path(str(docs / "freedom_run.py"))["tables"]()],
        "does-it-matter.md": [runpy.run_path(str(docs / "nonidentifiability.py"))["page"]()],
        "judge.md": [judge["table"](name) for name in judge["PAGES"]],
    }
    for name, tables in made.items():
        page = (docs / name).read_text(encoding="utf-8").splitlines()
        assert not {line for table in tables for line in table.splitlines()} - set(page), name


def test_family_page_is_what_is_measured_here(generate: Any) -> None:
    """Every row but its error to the letter; the error below what is written. What all others gave is in a file."""
    written = (PROJECT / "docs" / "families.md").read_text(encoding="utf-8")
    measured = generate.measure()
    errors = [float(row.split("|")[5]) for row in written.splitlines() if row.count("|") == 6 and "e-" in row]
    assert len(errors) == len(measured)
    for row, error in zip(measured, errors, strict=True):
        assert row[4] <= error, row[0]
    given = [(*row[:4], error / 2) for row, error in zip(measured, errors, strict=True)]
    assert written == generate.family_page(given, generate.tried())


# One of each kind: clones, softmax by hand, position biases, hybrids, two sides, towers, speech, and what is refused.
SAMPLE = [
    "megatron-bert", "xglm", "funnel", "zamba2", "squeezebert", "bigbird_pegasus", "flava", "wav2vec2-bert",
    "granite_swa", "qwen3_next", "diffllama", "longformer", "mamba", "gemma4_text",
]  # fmt: skip


@pytest.mark.parametrize("model_type", SAMPLE)
def test_a_sample_of_all_architectures_is_as_it_was_found(generate: Any, model_type: str) -> None:
    row = {row["model_type"]: row for row in generate.tried()["families"]}[model_type]
    now = every_family.outcome(model_type)
    assert (now.architecture, now.result) == (row["architecture"], row["result"])
    if now.result == "verified":
        assert (now.sites, now.kinds, now.precision) == (row["sites"], row["kinds"], row["precision"])
        assert now.error is not None and now.error <= row["error"]
        assert (now.maps is None) == (row["maps"] is None) and (now.maps is None or now.maps <= row["maps"])
    elif now.result == "refused":
        assert generate.in_short(now.reason) == generate.in_short(row["reason"])


def test_the_run_over_all_architectures_left_nothing_open(generate: Any) -> None:
    found = generate.tried()["families"]
    assert [row["model_type"] for row in found] == list(every_family.model_classes())
    assert {row["result"] for row in found} == {"verified", "refused", "no softmax attention", "not built"}
    verified = [row for row in found if row["result"] == "verified"]
    assert len(verified) >= 150
    assert all(row["error"] <= TOLERANCES[getattr(torch, row["precision"])] for row in verified)
    assert all(row["reason"] for row in found if row["result"] in ("refused", "not built"))
    others = {row["model_type"] for row in verified if (row["maps"] or 0.0) > 1e-3}
    assert others == {"falcon", "granite_swa", "granitemoe_swa", "squeezebert"}  # as the page says


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_for_users_import_what_is_public(page: Path) -> None:
    """`import identiscope`, and a paper by its name; the page on adding a method speaks to who writes one."""
    if page.name == "add-a-method.md" or page.parent.name == "decisions":
        return
    for code in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL):
        imported = re.findall(r"^\s*(?:from|import) (identiscope[.\w]*)(?: import (.*))?$", code, flags=re.MULTILINE)
        for module, names in imported:
            assert module in ("identiscope", "identiscope.papers"), f"{page.name} imports {module}"
            for name in filter(None, (part.strip() for part in names.split(","))):
                assert hasattr(import_module(module), name) or import_module(f"{module}.{name}")


def test_what_a_paper_hands_out_is_there_and_on_a_page() -> None:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    for paper in (brunner2020, structure_draft):
        for name in paper.__all__:
            assert getattr(paper, name).__doc__ and re.search(rf"[`.]{name}\b", pages), name
        with pytest.raises(AttributeError):
            _ = paper.nothing


def test_the_readme_s_python_runs() -> None:
    text = (PROJECT / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["trace"].verify().error < 5e-6
    assert float(names["other"].total_variation.max()) > 0.1


def test_the_page_on_explanations_runs() -> None:
    text = (PROJECT / "docs" / "explain.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    matplotlib.use("Agg")
    names: dict[str, Any] = {}
    exec(code, names)
    plt.close("all")
    assert names["result"].sizes["method"] == 3
    assert len(names["table"]) == 3 * names["result"].sizes["input"]


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
    options = identiscope.RunOptions(methods=("attention_identifiability",))
    identiscope.run_corpus("minilm", "passages", "my-run", options=options, limit=2)
    assert run_chapter(5, {"identiscope": identiscope})["run"].complete
    # The page on the format reads the same Run; a line of it is of one with explanations.
    text = (PROJECT / "docs" / "format.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    exec("\n".join(line for line in code.splitlines() if "--explain" not in line), {"identiscope": identiscope})
    plt.close("all")
