"""What cannot be done is said in one line, in every command; a hub that is not there is given up."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import identiscope
from identiscope.cli import explained, main, run
from identiscope.errors import IdentiscopeError
from identiscope.papers.memory import check_memory
from tiny_text_model import save_tiny, words


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("here")
    save_tiny(path / "model")
    (path / "texts.txt").write_text("\n".join(words(5, seed) for seed in range(12)) + "\n")
    (path / "table.tsv").write_text("text\tlabel\n" + "".join(f"{words(5, n)}\t{n % 2}\n" for n in range(12)))
    (path / "file").write_text("a file")
    return path


def refused(folder: Path, *arguments: str) -> str:
    """What a command says that refuses; nothing else may be raised."""
    done = CliRunner().invoke(main, [one.replace("@", f"{folder}/") for one in arguments])
    assert done.exit_code != 0
    assert isinstance(done.exception, (SystemExit, IdentiscopeError)), done.exception
    return done.output + str(done.exception)


@pytest.mark.parametrize("limit", ["-1", "0", "9" * 30])
@pytest.mark.parametrize(
    "command",
    [
        ["tokens", "@model", "@texts.txt"],
        ["fine-tune", "@model", "@table.tsv", "--out", "@tuned"],
        ["structure", "@model", "@texts.txt"],
        ["train-identifiable", "@table.tsv"],
    ],
    ids=lambda command: command[0],
)
def test_limits(folder: Path, command: list[str], limit: str) -> None:
    assert "--limit" in refused(folder, *command, "--limit", limit)
    assert not (folder / "tuned").exists()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["tokens", "@model", "@texts.txt", "--out", "@file"], "is a file; give a directory"),
        (["structure", "@model", "@texts.txt", "--out", "@file"], "is a file; give a directory"),
        (["fine-tune", "@model", "@table.tsv", "--out", "@file"], "is a file; give a directory"),
        (["train-identifiable", "@table.tsv", "--out", "@file"], "is a file; give a directory"),
        (["reverse-demo", "--out", "@file"], "is a file; give a directory"),
        (["reverse-demo", "--out", "@" + "n" * 300], "longer than the file system takes"),
        (["tokens", "@model", "@texts.txt", "--out", "@" + "n" * 300], "longer than the file system takes"),
        (["fine-tune", "@model", "@table.tsv", "--out", "@" + "n" * 300], "longer than the file system takes"),
        (["attention", "@model", "w1 w2", "--out", "@model"], "is a directory; give a file"),
        (["attribution", "@model", "w1 w2", "--out", "@none/there"], "is no directory, or not writable"),
        (["attribution", "@model", "w1 w2", "--memory", "nan"], "not a finite number"),
        (["attribution", "@model", "w1 w2", "--tolerance", "-1"], "--tolerance"),
        (["trace", "@model", "w1", "--layers", "0-99999999999"], "not a list of numbers"),
        (["trace", "@model", "w1", "--layers", "0-999999"], "more than 10,000 numbers"),
        (["trace", "@model", "w1", "--heads", "²"], "not a list of numbers"),
        (["report", "@model", "w1 w2", "--intervals", "²:0:0"], "is not layer:head:row"),
        (["structure", "@model", "@texts.txt", "--perturb", "².1"], "is not a head"),
        (["report", "@model", "w1 w2", "-o", "@file/below.html"], "no directory"),
        (["check", "minilmm"], "did you mean minilm?"),
        (["check", "MiniLM"], "did you mean minilm?"),
        (["check", "n" * 300], "names no model: File name too long"),
        (["tokens", "@model", "@texts.txt", "--folds", "99999", "--out", "@many"], "99999 folds of 12 sentences"),
        (["reverse-demo", "--out", "@new", "--length", "99999999"], "GiB of memory"),
        (["reverse-demo", "--out", "@new", "--width", "99999999"], "GiB of memory"),
        (["train-identifiable", "@table.tsv", "--out", "@new", "--width", "8000000"], "GiB of memory"),
    ],
)
def test_what_cannot_be_done(folder: Path, command: list[str], said: str) -> None:
    assert said in refused(folder, *command)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("one\ntwo é".encode("latin-1"), "line 2 of .* is not UTF-8 text"),
        (bytes(range(256)), "is not UTF-8 text"),
        (b"x" * (2**20 + 1), "more than 1,048,576 bytes"),
        (b"", "the text is empty"),
    ],
)
def test_a_file_that_is_no_text_is_no_report(folder: Path, tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "text").write_bytes(data)
    done = CliRunner().invoke(
        main, ["report", str(folder / "model"), "--file", str(tmp_path / "text"), "-o", str(tmp_path / "made.html")]
    )
    with pytest.raises(identiscope.InputError, match=said):
        raise done.exception  # type: ignore[misc]
    assert not (tmp_path / "made.html").exists()


def test_a_text_may_begin_with_a_mark_of_the_byte_order(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"\xef\xbb\xbfw1 w2 w3\n")
    path = tmp_path / "made.html"
    done = CliRunner().invoke(
        main, ["report", str(folder / "model"), "--file", str(tmp_path / "text"), "-o", str(path)]
    )
    assert done.exit_code == 0 and path.exists()


# --- the last resort


@pytest.mark.parametrize(
    ("error", "said", "code"),
    [
        (identiscope.InputError("as it is."), "as it is.", 2),
        (OSError(28, "No space left on device", "a/b"), "a/b: No space left on device. See to it", 2),
        (OSError("odd"), "odd. See to it", 2),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), "no text in the encoding that was expected", 2),
        (MemoryError(), "not enough memory", 2),
        (
            RuntimeError("[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: not enough memory"),
            "not enough memory",
            2,
        ),
        (RecursionError("maximum"), "nested more deeply", 2),
        (KeyError("x"), "KeyError: 'x'. This is a mistake in identiscope: please report it", 1),
    ],
)
def test_errors_in_words(error: Exception, said: str, code: int) -> None:
    assert said in explained(error)[0] and explained(error)[1] == code
    assert len(explained(error)[0].splitlines()) == 1


def test_one_line_and_a_traceback_if_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr("identiscope.cli.main", fails)
    for shown in ("", "1"):
        monkeypatch.setenv("IDENTISCOPE_TRACEBACK", shown)
        with pytest.raises(SystemExit) as ended:
            run()
        assert ended.value.code == 1
        said = capsys.readouterr().err
        assert said.splitlines()[-1].startswith("error: ZeroDivisionError: a mistake. This is a mistake in identiscope")
        assert ("Traceback" in said) == bool(shown) and (shown or len(said.splitlines()) == 1)


def identiscope_says(*arguments: str | bytes, **options: Any) -> subprocess.CompletedProcess[bytes]:
    environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    environment |= options.pop("environment", {})
    command: list[str | bytes] = [sys.executable, "-m", "identiscope", *arguments]
    # The limit is no measure: without it a test that fails would never end.
    return subprocess.run(command, stderr=subprocess.PIPE, env=environment, timeout=280, **options)


def test_a_full_disk_below_the_output(folder: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = identiscope_says("check", str(folder / "model"), stdout=full)
    assert done.returncode == 2
    assert done.stderr.decode().splitlines()[-1].startswith("error: No space left on device")


def test_names_that_are_no_utf_8(folder: Path, tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff\xfe.html"
    done = identiscope_says(
        "report", str(folder / "model"), "w1 w2", "--no-verdict", "-o", path, stdout=subprocess.PIPE
    )
    assert done.returncode == 0, done.stderr
    assert b"\\udcff\\udcfe.html" in done.stdout and os.path.exists(path)
    done = identiscope_says(
        "tokens", str(folder / "model"), os.fsencode(tmp_path) + b"/\xff.txt", stdout=subprocess.PIPE
    )
    assert done.returncode == 2 and b"there is no file" in done.stderr and b"Traceback" not in done.stderr


# --- a hub that is not there


@pytest.mark.parametrize("kind", ["silent", "refusing", "unknown"])
def test_a_hub_that_does_not_answer_is_given_up(kind: str, tmp_path: Path) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if kind == "silent":
            server.listen()  # and nobody ever answers
        port = server.getsockname()[1]
        endpoint = "http://nowhere.invalid" if kind == "unknown" else f"http://127.0.0.1:{port}"
        done = identiscope_says(
            "check",
            "owner/name",
            stdout=subprocess.PIPE,
            environment={"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path)},
        )
    assert done.returncode == 1
    assert f"nothing of it in the local cache of the hub. {endpoint} cannot be reached: " in done.stderr.decode()


def test_a_hub_that_answers_anything_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    from huggingface_hub import constants

    from identiscope.capture.hub import unreachable

    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()

        def answer() -> None:
            taken, _ = server.accept()
            with taken:
                taken.recv(1000)
                taken.sendall(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        assert unreachable() is None
        thread.join()
        # Nobody answers a second time.
        assert "cannot be reached" in str(unreachable(0.4))


def test_memory() -> None:
    check_memory(2**20, "a little")
    with pytest.raises(identiscope.InputError, match=r"everything would take about 1,048,576.0 GiB"):
        check_memory(2**50, "everything")
