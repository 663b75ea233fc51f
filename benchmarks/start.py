"""CPU seconds of `identiscope --help` and `import identiscope`, against starting Python alone."""

import resource
import subprocess
import sys

from claims import at_most


def seconds(*arguments: str, repeats: int = 5) -> float:
    """The least CPU time of a Python process with these arguments."""
    least = float("inf")
    for _ in range(repeats):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        least = min(least, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return least


if __name__ == "__main__":
    alone = seconds("-c", "pass")
    for name, arguments in (
        ("import identiscope", ("-c", "import identiscope")),
        ("--help", ("-m", "identiscope", "-h")),
    ):
        used = seconds(*arguments)
        print(f"{name}: {used:.3f} s CPU, Python alone {alone:.3f} s")
        at_most(f"CPU time of {name}, against starting Python alone", used / alone, 15, "×", 1)
