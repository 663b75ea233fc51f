"""Runs as former versions wrote them, and what these read from them: the same three texts in both formats.

`old_runs.tar.xz` holds `run-1` and `run-2`, written by the code of their time, and `expected.json`.
"""

import json
import tarfile
from pathlib import Path
from typing import Any

FORMATS = ("run-1", "run-2")
#: Their layers were counted from 1.
OF_HIDDEN_STATES = ("attribution", "tokens")


def unpacked(folder: Path) -> dict[str, Any]:
    """Put both Runs into a folder; what was read from them is returned."""
    with tarfile.open(Path(__file__).with_name("old_runs.tar.xz")) as packed:
        packed.extractall(folder, filter="data")
    expected: dict[str, Any] = json.loads((folder / "expected.json").read_text())
    return expected
