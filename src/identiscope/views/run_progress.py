"""Progress of a Run: a bar with texts, tokens per second and time left; JSON lines for machines; else nothing."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def run_progress(label: str, *, as_json: bool = False) -> Iterator[Callable[[Any], None]]:
    """A function that shows a `RunProgress`: as JSON on the standard output if asked for, as a bar on a terminal."""
    if as_json:
        yield _print_json
        return
    if not sys.stderr.isatty():
        yield lambda progress: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("texts"),
        TextColumn("{task.fields[speed]}"), TextColumn("{task.fields[left]}"),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None, speed="", left="")

        def moved(progress: Any) -> None:
            left = progress.seconds_left
            bar.update(
                task,
                completed=progress.before + progress.texts,
                total=progress.total,
                speed=f"{progress.tokens_per_second:.0f} tokens/s",
                left="" if left is None else f"{spoken_time(left)} left",
            )

        yield moved


def spoken_time(seconds: float) -> str:
    """Hours and minutes, or minutes and seconds.

    >>> spoken_time(75), spoken_time(7260)
    ('1:15', '2 h 01 min')
    """
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d}"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def _print_json(progress: Any) -> None:
    left = progress.seconds_left
    line = {
        "event": "progress",
        "texts": progress.before + progress.texts,
        "total": progress.total,
        "tokens": progress.tokens,
        "tokens_per_second": round(progress.tokens_per_second, 1),
        "seconds_left": None if left is None else round(left, 1),
    }
    print(json.dumps(line), flush=True)
