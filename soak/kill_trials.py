"""The trials of `soak.kills`, in a process of their own: Runs are forked from it, and killed.

Prints a JSON line for each trial: what was tried, and what went wrong.
"""

import argparse
import ctypes
import json
import os
import random
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path

from identiscope.errors import IdentiscopeError
from identiscope.runs.compute.run import run_corpus
from identiscope.runs.format.manifest import has_manifest
from identiscope.runs.format.opened_run import open_run
from identiscope.runs.format.verification import verify_run
from soak.prepared import EVERYTHING, prepare
from tiny_text_model import contents

#: Calls that the system is asked for in writing a Run, as Python announces them.
_CALLS = {
    "open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate", "os.listdir", "os.scandir",
    "fcntl.flock",
}  # fmt: skip


class Point:
    """Ends this process, as a kill would, at a call to the file system; counts the calls."""

    def __init__(self, at: int, directory: Path, *, torn: bool = False) -> None:
        self.at, self.directory, self.torn = at, str(directory), torn
        self.count = 0

    def begin(self) -> None:
        """Watch from now on, to the end of the process."""
        sys.addaudithook(self._called)
        synced = os.fsync

        def sync(handle: int) -> None:
            self._reached(handle)
            synced(handle)
            self._reached()

        os.fsync = sync  # type: ignore[assignment]

    def _called(self, event: str, given: tuple[object, ...]) -> None:
        # Names below a directory's handle, as rmtree uses them, do not show where they are.
        if event in _CALLS and (not isinstance(given[0], str) or self._inside(given[0])):
            self._reached()

    def _inside(self, path: str) -> bool:
        return path.startswith(self.directory) or not path.startswith("/")

    def _reached(self, handle: int | None = None) -> None:
        self.count += 1
        if self.count == self.at:
            found = os.fstat(handle) if self.torn and handle is not None else None
            if found is not None and stat.S_ISREG(found.st_mode):
                # As if the machine had gone down: half of what was written is there.
                os.truncate(f"/proc/self/fd/{handle}", found.st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)


