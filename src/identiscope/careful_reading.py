"""Files of a Run read with care, since a directory may be damaged or come from anybody.

Only regular files in their place are read, never links, pipes or devices; never more than was to be expected; and
whatever is inside, what comes out is as it must be, or a `DamagedRun` says what is wrong.
"""

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from identiscope.errors import IdentiscopeError, InputError
from identiscope.files import printable

_CHUNK = 2**20


class DamagedRun(InputError):
    """A file of a Run that is missing, damaged, or not of this Run."""


@contextmanager
def opened(path: Path, *, most: int) -> Iterator[tuple[int, int]]:
    """A handle of a regular file, and its size; refused if it is something else or larger than `most`."""
    try:
        _refuse_other(path, os.lstat(path).st_mode)
        # Between the look and the opening it may have become something else: no link is followed, no pipe waited for.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError as error:
        raise DamagedRun(f"{printable(path)} is missing.") from error
    except (OSError, ValueError) as error:
        raise DamagedRun(f"{printable(path)} cannot be read: {error}.") from error
    try:
        status = os.fstat(handle)
        _refuse_other(path, status.st_mode)
        if status.st_size > most:
            raise DamagedRun(
                f"{printable(path)} is damaged: it has {status.st_size} bytes, at most {most} can be right."
            )
        yield handle, status.st_size
    except OSError as error:
        raise DamagedRun(f"{printable(path)} cannot be read: {error}.") from error
    finally:
        os.close(handle)


def read_bounded(path: Path, most: int) -> bytes:
    """A whole regular file of at most so many bytes."""
    with opened(path, most=most) as (handle, size):
        return b"".join(_chunks(handle, size))


def file_facts(path: Path, most: int) -> dict[str, Any]:
    """The size and hash of a file, in the memory of a part of it."""
    with opened(path, most=most) as (handle, size):
        read, length = hashlib.sha256(), 0
        for chunk in _chunks(handle, size):
            read.update(chunk)
            length += len(chunk)
    return {"bytes": length, "sha256": read.hexdigest()}


def facts_of(data: bytes) -> dict[str, Any]:
    """The size and hash of some bytes, as records hold them."""
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def check_directory(path: Path) -> None:
    """Refuse what is no directory of its own, such as a link to one."""
    try:
        mode = os.lstat(path).st_mode
    except OSError as error:
        raise DamagedRun(f"{printable(path)} is missing: {error.strerror}.") from error
    if not stat.S_ISDIR(mode):
        raise DamagedRun(f"{printable(path)} is {_kind(mode)}; a Run has a directory there.")


def check_regular(path: Path) -> None:
    """Refuse what is there and is no regular file, such as a link to one."""
    with suppress(FileNotFoundError):
        _refuse_other(path, os.lstat(path).st_mode)


def read_json(path: Path, most: int) -> tuple[Any, bytes]:
    """The value in a JSON file, and its bytes."""
    data = read_bounded(path, most)
    with understanding(printable(path)):
        return parse_json(data), data


def parse_json(data: bytes) -> Any:
    """The value of a JSON text; what only Python takes for JSON is refused."""
    return json.loads(data.decode("utf-8"), parse_constant=_no_number)


def canonical(value: Any) -> bytes:
    """The one way a JSON value is written to be hashed."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode(*_ENCODING)


def json_bytes(value: Any) -> bytes:
    """A JSON value as it is written to a file, always in the same bytes."""
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode(*_ENCODING)


def hashed(body: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object with the hash of itself."""
    return {**body, "hash": hashlib.sha256(canonical(body)).hexdigest()}


def check_hashed(path: Path, value: Mapping[str, Any], data: bytes) -> None:
    """Refuse a JSON object that does not match its own hash, or is not written as it was."""
    if value != hashed({name: part for name, part in value.items() if name != "hash"}) or data != json_bytes(value):
        raise DamagedRun(f"{printable(path)} is damaged: it does not match its own hash.")


@contextmanager
def understanding(what: str) -> Iterator[None]:
    """Whatever goes wrong in making sense of bytes is damage: libraries that read formats raise many kinds."""
    try:
        yield
    except IdentiscopeError:
        raise
    except Exception as error:
        raise DamagedRun(f"{what} is damaged: {type(error).__name__}: {_first_line(error)}.") from error


#: A lone surrogate, which a name that is no UTF-8 holds, is written as the escape that JSON has for it.
_ENCODING = ("utf-8", "backslashreplace")


def _chunks(handle: int, size: int) -> Iterator[bytes]:
    """At most so many bytes, in parts; fewer if the file was cut meanwhile."""
    while size > 0 and (chunk := os.read(handle, min(size, _CHUNK))):
        size -= len(chunk)
        yield chunk


def _refuse_other(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise DamagedRun(f"{printable(path)} is {_kind(mode)}; a Run has a regular file there.")


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a directory",
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFIFO: "a pipe",
        stat.S_IFREG: "a file",
    }
    return kinds.get(stat.S_IFMT(mode), "a device or socket")


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _first_line(error: Exception) -> str:
    return printable((str(error).splitlines() or [""])[0][:200]).rstrip(".")
