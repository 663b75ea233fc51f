"""A thousand random calls, files and command lines, the same ones every time: each is answered, or refused in words.

The makers of the cases are in soak/, which goes on for longer.
"""

from pathlib import Path

import pytest

import identiscope
from soak import fuzz_commands, fuzz_files, fuzz_library
from soak.outcome import Outcome

pytestmark = pytest.mark.long


def none_failed(outcome: Outcome, cases: int) -> None:
    assert outcome.failures == () and outcome.cases == cases
    answered = int(outcome.note.split()[0])
    # Were nothing answered, or everything, the cases would try nothing.
    assert 0 < answered < cases


# Some of the arguments are tensors that torch warns of wherever they are made.
@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
def test_library(tmp_path: Path) -> None:
    none_failed(fuzz_library.library(1000, tmp_path), 1000)


def test_files(tmp_path: Path) -> None:
    none_failed(fuzz_files.files(1000, tmp_path), 1000)


def test_commands(tmp_path: Path) -> None:
    try:
        none_failed(fuzz_commands.commands(1000, tmp_path), 1000)
    finally:
        (tmp_path / "closed").chmod(0o700)


def test_what_is_not_refused_in_words_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: object) -> None:
        raise ZeroDivisionError("as a mistake of ours would")

    monkeypatch.setattr(identiscope, "load_result", broken)
    outcome = fuzz_files.files(20, tmp_path)
    assert outcome.failures and all("ZeroDivisionError: as a mistake" in line for line in outcome.failures)
