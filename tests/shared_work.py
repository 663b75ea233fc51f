"""What tests would do again and again, done once: reading a model, compiling a loop."""

import copy
import fcntl
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numba.core.dispatcher import Dispatcher

from identiscope.capture import models

#: Bytes of all files of a model whose tokenizer is copied sooner than read.
TINY = 4_000_000


def read_once() -> None:
    """Whoever loads a model that takes seconds to unpack, or the tokenizer of a tiny one, gets a copy of what this
    process has read, if its files are as they were. Other models are read: copied weights lie elsewhere in memory,
    which changes the last digits of a pass."""
    models._read_model = _copied(models._read_model, tiny=False)
    models._read_tokenizer = _copied(models._read_tokenizer, tiny=True)


def _copied(read: Callable[..., Any], *, tiny: bool) -> Callable[..., Any]:
    kept: dict[Any, Any] = {}

    def reading(source: str, name: str, options: dict[str, Any], *more: Any) -> Any:
        folder = Path(source)
        if not folder.is_dir() or options.get("trust_remote_code"):
            return read(source, name, options, *more)
        files = sorted((path, path.stat()) for path in folder.iterdir())
        small = tiny and sum(facts.st_size for _, facts in files) <= TINY
        if not small and "gguf_file" not in options:
            return read(source, name, options, *more)
        key = (
            source,
            tuple(sorted((option, str(value)) for option, value in options.items())),
            tuple((path.name, facts.st_ino, facts.st_size, facts.st_mtime_ns) for path, facts in files),
        )
        if key not in kept:
            kept[key] = read(source, name, options, *more)
        return copy.deepcopy(kept[key])

    return reading


def compile_once() -> None:
    """Of several processes of a session one compiles at a time, so that the others find on disk what it compiled."""
    session = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if session is None:
        return
    path = Path(tempfile.gettempdir()) / f"identiscope-compiles-{session}"
    compile_now, in_process, depth = Dispatcher.compile, threading.RLock(), [0]

    @contextmanager
    def alone() -> Iterator[None]:
        with in_process:
            depth[0] += 1
            try:
                # What is compiled may need others to be compiled.
                if depth[0] > 1:
                    yield
                    return
                with path.open("w") as file:
                    fcntl.flock(file, fcntl.LOCK_EX)
                    yield
            finally:
                depth[0] -= 1

    def compiling(self: Any, signature: Any) -> Any:
        with alone():
            return compile_now(self, signature)

    Dispatcher.compile = compiling  # type: ignore[assignment, method-assign]
