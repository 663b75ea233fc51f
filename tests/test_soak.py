"""The trials of soak/, in short: those of files, calls, damage and kills are in the tests of what they try."""

import time
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="the extra serve is not installed, which a trial is of")
from soak import server, threads
from soak.__main__ import PIECES, page
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


def test_every_piece_is_there_and_the_page_says_what_failed() -> None:
    assert {path.stem for path in Path(server.__file__).parent.glob("*.py")} >= set(PIECES)
    written = page([Outcome("all is well", 1000), Outcome("nothing is lost", 3, ("a thing was lost",), "in short")])
    assert "| all is well | 1,000 | 0 |  |" in written
    assert "| nothing is lost | 3 | 1 | in short |" in written and "- nothing is lost: a thing was lost" in written
