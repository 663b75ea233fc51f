"""The summary of a Run, in words or as a JSON line."""

import json
from collections.abc import Mapping
from typing import Any

from identiscope.views.terminal import console, print_table


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
    screen.print(f"{directory}: {'; '.join(words)}\n", markup=False)
    for method, means in summary["means"].items():
        rows = [[name, float("nan") if value is None else value] for name, value in means.items()]
        print_table(f"{method}: means over all", {"column": "left", "mean": "right"}, rows, screen)
        screen.print()
