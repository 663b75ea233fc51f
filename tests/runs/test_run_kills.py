"""Runs killed at calls to the file system and at random times end with the same bytes; `soak.kills` has many more."""

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from soak.kill_trials import Trials, _points
from soak.kills import kills
from soak.outcome import Outcome

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def trials() -> list[Outcome]:
    """All of them by one process, since each that is started imports torch; on Ray, where that is installed."""
    return kills(calls=14, times=2, ray=1 if find_spec("ray") else 0)


def test_killed_runs_end_with_the_same_bytes(trials: list[Outcome]) -> None:
    assert [(one.cases, one.failures) for one in trials[:2]] == [(14, ()), (2, ())]


def test_a_run_killed_on_ray_leaves_no_process_and_ends_with_the_same_bytes(trials: list[Outcome]) -> None:
    pytest.importorskip("ray", reason="the Ray engine is an extra: identiscope[ray]")
    assert [(one.cases, one.failures) for one in trials[2:]] == [(1, ())]


def test_the_trials_can_fail(tmp_path: Path) -> None:
    trials = Trials(tmp_path)
    for name in ("half", "lost"):
        shutil.copytree(tmp_path / "whole", tmp_path / name)
    (tmp_path / "half" / "shards" / "000001" / "texts.parquet").write_bytes(b"PAR1")
    assert [said.partition(":")[0] for said in trials.ended(tmp_path / "half")] == [
        "it cannot be read", "damage", "it does not go on"
    ]  # fmt: skip
    assert trials.ended(tmp_path / "lost") == []
    (tmp_path / "lost" / "summary.json").unlink()
    (tmp_path / "lost" / "more").touch()
    assert trials.differing(tmp_path / "lost") == ["more differs", "summary.json differs"]


def test_points_are_all_or_spread() -> None:
    assert sorted(_points(7, 0)) == [1, 2, 3, 4, 5, 6, 7] and sorted(_points(100, 3)) == [1, 50, 100]
