"""One way for all commands to give a text, a file or a Run; the name of a file is never analysed as a text."""

import json
import warnings
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import identiscope
from identiscope.cli import main
from identiscope.commands.texts import ask_about_paths, given_text
from identiscope.methods.registry import METHODS
from tiny_text_model import save_tiny

#: Every command that takes a text, found by its parameters.
WITH_TEXT = sorted(
    name
    for name, command in main.commands.items()
    if {"text", "texts"} & {one.name for one in command.params if isinstance(one, click.Argument)}
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("here") / "model"))


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(main, list(arguments))


def test_there_are_such_commands() -> None:
    assert {"attention", "attribution", "check", "report", "trace"} <= set(WITH_TEXT)


@pytest.mark.parametrize("name", WITH_TEXT)
def test_every_command_with_a_text_has_the_same_ways_to_give_it(name: str) -> None:
    flags = {flag: one for one in main.commands[name].params for flag in one.opts}
    # One decorator gives them, so that none can lack one of them, or say something else of it.
    assert isinstance(flags["--file"], click.Option) and flags["--file"].help == "Read the text from this file (UTF-8)."
    assert isinstance(flags["--text"], click.Option) and "whatever it looks like" in str(flags["--text"].help)


#: Every command that takes a corpus, found by its parameters.
WITH_CORPUS = sorted(
    name
    for name, command in main.commands.items()
    if "corpus" in {one.name for one in command.params if isinstance(one, click.Argument)}
)


@pytest.mark.parametrize("name", WITH_CORPUS)
def test_every_command_with_a_corpus_has_the_same_ways_to_give_it(name: str, tmp_path: Path) -> None:
    assert len(WITH_CORPUS) >= 7
    flags = {flag: one for one in main.commands[name].params for flag in one.opts}
    assert flags["--file"].help == "Read CORPUS from this file, whatever its name." and {"--out", "-o"} <= {*flags}
    file = tmp_path / "texts.txt"
    file.write_text("w1 w2\n", encoding="utf-8")
    model = [] if name == "train-identifiable" else ["minilm"]
    both = invoke(name, *model, "pairs", "--file", str(file), "-o", str(tmp_path / "out"))
    assert both.exit_code == 2 and "give CORPUS or --file, not both" in both.output
    assert "CORPUS" in invoke(name, *model, "-o", str(tmp_path / "out")).output


