"""Computations in threads of their own: a few at a time, in turn for all clients, each one cancellable.

Everything here but the computation itself happens on the event loop, which it never blocks.
"""

import asyncio
import ctypes
import secrets
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

from identiscope.errors import IdentiscopeError
from identiscope.progress import Listener, Progress, tell
from identiscope.views.page.data import Page

State = Literal["waiting", "running", "done", "failed", "cancelled"]

#: How long a computation may take to notice by itself that it is no longer wanted; then it is interrupted.
GRACE = 0.3

#: How long a job may go without anybody who reads its news.
UNWATCHED = 5.0


class Cancelled(BaseException):
    """Raised inside a computation that is no longer wanted. Not an Exception: nobody is to handle it on the way."""


class Full(IdentiscopeError):
    """There is no room for another computation now."""


class Job:
    """One computation: what it is doing, and what came of it. `changed` is set whenever there is news."""

    def __init__(self, client: str, work: Callable[[Progress], Page]) -> None:
        self.id = secrets.token_urlsafe(12)
        self.client = client
        self.work = work
        self.state: State = "waiting"
        self.progress: tuple[str, int, int] = ("", 0, 0)
        self.page: Page | None = None
        self.trouble = ""
        self.began: float | None = None
        self.changed = asyncio.Event()
        self.watched = False
        # Between the event loop and the thread.
        self.unwanted = False
        self.guard = threading.Lock()
        self.computing: int | None = None
        self.thread: threading.Thread | None = None
        self.deadline: asyncio.TimerHandle | None = None

    @property
    def over(self) -> bool:
        """Whether there will be no more news."""
        return self.state in ("done", "failed", "cancelled")


