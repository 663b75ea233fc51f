"""A progress bar for work that reports a share done and a few words; nothing where there is no terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def share_bar(label: str) -> Iterator[Callable[[float, str], None]]:
    """A function `(share, words)` that moves a bar with the time left, if the standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda share, words: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=1.0)
        yield lambda share, words: bar.update(task, completed=share, description=words or label)