def test_a_corpus_given_as_a_file_is_that_file(model: str, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("w1 w2 w3\nw4 w5\n", encoding="utf-8")
    given = ["--methods", "attention_rank", "--out"]
    runs = [
        invoke("run", model, *file, str(tmp_path / "texts.txt"), *given, str(tmp_path / name))
        for name, file in (("one", []), ("other", ["--file"]))
    ]
    assert [done.exit_code for done in runs] == [0, 0] and runs[0].output.replace("one", "other") == runs[1].output
    assert (tmp_path / "one" / "manifest.json").read_bytes() == (tmp_path / "other" / "manifest.json").read_bytes()


@pytest.mark.parametrize("name", METHODS)
def test_so_has_every_method(name: str) -> None:
    methods = main.get_command(click.Context(main), "method")
    assert isinstance(methods, click.Group)
    command = methods.get_command(click.Context(methods), name)
    assert command is not None
    assert {"--text", "--file"} <= {flag for one in command.params for flag in one.opts}


@pytest.mark.parametrize("name", WITH_TEXT)
@pytest.mark.parametrize("text", ["sents.txt", "data/sents", "Runs/one.TSV"])
def test_a_text_that_looks_like_a_file_is_asked_about(name: str, text: str) -> None:
    done = invoke(name, "minilm", text, *(["--methods", "effective,null"] if name == "compare" else []))
    assert done.exit_code == 2
    assert f"did you mean --file {text}?" in " ".join(done.output.split()).replace("- -", "--")
    assert f"--text {text}" in " ".join(done.output.split())


@pytest.mark.parametrize("text", ["It ends in a file.txt", "and / or", "Hello", "3.5", "", "etc.", "x" * 5000])
def test_what_is_a_text(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ask_about_paths(text)
    assert given_text(text, None, None) == text


def test_a_file_that_is_there_is_asked_about_whatever_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my notes").write_text("x")
    with pytest.raises(click.UsageError, match="did you mean --file my notes"):
        ask_about_paths("my notes")
    Path("folder").mkdir()
    with pytest.raises(click.UsageError, match=r"is a directory.*report --run folder"):
        ask_about_paths("folder")


def test_words_and_files_give_the_same(model: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("w1 w2 w3", encoding="utf-8")
    ways = [["w1 w2 w3"], ["--text", "w1 w2 w3"], ["--file", str(tmp_path / "text.txt")]]
    said = [json.loads(invoke("trace", model, *way, "--json").output) for way in ways]
    assert said[0] == said[1] == said[2]
    # Words that look like a file can still be analysed.
    done = invoke("trace", model, "--text", "sents.txt", "--json")
    assert done.exit_code == 0 and json.loads(done.output)["tokens"][0] == "[CLS]"


def test_both_are_refused_and_so_are_bytes_that_are_no_text(model: str, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes("é".encode("latin-1"))
    for way in (["w1 w2", "--file", str(path)], ["w1 w2", "--text", "w3"], ["--text", "w1", "--file", str(path)]):
        done = invoke("check", model, *way)
        assert done.exit_code == 2 and "not both" in done.output
    done = invoke("attention", model, "--file", str(path))
    with pytest.raises(identiscope.InputError, match=r"line 1 of .* is not UTF-8 text"):
        raise done.exception
    done = invoke("attention", model, "--file", str(tmp_path / "none.txt"))
    with pytest.raises(identiscope.InputError, match=r"none\.txt"):
        raise done.exception


def test_a_run_that_is_not_there_is_asked_about(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = invoke("report", model, "my-run")
    assert done.exit_code == 2 and "--run DIR" in done.output and not Path("report.html").exists()
    assert "does not exist" in invoke("report", model, "--run", "my-run").output
    Path("here").mkdir()
    Path("here", "manifest.json").write_text("{}", encoding="utf-8")
    assert "did you mean --run here?" in " ".join(invoke("report", "here").output.split()).replace("- -", "--")
    done = invoke("report", model, "--text", "w1", "--no-verdict")
    assert done.exit_code == 0, done.output
    assert Path("report.html").exists()


def test_the_page_of_a_run_takes_nothing_that_says_nothing_of_it(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Options of a page of a text, and the name of another model, would be passed over without a word."""
    monkeypatch.chdir(tmp_path)
    Path("texts.txt").write_text("w1 w2 w3", encoding="utf-8")
    assert invoke("run", model, "texts.txt", "--out", "mine").exit_code == 0
    for option in (["--layers", "77"], ["--with", "rollout"], ["--kind", "cross"], ["--no-verdict"]):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of --kind
            done = invoke("report", model, "mine", *option)
        assert done.exit_code == 2 and f"{option[0]} cannot be asked of a Run" in done.output
    done = invoke("report", "no-such-model", "mine")
    assert isinstance(done.exception, identiscope.InputError)
    assert "the Run in mine is of" in str(done.exception) and "no-such-model was given" in str(done.exception)
    assert not Path("report.html").exists()
    for way in ([model, "mine"], [f"{model}/", "mine"], ["--run", "mine"]):
        assert invoke("report", *way).exit_code == 0 and Path("report.html").exists()
        Path("report.html").unlink()


def test_kind_is_called_attention_now(model: str) -> None:
    given = ("attention", model, "w1 w2 w3", "--json")
    new = invoke(*given, "--attention", "encoder-self")
    with pytest.warns(FutureWarning, match="--kind is called --attention now"):
        old = invoke(*given, "--kind", "encoder-self")
    assert old.exit_code == new.exit_code == 0
    assert json.loads(old.output) == json.loads(new.output)
    for name in ("attention", "report", "structure"):
        shown = invoke(name, "--help").output
        assert "--attention" in shown and "--kind" not in shown


def test_where_a_checkpoint_goes_is_called_out_now(model: str) -> None:
    with pytest.warns(FutureWarning, match="DIRECTORY is called --out now"):
        assert "there is no file" in str(invoke("fine-tune", model, "none.tsv", "tuned").exception)
