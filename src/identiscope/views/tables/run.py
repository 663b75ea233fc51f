"""The summary of a Run, in words or as a JSON line."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from identiscope.files import printable
from identiscope.views.tables.terminal import console, print_table


def print_run(summary: Mapping[str, Any], directory: str, *, as_json: bool = False) -> None:
    """Print how many texts there were, what became of them, and the mean of every column."""
    if as_json:
        print(json.dumps({"event": "done", "directory": directory, **summary}), flush=True)
        return
    screen = console()
    statuses = summary["statuses"]
    words = [f"{statuses.get('ok', 0)} of {summary['texts']} texts, {summary['tokens']} tokens"]
    if summary["cut_texts"]:
        words.append(f"{summary['cut_texts']} texts cut by {summary['cut_tokens']} tokens")
    words += [f"{count} without statistics ({status})" for status, count in statuses.items() if status != "ok"]
    screen.print(f"{printable(directory)}: {'; '.join(words)}\n", markup=False)
    for method, means in summary["means"].items():
        rows = [[name, float("nan") if value is None else value] for name, value in means.items()]
        print_table(f"{method}: means over all", {"column": "left", "mean": "right"}, rows, screen)
        screen.print()


def print_verification(
    directory: str, problems: Sequence[str], notes: Sequence[str], shards: int, *, as_json: bool = False
) -> None:
    """Print what verifying a Run came to: a line for all that is wrong, and one for what could not be said."""
    if as_json:
        line = {"directory": directory, "problems": list(problems), "notes": list(notes), "shards": shards}
        print(json.dumps({"event": "verified", **line}), flush=True)
        return
    for problem in problems:
        print(f"wrong: {problem}")
    for note in notes:
        print(f"note: {note}")
    if problems:
        print(f"{printable(directory)}: {len(problems)} wrong")
    else:
        state = "nothing is wrong, but see the notes" if notes else "every byte is as it was written"
        print(f"{printable(directory)}: complete, {shards} shards; {state}")