class Trials:
    """Runs forked from this process, whose model is loaded once."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.model, self.corpus = prepare(base)
        self.start(base / "whole")
        self.expected = contents(base / "whole")

    def start(self, directory: Path) -> None:
        """A Run, in this process."""
        run_corpus(str(self.model), self.corpus, directory, options=EVERYTHING, label_column="label")

    def forked(self, directory: Path, before: Callable[[], object] = lambda: None) -> int:
        """A Run in a process of its own, whose number is returned."""
        number = os.fork()
        if number:
            return number
        code = 1
        try:
            before()
            self.start(directory)
            code = 0
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        finally:
            os._exit(code)

    def calls(self) -> int:
        """How many calls a Run makes that is not killed."""
        place, told = self.base / "counted", self.base / "count"
        point = Point(0, place)

        number = os.fork()
        if not number:
            point.begin()
            self.start(place)
            count = point.count
            told.write_text(str(count))
            os._exit(0)
        _, status = os.waitpid(number, 0)
        assert status == 0
        return int(told.read_text())

    def ended(self, directory: Path) -> list[str]:
        """Whether what a killed process left can be read, is no damage, and goes on to the same bytes."""
        failures = []
        if has_manifest(directory):
            try:
                run = open_run(directory)
                if run.complete and contents(directory).keys() - {".lock"} < self.expected.keys():
                    failures.append("complete, but not all is there")
                list(run.iterate("texts"))
            except IdentiscopeError as error:
                failures.append(f"it cannot be read: {error}")
            failures += [f"damage: {said}" for said in verify_run(directory).problems if "missing" not in said]
        try:
            self.start(directory)
        except Exception as error:
            return [*failures, f"it does not go on: {type(error).__name__}: {error}"]
        return failures + self.differing(directory)

    def differing(self, directory: Path) -> list[str]:
        """Files that are not as they must be."""
        found = contents(directory)
        names = sorted(found.keys() | self.expected.keys())
        return [f"{name} differs" for name in names if found.get(name) != self.expected.get(name)]


@dataclass(frozen=True)
class Tried:
    """One trial: in words, whether the Run was killed at all, and what went wrong."""

    said: str
    killed: bool
    failures: list[str]


def at_calls(trials: Trials, points: list[int]) -> Iterator[Tried]:
    """Killed at each of these calls; every second one with half of a file, every third killed again in going on."""
    chance = random.Random(0)
    for at in points:
        directory = trials.base / f"call-{at}"
        point = Point(at, directory, torn=at % 2 == 0)
        _, status = os.waitpid(trials.forked(directory, point.begin), 0)
        failures = [] if os.WIFSIGNALED(status) else [f"it was not killed, but ended with {status}"]
        if at % 3 == 0:
            again = Point(chance.randrange(1, 60), directory, torn=True)
            os.waitpid(trials.forked(directory, again.begin), 0)
        yield Tried(f"killed at call {at}", not failures, failures + trials.ended(directory))


def at_times(trials: Trials, count: int) -> Iterator[Tried]:
    """Killed at random times, again and again, until it comes to its end."""
    begun = time.monotonic()
    os.waitpid(trials.forked(trials.base / "timed"), 0)
    seconds, chance = time.monotonic() - begun, random.Random(1)
    for number in range(count):
        directory, kills = trials.base / f"time-{number}", 0
        for factor in (1.0, 0.7, 0.4):
            process = trials.forked(directory)
            time.sleep(chance.uniform(0, factor) * seconds)
            os.kill(process, signal.SIGKILL)
            kills += os.WIFSIGNALED(os.waitpid(process, 0)[1])
        yield Tried(f"killed {kills} times at random", kills > 0, trials.ended(directory))


def on_ray(trials: Trials, count: int, calls: int) -> Iterator[Tried]:
    """Killed while a Ray cluster of this machine computes; nothing of the cluster may stay, and the Run goes on."""
    # Whoever loses its parent below us becomes our child, and can be seen.
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    chance = random.Random(2)
    for number in range(count):
        directory = trials.base / f"ray-{number}"
        at = chance.randrange(10, calls) if number % 2 else 0
        given = [str(trials.base), "--driver", str(directory), "--at", str(at)]
        driver = subprocess.Popen(
            [sys.executable, "-m", "soak.kill_trials", *given], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        if not at:
            shards, wanted = directory / "shards", chance.randrange(0, 4)
            while (
                driver.poll() is None
                and not (wanted == 0 and has_manifest(directory))
                and (not shards.is_dir() or sum(path.name.isdigit() for path in shards.iterdir()) < wanted)
            ):
                time.sleep(0.01)
            time.sleep(chance.uniform(0, 0.5))
            driver.kill()
        status = driver.wait()
        failures = [] if status in (-signal.SIGKILL, 0) else [f"it ended with {status}"]
        failures += _left_behind()
        # One that had ended before its kill came is tried, but was not killed.
        said = f"killed on Ray {f'at call {at}' if at else 'at random'}"
        yield Tried(said, status == -signal.SIGKILL, failures + trials.ended(directory))


_SUBREAPER = 36
_AGENTS = 240


def _left_behind() -> list[str]:
    """Processes that outlive the one that started them; they are ended. Ray's own agents look for it for some time."""
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    end = time.monotonic() + _AGENTS
    while (numbers := children.read_text().split()) and time.monotonic() < end:
        with suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
        time.sleep(0.1)
    failures = []
    for number in numbers:
        with suppress(OSError):
            name = Path(f"/proc/{number}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            failures.append(f"process {number} is left behind: {name[:60]}")
            os.kill(int(number), signal.SIGKILL)
            os.waitpid(int(number), 0)
    return failures


def drive(base: Path, directory: Path, at: int) -> None:
    """A Run on Ray that is killed at a call."""
    model, corpus = prepare(base)
    Point(at, directory, torn=True).begin()
    run_corpus(str(model), corpus, directory, options=EVERYTHING, label_column="label", engine="ray", workers=2)


def main() -> None:
    """As asked for on the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("base", type=Path)
    parser.add_argument("--calls", type=int, default=0, help="0 for all")
    parser.add_argument("--times", type=int, default=0)
    parser.add_argument("--ray", type=int, default=0)
    parser.add_argument("--driver", type=Path)
    parser.add_argument("--at", type=int, default=0)
    parser.add_argument("--seconds", type=float)
    asked, begun = parser.parse_args(), time.monotonic()
    if asked.driver is not None:
        drive(asked.base, asked.driver, asked.at)
        return
    trials = Trials(asked.base)
    every = trials.calls()
    print(json.dumps({"calls": every}), flush=True)
    kinds = {
        "call": at_calls(trials, _points(every, asked.calls)),
        "time": at_times(trials, asked.times),
        "ray": on_ray(trials, asked.ray, every),
    }
    done = 0
    for goal in cycle(_TURNS):
        if asked.seconds is not None and time.monotonic() - begun > asked.seconds and done >= _FEWEST:
            break
        if goal in kinds:
            trial = next(kinds[goal], None)
            if trial is None:
                del kinds[goal]
            else:
                done += trial.killed
                print(json.dumps({"goal": goal, **asdict(trial)}), flush=True)
        if not kinds:
            break


#: Also when the time is over.
_FEWEST = 100
#: Every kind has its turn, so that each has had some when the time is over.
_TURNS = ("ray", *("call",) * 6, *("time",) * 2, *("call",) * 6)


def _points(every: int, count: int) -> list[int]:
    """So many calls, or all, the first and the last among them; in any order, so that each part has its share."""
    count = every if count == 0 else min(every, count)
    points = [1 + (every - 1) * number // max(1, count - 1) for number in range(count)]
    random.Random(0).shuffle(points)
    return points


if __name__ == "__main__":
    main()
