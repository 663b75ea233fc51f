"""All benchmarks, one after the other, and a table of what they claim: `make bench`.

    python benchmarks [NAME …]

Each runs in a process of its own, on one thread. It ends with status 1 if a claim does not hold or a benchmark failed,
be it because what it compares with is not installed.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from claims import FILE

HERE = Path(__file__).parent
#: No benchmarks, but what they share.
SHARED = {"__main__", "claims", "timing"}
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def run(path: Path, claims: Path) -> list[dict[str, Any]]:
    """The claims of a benchmark; one that says that it failed, if it did."""
    print(f"\n== {path.stem}", flush=True)
    begin = time.monotonic()
    one = dict.fromkeys(THREADS, "1")
    status = subprocess.run([sys.executable, path], env=os.environ | one | {FILE: str(claims)}).returncode
    print(f"({time.monotonic() - begin:.0f} s)", flush=True)
    rows = [json.loads(line) for line in claims.read_text(encoding="utf-8").splitlines()] if claims.is_file() else []
    if status or not rows:
        said = f"ended with status {status}" if status else "claims nothing"
        rows.append({"claim": "runs to its end", "wanted": "status 0 and a claim", "measured": said, "holds": False})
    return [{"benchmark": path.stem} | row for row in rows]


def table(rows: list[dict[str, Any]]) -> str:
    """As Markdown, columns aligned."""
    cells = [("benchmark", "claim", "wanted", "measured", "holds")]
    cells += [(*(row[name] for name in cells[0][:4]), "yes" if row["holds"] else "NO") for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    cells.insert(1, tuple("-" * width for width in widths))
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in cells
    )


def main() -> None:
    names = sorted(path.stem for path in HERE.glob("*.py") if path.stem not in SHARED)
    chosen = sys.argv[1:] or names
    unknown = sorted(set(chosen) - set(names))
    if unknown:
        sys.exit(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(names)}.")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen:
            rows += run(HERE / f"{name}.py", Path(folder) / name)
    print(f"\n{table(rows)}\n")
    failed = sum(not row["holds"] for row in rows)
    print(f"{len(rows) - failed} of {len(rows)} claims hold")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
