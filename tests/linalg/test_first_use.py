"""Somebody who waits for a compiler is told so, once, and not where compiled code is read from disk."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

import identiscope.linalg.compiling
from identiscope.linalg.compiling import compiled, digest_of_loops, tell_of_compiling

FIRST_USE = "first use on this machine: loops are compiled"

SCRIPT = """
import sys
from identiscope import cli
import click

@cli.main.command("compiled")
def compiled_command():
    import numpy as np
    from identiscope.linalg.rank.prefix.compiled import distinct_rows
    distinct_rows(np.zeros((3, 2)), 2, np.zeros(3, np.int64))
    from identiscope.linalg.rank.prefix.compiled import triangles_at
    triangles_at(np.ones((3, 2)), 2, np.array([3]), np.zeros((1, 2, 2)))

sys.argv = ["identiscope", "compiled"]
cli.run()
"""


def said(folder: Path, terminal: bool) -> str:
    """What a command that needs compiled loops writes to the standard error, be it a terminal or not."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder)}
    if not terminal:
        done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stderr
    screen, keyboard = pty.openpty()
    shown = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, stdout=subprocess.DEVNULL, stderr=keyboard)
    os.write(keyboard, b".")
    os.close(keyboard)
    text = os.read(screen, 100_000).decode()
    os.close(screen)
    assert shown.returncode == 0, text
    return text


def test_the_first_use_says_why_it_takes_time(tmp_path: Path) -> None:
    assert said(tmp_path / "one", terminal=True).count(FIRST_USE) == 1
    # From disk the second time; and what no person reads is not told.
    assert FIRST_USE not in said(tmp_path / "one", terminal=True)
    assert FIRST_USE not in said(tmp_path / "two", terminal=False)


def test_a_library_is_told_by_its_log_and_once(caplog: pytest.LogCaptureFixture) -> None:
    tell_of_compiling.cache_clear()
    with caplog.at_level("INFO", "identiscope.compiling"):
        tell_of_compiling()
        tell_of_compiling()
    assert [FIRST_USE in record.getMessage() for record in caplog.records] == [True]


def test_kept_code_is_not_taken_when_a_loop_that_it_calls_has_changed(tmp_path: Path) -> None:
    """numba itself looks only at the file of the function that is called."""
    (tmp_path / "called").mkdir()
    (tmp_path / "calls.py").write_text("@compiled\n")
    (tmp_path / "beside.py").write_text("no loop is here")
    loop = tmp_path / "called" / "loop.py"
    loop.write_text("@compiled\none = 1")
    before = digest_of_loops.__wrapped__(tmp_path)
    (tmp_path / "beside.py").write_text("nor here")
    assert digest_of_loops.__wrapped__(tmp_path) == before
    loop.write_text("@compiled\none = 2")
    assert digest_of_loops.__wrapped__(tmp_path) != before

    def doubled(number: float) -> float:
        return 2 * number

    # What numba compares with what it has on disk: a change of the private name that is written to shows here.
    stamp = compiled(doubled)._cache._cache_file._source_stamp
    assert stamp[1] == digest_of_loops(Path(identiscope.linalg.compiling.__file__).parent)
