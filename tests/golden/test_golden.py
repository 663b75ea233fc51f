"""Every public function and command gives the numbers that it gave before, on fixed inputs.

The numbers were recorded by `golden/record.py`; they say what was computed, not that it was right.
"""

from pathlib import Path

import pytest

import identiscope
from golden.cases import CASES, Inputs, numbers_of
from golden.stored import differences, read

pytestmark = pytest.mark.long

STORED = read()


@pytest.fixture(scope="session")
def inputs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    def load(name: str) -> identiscope.Model:
        model: identiscope.Model = request.getfixturevalue(name)
        return model

    return Inputs(Path(tmp_path_factory.mktemp("golden")), load)


@pytest.mark.parametrize("name", CASES)
def test_the_numbers_are_those_of_before(name: str, inputs: Inputs) -> None:
    stored, found = STORED[name], numbers_of(name, inputs)
    wrong = [f"{part}: stored, and not there now" for part in stored if part not in found]
    # What is new has tests of its own, and is recorded with the next change.
    for part in stored:
        if part in found:
            wrong += differences(part, stored[part], found[part], CASES[name].tolerance)
    assert not wrong, f"{len(wrong)} of {len(stored)} arrays differ:\n" + "\n".join(wrong[:40])


def test_every_stored_case_is_run() -> None:
    assert set(STORED) == set(CASES)
