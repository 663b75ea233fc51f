"""Random command lines, random calls of the library and crafted files: `python -m soak fuzz`."""

import tempfile
import time
import warnings
from collections.abc import Callable
from itertools import count
from pathlib import Path

from soak.outcome import Outcome

COMMANDS, CALLS, FILES = 1000, 1000, 300


def run(seconds: float | None = None) -> list[Outcome]:
    """Once with the same cases every time; or, for so many seconds, again and again with others."""
    from soak import tiny  # noqa: F401  (first of all: nothing is fetched)
    from soak.fuzz_commands import commands
    from soak.fuzz_files import files
    from soak.fuzz_library import library

    return [
        _repeated(commands, COMMANDS, seconds),
        _repeated(library, CALLS, seconds),
        _repeated(files, FILES, seconds),
    ]


def _repeated(trial: Callable[[int, Path, int], Outcome], cases: int, seconds: float | None) -> Outcome:
    """A third of the time for each; a seed that has begun is ended."""
    end = time.monotonic() + (seconds or 0) / 3
    outcomes: list[Outcome] = []
    for seed in count():
        with (
            tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as folder,
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            outcomes.append(trial(cases, Path(folder), seed))
            # What was closed to be met closed.
            for path in Path(folder).glob("closed"):
                path.chmod(0o700)
        if time.monotonic() >= end:
            break
    failures = tuple(f"seed {seed}: {line}" for seed, one in enumerate(outcomes) for line in one.failures)
    return Outcome(outcomes[0].goal, sum(one.cases for one in outcomes), failures, outcomes[0].note)
