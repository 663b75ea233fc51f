"""The trials of soak/, in short: those of files, calls, damage and kills are in the tests of what they try."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="the extra serve is not installed, which a trial is of")
from soak import damage, kills, server, threads
from soak.__main__ import PIECES, page
from soak.damage_kinds import DAMAGES
from soak.outcome import Outcome


def test_threads_that_share_models_get_what_one_alone_gets() -> None:
    (outcome,) = threads.run(count=12)
    assert outcome.failures == () and outcome.cases == 3 * 12


def test_clients_of_one_server_get_what_one_alone_gets() -> None:
    began = time.monotonic()
    answered, flat = server.run(3.0, clients=3, requests=3)
    assert answered.failures == flat.failures == () and answered.cases == 9
    # For as long as was asked for, and not only until all is answered.
    assert time.monotonic() - began > 3.0


def test_a_server_that_keeps_what_it_was_asked_is_noticed() -> None:
    """A page of the smallest size kept for every request, and one that only moves about."""
    moving = [650 + 3 * (number % 4) for number in range(500)]
    assert server.flat(moving).failures == ()
    assert server.flat([size + 0.1 * number for number, size in enumerate(moving)]).failures


def test_only_runs_that_were_killed_count_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [{"calls": 9}, {"goal": "ray", "said": "", "killed": True, "failures": []}]
    lines += [{"goal": "ray", "said": "too late", "killed": False, "failures": []}]
    said = "\n".join(json.dumps(line) for line in lines)
    started = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda command, **given: started([sys.executable, "-c", f"print({said!r})"], **given)
    )
    (outcome,) = kills.kills()
    assert outcome.cases == 1 and outcome.note == "1 more ended before they could be killed"


def test_what_repair_refused_is_not_counted_as_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        damage, "DAMAGES", [one for one in DAMAGES if one.name in ("seal.json is gone", "manifest.json is gone")]
    )
    outcome = damage.kinds()
    assert outcome.failures == () and outcome.cases == 2
    assert outcome.note == "--repair mended 1; it refused 1, and lost nothing"


def test_every_public_name_and_command_is_tried(tmp_path: Path) -> None:
    """What is new in the package is among the random calls and command lines, or this fails."""
    import identiscope
    from identiscope.cli import main
    from soak import fuzz_commands, good_calls

    known = {name for name, _, _ in good_calls.calls(good_calls.things(tmp_path))}
    public = {name for name in identiscope.__all__ if callable(getattr(identiscope, name))}
    errors = {name for name in public if name.endswith("Error")}
    assert public - errors <= known
    tried = {line.split()[0] for line in fuzz_commands.tried()}
    assert set(main.commands) <= tried
    assert {"method rollout", "reproduce brunner2020", "run", "explain"} <= fuzz_commands.tried().keys()


def test_every_piece_is_there_and_the_page_says_what_failed() -> None:
    assert {path.stem for path in Path(server.__file__).parent.glob("*.py")} >= set(PIECES)
    written = page([Outcome("all is well", 1000), Outcome("nothing is lost", 3, ("a thing was lost",), "in short")])
    assert "| all is well | 1,000 | 0 |  |" in written
    assert "| nothing is lost | 3 | 1 | in short |" in written and "- nothing is lost: a thing was lost" in written
