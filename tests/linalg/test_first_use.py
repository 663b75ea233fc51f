"""Somebody who waits for a compiler is told so, once, and not where compiled code is read from disk."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from identiscope.linalg.compiling import tell_of_compiling

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
