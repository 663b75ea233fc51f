"""`identiscope report` writes a page, or says why not."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import identiscope
from identiscope.commands.report import report

TEXT = "The lighthouse keeper wrote a letter to his sister every Sunday. " * 4


def run(*arguments: str) -> Any:
    return CliRunner().invoke(report, arguments)


def header(path: Path) -> Any:
    found = re.search(r'id="header">(.*?)</script>', path.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert found is not None
    return json.loads(found.group(1))


def sections(path: Path) -> dict[str, Any]:
    """What the sections of a page hold, by their names, in order."""
    return {section["name"]: section["data"] for section in header(path)["sections"]}


def test_one_text(tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    done = run(
        "minilm",
        TEXT,
        "-o",
        str(out),
        "--layers",
        "0-1",
        "--canonical",
        "1:3",
        "--intervals",
        "1:3:5",
        "--attribution",
        "4",
    )
    assert done.exit_code == 0, done.output
    assert str(out) in done.output and "MB" in done.output
    found = sections(out)
    attention, attribution = found["attention"], found["hidden-token-attribution"]
    assert [layer["layer"] for layer in attention["layers"]] == [0, 1]
    assert attention["layers"][1]["canonical"]["heads"] == [3]
    assert attribution["rows"] == [0, 1]  # those that the page shows
    assert (
        sum((one["layer"], one["head"], one["query"]) == (1, 3, 5) for one in attention["intervals"])
        == attention["layers"][0]["keys"]
    )


def test_several_texts_a_file_and_a_saved_result(tmp_path: Path, minilm: identiscope.Model) -> None:
    out = tmp_path / "page.html"
    done = run("minilm", "One text.", "Another text.", "--no-verdict", "-o", str(out))
    assert done.exit_code == 0, done.output
    pages = [sections(tmp_path / f"page-{place}.html") for place in (1, 2)]
    assert [page["attention"]["tokens"]["queries"][1] for page in pages] == ["one", "another"]
    (tmp_path / "text.txt").write_text("From a file.", encoding="utf-8")
    saved = identiscope.save_result(
        identiscope.attention_identifiability(identiscope.trace(minilm, "One.")), tmp_path / "saved.safetensors"
    )
    done = run("minilm", "--file", str(tmp_path / "text.txt"), "--with", str(saved), "--no-verdict", "-o", str(out))
    assert done.exit_code == 0, done.output
    found = sections(out)
    assert found["attention"]["tokens"]["queries"][1] == "from" and len(found) > 1


def test_an_outcome_goes_to_the_methods_that_explain_one(tmp_path: Path) -> None:
    out, outcome = tmp_path / "page.html", "similarity:A second text."
    asked = ("--with", "saliency,rollout", "--outcome", outcome, "--no-verdict")
    done = run("minilm", "One text.", *asked, "-o", str(out))
    assert done.exit_code == 0, done.output
    found = sections(out)
    assert found["saliency"]["rows"] == ["cosine of the mean state with that of 'A second text.'"]
    assert "rollout" in found


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["minilm", "x y", "--outcome", "A", "--no-verdict"], "methods none: none of them explains one"),
        (["minilm", "x y", "--outcome", "A", "--with", "rollout"], "methods rollout: none of them explains one"),
        (["minilm", "x y", "--file", __file__], "not both"),
        (["minilm", "x y", "--canonical", "1:a"], "not layer:head"),
        (["minilm", "x y", "--canonical", "some"], "auto, all, none"),
        (["minilm", "x y", "--intervals", "1:2"], "not layer:head:row"),
        (["minilm", "x y", "-o", "/nowhere/at/all.html"], "cannot be written"),
    ],
)
def test_bad_input(arguments: list[str], words: str) -> None:
    done = run(*arguments)
    assert done.exit_code != 0 and words in done.output + str(done.exception)
