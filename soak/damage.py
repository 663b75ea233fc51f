"""Damaged Runs: is each kind of damage seen and mended, and are any bytes an answer or an error of ours?"""

import os
import tempfile
import time
from pathlib import Path

from soak.crafted_runs import fuzz
from soak.damage_kinds import DAMAGES, Tried, trial
from soak.outcome import Outcome
from soak.prepared import tiny_run

_FEWEST = 300


def kinds(seconds: float | None = None, *, repair: bool = True) -> Outcome:
    """Every kind of damage, seen and, with `repair`, mended or refused; fewer kinds if the time is over."""
    end = None if seconds is None else time.monotonic() + seconds
    tried: list[Tried] = []
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        whole = tiny_run(base).directory
        other = tiny_run(base, "other", other=True).directory
        for damage in DAMAGES:
            if end is not None and time.monotonic() > end:
                break
            tried.append(trial(damage, whole, other, base, repair=repair))
    failures = tuple(line for one in tried for line in one.failures)
    notes = [f"time for {len(tried)} of {len(DAMAGES)} kinds"] if len(tried) < len(DAMAGES) else []
    if repair:
        mended = sum(one.mended is True for one in tried)
        notes.append(f"--repair mended {mended}; it refused {len(tried) - mended}, and lost nothing")
    goal = "kinds of damage to a finished Run that verify sees, and that --repair mends, or refuses without a loss"
    return Outcome(
        goal if repair else "kinds of damage to a finished Run that verify sees", len(tried), failures, "; ".join(notes)
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
