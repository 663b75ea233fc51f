"""One process at a time writes a Run. The lock is the kernel's, so it goes with the process that held it."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from identiscope.careful_reading import check_regular
from identiscope.errors import InputError
from identiscope.files import printable
from identiscope.runs.format.shards import writing

NAME = ".lock"


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory, or say who does. A lock file that a killed process left behind is no lock."""
    try:
        import fcntl
    except ImportError as error:  # not a POSIX system
        raise InputError("a Run needs a POSIX system, whose file locks keep two of them apart.") from error
    path = directory / NAME
    while True:
        with writing(path):
            check_regular(path)
            # A link is not followed, since what it leads to would be written over.
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(handle, 200).decode(errors="replace").strip() or "another process"
            os.close(handle)
            raise InputError(
                f"{printable(directory)} is being written by {holder}. Wait for it, or name another directory."
            ) from error
        except OSError as error:
            os.close(handle)
            raise InputError(
                f"{printable(path)} cannot be locked: {error}. Name a directory on a file system that has locks."
            ) from error
        # The holder before us may have removed the file between our opening and locking it.
        if _is_same(path, handle):
            break
        os.close(handle)
    try:
        with writing(path):
            os.ftruncate(handle, 0)
            os.write(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def _is_same(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(handle))
    except FileNotFoundError:
        return False