class Jobs:
    """Jobs that wait and jobs that run. Each client has one running at a time, so that none has all the threads."""

    def __init__(self, *, running: int = 2, waiting: int = 64, each: int = 8, seconds: float = 600) -> None:
        self.limits = {"running": running, "waiting": waiting, "each": each}
        self.seconds = seconds
        self.waiting: deque[Job] = deque()
        # A cancelled job stays here until its thread has really stopped.
        self.running: list[Job] = []

    def submit(self, client: str, work: Callable[[Progress], Page]) -> Job:
        """Put a computation in the queue; Full if the queue, or the client's part of it, is."""
        if len(self.waiting) >= self.limits["waiting"]:
            raise Full("too many computations are waiting here; try again in a moment.")
        if sum(job.client == client for job in self.waiting) >= self.limits["each"]:
            raise Full(f"{self.limits['each']} of your computations are waiting already; cancel one, or wait.")
        job = Job(client, work)
        # Whoever asked may have gone before the answer began.
        asyncio.get_running_loop().call_later(UNWATCHED, self._unwatched, job)
        self.waiting.append(job)
        self._next()
        return job

    def before(self, job: Job) -> int:
        """How many computations are ahead of this one."""
        return self.waiting.index(job) if job in self.waiting else 0

    def find(self, name: str) -> Job | None:
        """The job of this name that is not over yet."""
        return next((job for job in (*self.waiting, *self.running) if job.id == name), None)

    def cancel(self, job: Job, why: str = "cancelled") -> None:
        """Stop a job: at once if it waits, soon if it runs."""
        if job.over:
            return
        if job in self.waiting:
            self.waiting.remove(job)
            self._news(*self.waiting)
        job.state, job.trouble, job.unwanted = "cancelled", why, True
        self._news(job)
        if job in self.running:
            asyncio.get_running_loop().call_later(GRACE, self._press, job)

    def cancel_all(self) -> None:
        """Stop everything: the server ends."""
        for job in (*self.waiting, *self.running):
            self.cancel(job, "the server has been stopped")

    def end(self, seconds: float) -> bool:
        """When there is no event loop any more: interrupt what still runs; whether all has stopped in time."""
        end = time.monotonic() + seconds
        alive = [job for job in self.running if job.thread is not None and job.thread.is_alive()]
        while alive and time.monotonic() < end:
            for job in alive:
                job.unwanted = True
                _interrupt(job)
            time.sleep(0.05)
            alive = [job for job in alive if job.thread is not None and job.thread.is_alive()]
        return not alive

    def _next(self) -> None:
        """Start what can be started: the oldest job of a client that has none running."""
        loop = asyncio.get_running_loop()
        while len(self.running) < self.limits["running"]:
            busy = {job.client for job in self.running}
            job = next((one for one in self.waiting if one.client not in busy), None)
            if job is None:
                return
            self.waiting.remove(job)
            self.running.append(job)
            job.state, job.began = "running", time.monotonic()
            why = f"stopped after {self.seconds:g} seconds, the most it may take"
            job.deadline = loop.call_later(self.seconds, self.cancel, job, why)
            # A thread of its own: whatever an interrupt leaves behind in it goes with it.
            job.thread = threading.Thread(target=self._work, args=(job, loop), name=f"job-{job.id}", daemon=True)
            job.thread.start()
            self._news(job, *self.waiting)

    def _news(self, *jobs: Job) -> None:
        for job in jobs:
            job.changed.set()

    def _unwatched(self, job: Job) -> None:
        if not job.watched:
            self.cancel(job, "nobody waits for it")

    def _press(self, job: Job) -> None:
        """Interrupt a job again and again until it has stopped."""
        if job in self.running:
            _interrupt(job)
            asyncio.get_running_loop().call_later(2 * GRACE, self._press, job)

    def _work(self, job: Job, loop: asyncio.AbstractEventLoop) -> None:
        """In the thread: compute, then tell the event loop."""
        news = _News(job, lambda *step: loop.call_soon_threadsafe(self._moved, job, step))
        page, trouble = None, ""
        try:
            try:
                job.computing = threading.get_ident()
                tell(news, "starting", 0, 1)
                page = job.work(news)
            except IdentiscopeError as error:
                trouble = str(error)
            except MemoryError:
                trouble = "there is not enough memory for this; try a shorter text."
            except Exception as error:
                trouble = f"{type(error).__name__}: the computation failed; the server's terminal says more."
                _print_trouble()
            with job.guard:
                job.computing = None
                # An interrupt that was sent and has not arrived yet is no longer needed.
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), None)
        except Cancelled:
            page = None
        finally:
            # Once the loop is closed nobody waits for this any more.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._ended, job, page, trouble)

    def _moved(self, job: Job, progress: tuple[str, int, int]) -> None:
        job.progress = progress
        self._news(job)

    def _ended(self, job: Job, page: Page | None, trouble: str) -> None:
        self.running.remove(job)
        if job.deadline is not None:
            job.deadline.cancel()
        if not job.over:
            job.state = "done" if page is not None else "failed"
            job.page, job.trouble = page, trouble
        self._news(job)
        self._next()


class _News(Listener):
    """What a job is doing, passed on; raises when the job is no longer wanted."""

    def __init__(self, job: Job, pass_on: Callable[[str, int, int], object]) -> None:
        self.job, self.pass_on, self.words = job, pass_on, ""

    def __call__(self, done: int, total: int) -> None:
        if self.job.unwanted:
            raise Cancelled
        self.pass_on(self.words, done, total)

    def doing(self, words: str) -> None:
        self.words = words


def _interrupt(job: Job) -> None:
    """Raise Cancelled in the job's thread, wherever its Python code is."""
    _swallow_where_nothing_can_be_raised()
    with job.guard:
        if job.computing is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(job.computing), ctypes.py_object(Cancelled))


def _swallow_where_nothing_can_be_raised() -> None:
    """An interrupt that lands in a callback of the garbage collector is lost, and Python complains of it aloud.

    It is sent again until the job has stopped, so there is nothing to complain of.
    """
    before = sys.unraisablehook
    if getattr(before, "swallows_cancelled", False):
        return

    def hook(given: "sys.UnraisableHookArgs") -> None:
        if not issubclass(given.exc_type, Cancelled):
            before(given)

    hook.swallows_cancelled = True  # type: ignore[attr-defined]
    sys.unraisablehook = hook


def _print_trouble() -> None:
    import traceback

    traceback.print_exc()
