"""The tests of the judge: a file and a line each, and what each promises."""

from pathlib import Path

import pytest

import identiscope
from identiscope.errors import InputError
from identiscope.judge.registry import FOLDERS, TESTS, chosen_tests

ROOT = Path(identiscope.__file__).parent / "judge"


def test_every_line_has_its_file_and_function() -> None:
    for test in TESTS.values():
        assert (ROOT / FOLDERS[test.kind] / f"{test.name}.py").is_file()
        assert callable(test.load())
        assert test.planned(8, 3, None) >= 0
        assert test.says and not test.says.endswith(".")
        names = [measure.name for measure in test.measures]
        assert names and len(set(names)) == len(names)
        assert all(measure.low < measure.high and measure.says for measure in test.measures)


def test_unknown_tests_are_refused() -> None:
    with pytest.raises(InputError, match="expected all, or some of"):
        chosen_tests("nonsense")
    assert chosen_tests("all") == list(TESTS.values())
