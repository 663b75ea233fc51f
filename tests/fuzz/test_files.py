"""A thousand random files, the same ones every time: each is read, or refused in words."""

from pathlib import Path

import pytest

import identiscope
from fuzz.answers import none_failed
from soak import fuzz_files

pytestmark = pytest.mark.long


def test_files(tmp_path: Path) -> None:
    none_failed(fuzz_files.files(1000, tmp_path), 1000)


def test_what_is_not_refused_in_words_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: object) -> None:
        raise ZeroDivisionError("as a mistake of ours would")

    monkeypatch.setattr(identiscope, "load_result", broken)
    outcome = fuzz_files.files(20, tmp_path)
    assert outcome.failures and all("ZeroDivisionError: as a mistake" in line for line in outcome.failures)
