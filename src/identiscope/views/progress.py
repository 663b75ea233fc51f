"""Progress bars, for a terminal: of anything that is counted, and of a Run, which tells its costs too."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from identiscope.progress import Listener

#: Moves a bar: (done, total, count in words, label).
Move = Callable[[int, int, str, str], None]


@contextmanager
def progress_bar(label: str, *, share: bool = False) -> Iterator[Listener]:
    """What moves a bar on the standard error, if that is a terminal. share: count in per cent.

    >>> with progress_bar("intervals") as progress:
    ...     attention_intervals(trace, 3, 5, progress=progress)
    """
    with _bar(label) as move:
        yield _Bar(move, label, share)


@contextmanager
def run_progress(label: str, *, as_json: bool = False) -> Iterator[Listener]:
    """What shows how a Run goes on: as JSON on the standard output if asked for, as a bar on a terminal."""
    if as_json:
        yield _Json()
        return
    with _bar(label, time_left=False) as move:
        yield _RunBar(move, label)


class _Bar(Listener):
    def __init__(self, move: Move, label: str, share: bool) -> None:
        self.move, self.label, self.share, self.words = move, label, share, ""

    def __call__(self, done: int, total: int) -> None:
        count = f"{done / total:.0%}" if self.share else f"{done}/{total}"
        self.move(done, total, count, self.words or self.label)

    def doing(self, words: str) -> None:
        self.words = words


class _RunBar(Listener):
    def __init__(self, move: Move, label: str) -> None:
        self.move, self.label = move, label

    def running(self, state: Any) -> None:
        _print_costs(state)
        done, left = state.before + state.texts, state.seconds_left
        words = f"{done}/{state.total} texts  {state.tokens_per_second:.0f} tokens/s"
        if left is not None:
            words += f"  {spoken_time(left)} left{_mostly(state.costs)}"
        self.move(done, state.total, words, self.label)


class _Json(Listener):
    def running(self, state: Any) -> None:
        _print_json(state)


@contextmanager
def _bar(label: str, *, time_left: bool = True) -> Iterator[Move]:
    """What moves a bar, and does nothing where there is no terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total, count, label: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[count]}"))
    left = (TimeRemainingColumn(),) if time_left else ()
    with Progress(*columns, *left, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None, count="")
        yield lambda done, total, count, label: bar.update(
            task, completed=done, total=total, count=count, description=label
        )


def spoken_time(seconds: float) -> str:
    """Hours and minutes, or minutes and seconds.

    >>> spoken_time(75), spoken_time(7260)
    ('1:15', '2 h 01 min')
    """
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d}"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def spoken_costs(costs: Any) -> str:
    """What each method costs, and all together."""
    parts = ", ".join(f"{name} {_spoken_seconds(seconds)}" for name, seconds in costs.seconds.items())
    batch = "1 text" if costs.texts == 1 else f"{costs.texts} texts"
    return f"a batch of {batch} takes: {parts}; about {_spoken_seconds(costs.total)} in all"


def _mostly(costs: Any) -> str:
    """Which method most of the time goes to, where there is one."""
    if costs is None:
        return ""
    name = max(costs.seconds, key=costs.seconds.get)
    share = costs.seconds[name] / sum(costs.seconds.values())
    return f", mostly {name}" if share > 0.5 and len(costs.seconds) > 2 else ""


def _spoken_seconds(seconds: float) -> str:
    if seconds < 0.1:
        return "< 0.1 s"
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else spoken_time(seconds)


def _print_costs(progress: Any) -> None:
    if progress.texts == 0 and progress.costs is not None:
        print(spoken_costs(progress.costs), file=sys.stderr, flush=True)


def _print_json(progress: Any) -> None:
    left = progress.seconds_left
    line = {
        "event": "progress",
        "texts": progress.before + progress.texts,
        "total": progress.total,
        "tokens": progress.tokens,
        "tokens_per_second": round(progress.tokens_per_second, 1),
        "seconds_left": None if left is None else round(left, 1),
        "costs": _json_costs(progress.costs),
    }
    print(json.dumps(line), flush=True)


def _json_costs(costs: Any) -> dict[str, Any] | None:
    if costs is None:
        return None
    seconds = {name: round(value, 3) for name, value in costs.seconds.items()}
    return {"batch_texts": costs.texts, "batch_seconds": seconds, "total_seconds": round(costs.total, 1)}
