"""Many clients on a live server: equal answers, flat memory. `python -m soak server`."""

import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from soak.outcome import Outcome

CLIENTS, REQUESTS = 10, 50
#: Seconds after the last request was to be made, when no further one is.
LATE = 600.0
#: MiB by which the server may grow once it is warm. The page of a question has some tenths of a MiB: were they kept, a
#: few hundred requests would be more than this.
MOST_GROWTH = 20.0


def questions() -> list[dict[str, Any]]:
    """What is asked: several texts, with everything that is computed of them."""
    from soak.tiny import words

    kinds: list[dict[str, Any]] = [
        {}, {"methods": ["verdict"]}, {"methods": ["canonical"]}, {"methods": ["attribution"], "directions": 4},
        {"methods": ["verdict", "attribution"], "directions": 2},
    ]  # fmt: skip
    return [
        {"model": model, "text": words(8 + 5 * number, number)} | kind
        for number, kind in enumerate(kinds)
        for model in (0, 1)
    ]


@contextmanager
def serving(*models: Path) -> Iterator[tuple[str, int]]:
    """A server in a process of its own: its address, and its number."""
    code = "from identiscope.commands.serve import serve; serve()"
    command = [sys.executable, "-u", "-c", code, *map(str, models), "--port", "0"]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    )
    try:
        assert running.stdout is not None
        line = running.stdout.readline()
        found = re.search(r"http://([^/]+)/", line)
        if found is None:
            raise RuntimeError(f"the server did not start: {line!r}")
        yield found[1], running.pid
    finally:
        running.send_signal(signal.SIGINT)
        try:
            running.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            running.kill()
            running.communicate()


def answer(address: str, question: dict[str, Any], client: str) -> dict[str, str]:
    """The page that a question gives: its header and all its numbers."""
    events = _ask(address, "POST", "/api/pages", question, client).decode()
    last = re.findall(r"event: (\w+)\ndata: (.*)", events)[-1]
    if last[0] != "done":
        raise RuntimeError(f"{last[0]}: {last[1]}")
    name = json.loads(last[1])["page"]
    header = json.loads(_ask(address, "GET", f"/api/pages/{name}", None, client))
    return {"header": json.dumps(header, sort_keys=True)} | {
        chunk: _ask(address, "GET", f"/api/pages/{name}/chunks/{chunk}", None, client).hex()
        for chunk in _chunks(header)
    }


def _chunks(header: dict[str, Any]) -> list[str]:
    """The chunks that the sections of a page have, by their names on the page."""
    return sorted(f"{section['name']}.{chunk}" for section in header["sections"] for chunk in section["chunks"])


def _ask(address: str, method: str, path: str, body: Any, client: str) -> bytes:
    connection = http.client.HTTPConnection(address, timeout=300)
    try:
        headers = {"Content-Type": "application/json", "X-Identiscope-Client": client}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        found = connection.getresponse()
        data = found.read()
        if found.status != 200:
            raise RuntimeError(f"{method} {path}: {found.status} {data[:200]!r}")
        return data
    finally:
        connection.close()


def memory(process: int) -> float:
    """MiB that a process holds."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 1024  # type: ignore[index]


def run(seconds: float | None = None, clients: int = CLIENTS, requests: int = REQUESTS) -> list[Outcome]:
    """So many clients with so many requests each, one after the other.

    seconds: the requests are spread over so many, and all clients ask at once.
    """
    from soak.tiny import save_tiny

    spread = seconds or 0.0
    failures: list[str] = []
    sizes: list[float] = []
    done = [0] * clients
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        # The second is followed through its replay, in turns; the first is not.
        models = save_tiny(Path(folder) / "first"), save_tiny(Path(folder) / "second", "MPNetModel")
        with serving(*models) as (address, process):
            asked = questions()
            alone = [answer(address, question, "alone") for question in asked]
            begun = time.monotonic()

            def work(number: int) -> None:
                chance = random.Random(number)
                while done[number] < requests:
                    passed = time.monotonic() - begun
                    if passed > spread + LATE:
                        failures.append(f"client {number} had time for {done[number]} of {requests} requests")
                        return
                    time.sleep(max(0.0, spread * done[number] / (requests - 1 or 1) - passed))
                    place = chance.randrange(len(asked))
                    try:
                        if answer(address, asked[place], f"client-{number}") != alone[place]:
                            failures.append(f"question {place}: another answer than alone")
                    except Exception as error:
                        failures.append(f"question {place}: {type(error).__name__}: {str(error)[:200]}")
                    done[number] += 1
                    sizes.append(memory(process))

            threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            passed = time.monotonic() - begun
    total = sum(done)
    answered = Outcome(
        f"{clients} clients get what one alone gets", total, tuple(failures), f"in {passed / 60:.0f} minutes"
    )
    return [answered, flat(sizes)]


def flat(sizes: Sequence[float]) -> Outcome:
    """Whether a server that held so many MiB after each request stopped growing: the last fifth beside the second.

    In the first, both models are asked everything, all clients at once, and pages are kept.
    """
    fifth = max(1, len(sizes) // 5)
    warm, last = median(sizes[fifth : 2 * fifth] or sizes), median(sizes[-fifth:])
    grown = (f"it grew from {warm:.0f} to {last:.0f} MiB",) if last - warm > MOST_GROWTH else ()
    goal = f"the server's memory grows by at most {MOST_GROWTH:.0f} MiB once it is warm"
    return Outcome(goal, len(sizes), grown, f"{warm:.0f} MiB, then {last:.0f} MiB")
