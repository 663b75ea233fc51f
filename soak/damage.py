"""Damaged Runs: is each kind of damage seen and mended, and are any bytes an answer or an error of ours?"""

import os
import tempfile
import time
from pathlib import Path

from soak.crafted_runs import fuzz
from soak.damage_kinds import DAMAGES, trial
from soak.outcome import Outcome
from soak.prepared import tiny_run

_FEWEST = 300


def kinds(seconds: float | None = None, *, repair: bool = True) -> Outcome:
    """Every kind of damage, seen and, with `repair`, mended; fewer kinds if the time is over."""
    end = None if seconds is None else time.monotonic() + seconds
    failures: list[str] = []
    cases = 0
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        whole = tiny_run(base).directory
        other = tiny_run(base, "other", other=True).directory
        for damage in DAMAGES:
            if end is not None and time.monotonic() > end:
                break
            cases += 1
            failures += trial(damage, whole, other, base, repair=repair)
    left = f"time for {cases} of {len(DAMAGES)} kinds" if cases < len(DAMAGES) else ""
    return Outcome(
        "kinds of damage to a finished Run that verify sees and --repair mends", cases, tuple(failures), left
    )


def run(seconds: float | None = None) -> list[Outcome]:
    """Every kind of damage, and directories of any bytes for as long as there is time, but some hundreds of them."""
    end = None if seconds is None else time.monotonic() + seconds
    known = kinds(None if seconds is None else seconds / 2)
    if end is None:
        return [known, fuzz(5000, seed=1)]
    first = fuzz(_FEWEST, seed=1)
    more = fuzz(10**9, seed=int.from_bytes(os.urandom(4)), seconds=max(0.0, end - time.monotonic()))
    return [known, Outcome(first.goal, first.cases + more.cases, first.failures + more.failures, more.note)]
