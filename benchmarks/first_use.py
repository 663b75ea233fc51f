"""The first use of a command on a machine, when loops are compiled, against the second: CPU time of whole processes.

    OMP_NUM_THREADS=1 python benchmarks/first_use.py

The package is copied without what Python and numba keep of it, so that each copy is fresh; torch and transformers are
as they were installed. A command on a causal model needs more loops, of which a terminal is told.
"""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from claims import at_most

import identiscope

COMMANDS = (("attention", "minilm"), ("attention", "smollm2"), ("attention", "minilm", "--layer", "2", "--head", "3"))


def seconds(package: Path, arguments: tuple[str, ...]) -> float:
    """CPU time of a command with the package in a folder."""
    environment = os.environ | {"PYTHONPATH": str(package), "NUMBA_CACHE_DIR": str(package / "numba")}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "identiscope", *arguments], env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    source = Path(identiscope.__file__).parent
    for arguments in COMMANDS:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(source, Path(folder) / "identiscope", ignore=shutil.ignore_patterns("__pycache__"))
            first = seconds(Path(folder), arguments)
            second = min(seconds(Path(folder), arguments) for _ in range(2))
        name = f"identiscope {' '.join(arguments)}"
        print(f"{name}: {first:.1f} s CPU at first, {second:.1f} s then", flush=True)
        if arguments == COMMANDS[0]:
            at_most(f"first use of `{name}` against the second", first / second, 1.5, "×")
        else:
            print(f"{name}: {first / second:.2f}×")
