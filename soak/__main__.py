"""Try everything that must not go wrong, at length, and write what came out: `make soak`.

    python -m soak [--seconds SECONDS] [PIECE …]

Without a number each piece runs as many cases as its goal names, and no longer than some minutes; with one, each runs
for about that many seconds. What each piece last gave is kept in docs/soak.json, of which docs/soak.md is written. Ends
with 1 if anything failed.
"""

import argparse
import importlib
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from soak.outcome import Outcome

PAGE = Path(__file__).parents[1] / "docs" / "soak.md"
KEPT = PAGE.with_suffix(".json")
#: The pieces, each with the seconds after which it begins nothing new, or over which it spreads what it does; None: it
#: has its own end.
PIECES: dict[str, float | None] = {"threads": None, "fuzz": None, "damage": 300.0, "kills": 900.0, "server": 600.0}


def page(outcomes: Sequence[Outcome]) -> str:
    """docs/soak.md."""
    lines = [
        "# What was tried at length",
        "",
        "Written by `make soak`. A short form of each of these runs in the tests.",
        "",
        "| what must hold | cases | failed | |",
        "|---|---:|---:|---|",
        *(f"| {one.goal} | {one.cases:,} | {len(one.failures)} | {one.note} |" for one in outcomes),
    ]
    failures = [f"- {one.goal}: {line}" for one in outcomes for line in one.failures[:20]]
    return "\n".join([*lines, *(["", "## What failed", "", *failures] if failures else [])]) + "\n"


def main() -> int:
    """Run the pieces, one after the other."""
    parser = argparse.ArgumentParser(prog="python -m soak", description="Try at length what must not go wrong.")
    parser.add_argument("pieces", nargs="*", choices=[[], *PIECES], metavar="PIECE", help=", ".join(PIECES))
    parser.add_argument("--seconds", type=float, help="for each piece, instead of its own end")
    asked = parser.parse_args()
    failed = False
    for name in asked.pieces or PIECES:
        began = time.monotonic()
        found = importlib.import_module(f"soak.{name}").run(PIECES[name] if asked.seconds is None else asked.seconds)
        keep(name, found)
        print(f"{name}, {time.monotonic() - began:.0f} s", flush=True)
        for one in found:
            failed |= bool(one.failures)
            print(f"  {one.goal}: {len(one.failures)} of {one.cases} failed {one.note}".rstrip(), flush=True)
            for line in one.failures[:50]:
                print(f"    {line}", flush=True)
    return int(failed)


def keep(name: str, outcomes: Sequence[Outcome]) -> None:
    """Put what a piece gave in the place of what it gave before, and write the page anew."""
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    kept[name] = [asdict(one) for one in outcomes]
    KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    every = [Outcome(**{**one, "failures": tuple(one["failures"])}) for piece in PIECES for one in kept.get(piece, [])]
    PAGE.write_text(page(every), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
