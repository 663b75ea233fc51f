"""The first use of a command on a machine, when loops are compiled, against the second: CPU time of whole processes.

    OMP_NUM_THREADS=1 python benchmarks/first_use.py

The package is copied without what Python and numba keep of it, so that each copy is fresh; torch and transformers are
as they were installed. What the command writes to its standard error is a terminal's, so that somebody who waits for a
compiler is told so.
"""

import os
import pty
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from claims import claim

import identiscope

COMMANDS = (("attention", "minilm"), ("attention", "smollm2"), ("attention", "minilm", "--layer", "2", "--head", "3"))
LIMIT, REASON = 1.5, "first use on this machine: loops are compiled"


def seconds(package: Path, arguments: tuple[str, ...]) -> tuple[float, bool]:
    """CPU time of a command with the package in a folder, and whether it said why it takes longer."""
    environment = os.environ | {"PYTHONPATH": str(package), "NUMBA_CACHE_DIR": str(package / "numba")}
    screen, keyboard = pty.openpty()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with subprocess.Popen(
        [sys.executable, "-m", "identiscope", *arguments], env=environment, stdout=subprocess.DEVNULL, stderr=keyboard
    ) as running:
        os.close(keyboard)
        said = read(screen)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if running.returncode:
        sys.exit(said)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, REASON in said


def read(screen: int) -> str:
    """All that is written to a terminal until nobody can write to it any more."""
    text = b""
    with os.fdopen(screen, "rb", buffering=0) as file:
        while True:
            try:
                part = file.read(4096)
            except OSError:  # so Linux says that the other end is closed
                part = b""
            if not part:
                return text.decode(errors="replace")
            text += part


if __name__ == "__main__":
    source = Path(identiscope.__file__).parent
    for arguments in COMMANDS:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(source, Path(folder) / "identiscope", ignore=shutil.ignore_patterns("__pycache__"))
            first, told = seconds(Path(folder), arguments)
            again = [seconds(Path(folder), arguments) for _ in range(2)]
        second = min(one for one, _ in again)
        shown = "the reason is shown" if told else "the reason is not shown"
        claim(
            f"first use of `identiscope {' '.join(arguments)}` against the second",
            f"{first:.1f} s CPU against {second:.1f} s, {first / second:.2f}×; {shown}",
            f"at most {LIMIT}×, or the reason is shown while waiting; and not the second time",
            (first <= LIMIT * second or told) and not any(one for _, one in again),
        )
