"""The summary of a Run, in words or as a JSON line."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

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


def print_words(run: Any, most: int = 8) -> None:
    """Print which words explanations rest on, and how far their methods agree."""
    screen = console()
    for title, columns, rows in explanation_tables(run, most):
        print_table(title, columns, rows, screen)
        screen.print()


def explanation_tables(run: Any, most: int = 8) -> list[tuple[str, dict[str, Any], list[tuple[Any, ...]]]]:
    """What a Run of explanations comes to: title, columns and rows of each table."""
    words = run.words()
    # What differs from text to text, as the next word does, is no class.
    by = "outcome" if 0 < words["outcome"].nunique() <= _MOST_GROUPS else None
    words = words if by else run.words(None)
    tables: list[tuple[str, dict[str, Any], list[tuple[Any, ...]]]] = []
    for group, rows in words.groupby(by, sort=True) if by else [("", words)]:
        lines: list[tuple[Any, ...]] = [
            (name, ", ".join(f"{word} {100 * share:+.0f}" for word, share in
                             zip(part["word"].head(most), part["mean_share"].head(most), strict=True)))
            for name, part in rows.groupby("method", sort=False)
        ]  # fmt: skip
        title = f"Words that {group} rests on" if by else "Words that outcomes rest on"
        tables.append((f"{title}: mean share of a text in %", {"method": "left", "words": "left"}, lines))
    table = run.agreement()
    names, mean = table["method"].values.tolist(), table["mean"].values
    lines = [
        (name, float(np.nanmean(others)) if np.isfinite(others).any() else float("nan"), _nearest(others, names))
        for place, name in enumerate(names)
        for others in [np.where(np.arange(len(names)) == place, np.nan, mean[place])]
    ]
    if len(names) > 1:
        title = "Do they agree? Mean over texts of Spearman's correlation of sizes"
        tables.append((title, {"method": "left", "mean": "right", "nearest": "left"}, lines))
    return tables


#: Outcomes that are shown apart.
_MOST_GROUPS = 6


def _nearest(others: np.ndarray, names: Sequence[str]) -> str:
    known = sorted(((value, name) for value, name in zip(others.tolist(), names, strict=True) if value == value))
    return ", ".join(f"{name} {value:.2f}" for value, name in reversed(known[-3:]))


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
