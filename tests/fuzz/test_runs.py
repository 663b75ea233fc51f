"""Runs of random bytes: what reads them answers, or says what is wrong.

Half of them are in test_other_runs.py, since a file of tests is the work of one process.
"""

import pytest

from soak.crafted_runs import fuzz

pytestmark = pytest.mark.long


def test_whatever_the_bytes_are_it_is_an_answer_or_an_error_of_ours() -> None:
    outcome = fuzz(500, seed=20)
    assert outcome.cases == 500 and outcome.failures == ()


def test_the_fuzz_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("identiscope.runs.format.opened_run.understanding", lambda what: _nothing())
    monkeypatch.setattr("identiscope.runs.format.summary.understanding", lambda what: _nothing())
    assert fuzz(60, seed=1).failures


class _nothing:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...
