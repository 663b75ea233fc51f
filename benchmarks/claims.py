"""What a benchmark claims and what it measured: printed as a line, and kept for the table that `make bench` ends in."""

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path

#: Names the file that claims are added to, one JSON object a line; without it they are printed alone.
FILE = "IDENTISCOPE_CLAIMS"


def claim(name: str, measured: str, wanted: str, holds: bool) -> None:
    """Say what was claimed of `name`, what was measured, and whether the claim holds."""
    print(f"{name}: {measured} (claim: {wanted}; {'holds' if holds else 'DOES NOT HOLD'})", flush=True)
    path = os.environ.get(FILE)
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            row = {"claim": name, "wanted": wanted, "measured": measured, "holds": bool(holds)}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def at_most(name: str, value: float, limit: float, unit: str = "", digits: int = 2) -> None:
    """Claim that a value is no larger than a limit."""
    claim(name, f"{value:,.{digits}f}{unit}", f"at most {limit:g}{unit}", value <= limit)


def at_least(name: str, value: float, limit: float, unit: str = "", digits: int = 1) -> None:
    """Claim that a value is no smaller than a limit."""
    claim(name, f"{value:,.{digits}f}{unit}", f"at least {limit:g}{unit}", value >= limit)


def need(*baselines: str) -> None:
    """End the benchmark if a package that it compares with is missing: a ratio to nothing is no measurement."""
    missing = [name for name in baselines if find_spec(name) is None]
    if missing:
        sys.exit(f"{', '.join(missing)} to compare with: not installed. `make bench` installs it.")
