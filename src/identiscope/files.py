"""The one way to write a file: aside, flushed and renamed, so that what was there stays until the new one is whole.

And what is said of a file that cannot be read.
"""

import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from identiscope.errors import InputError

#: What the names of files begin with while they are written; a killed process may leave one behind.
ASIDE = ".part-"

_SAID = {
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "the quota is used up; free some space",
    errno.EFBIG: "that is larger than a file may be here; name another place",
    errno.EACCES: "there is no permission to write there; change it, or name another place",
    errno.EPERM: "there is no permission to write there; change it, or name another place",
    errno.EROFS: "the file system is read-only; name another place",
    errno.ENAMETOOLONG: "the name is longer than the file system takes; give a shorter one",
    errno.ENOENT: "a directory on the way is not there; make it, or name another place",
    errno.ENOTDIR: "something on the way is a file and no directory; name another place",
    errno.ELOOP: "its symbolic links lead in a circle; name another place",
    errno.ENXIO: "it is a pipe that nobody reads; start its reader first, or give a file",
    errno.EPIPE: "whoever read the pipe has gone; start again",
}


def write_file(path: str | Path, data: bytes) -> Path:
    """Write a whole file, or leave everything as it was.

    >>> write_file("result.json", b"{}")
    """
    with replacing(path) as aside:
        aside.write_bytes(data)
    return Path(path)


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A name beside `path` to write to; what is there at the end of the block is renamed to `path`.

    Symbolic links are followed, so that they stay links. A new file has the mode that the umask gives, one that is
    replaced keeps its own. Devices and pipes are written to, since nothing could take their place.

    >>> with replacing("figure.png") as aside:
    ...     figure.savefig(aside, format="png")
    """
    with saying(path):
        place = check_writable(path)
        before = _status(place)
        is_file = before is None or stat.S_ISREG(before.st_mode)
        aside = (place.parent if is_file else _temporary()) / f"{ASIDE}{secrets.token_hex(8)}"
        try:
            # Whoever writes to it opens a file that is there, and so leaves its mode alone.
            os.close(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            yield aside
            if not is_file:
                _pour(aside, place)
                return
            if before is not None:
                aside.chmod(stat.S_IMODE(before.st_mode))
            flush(aside)
            aside.rename(place)
            flush(place.parent)
        finally:
            with suppress(OSError):
                aside.unlink(missing_ok=True)
            if not is_file:
                shutil.rmtree(aside.parent, ignore_errors=True)


def check_writable(path: str | Path) -> Path:
    """Refuse a path that cannot be written, before the work that was to go there; else where its links lead."""
    with saying(path):
        place = _place(path)
        status = _status(place)
        mode = stat.S_IFREG if status is None else status.st_mode
        if stat.S_ISDIR(mode):
            raise InputError(f"{printable(path)} is a directory; give a file.")
        if stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
            kind = "a block device" if stat.S_ISBLK(mode) else "a socket"
            raise InputError(f"{printable(path)} is {kind}, which nothing is written to from here; give a file.")
        if status is not None and not os.access(place, os.W_OK):
            raise InputError(f"{printable(path)} is read-only; change that, or name another place.")
        if stat.S_ISREG(mode) and not (place.parent.is_dir() and os.access(place.parent, os.W_OK | os.X_OK)):
            raise InputError(
                f"{printable(path)} cannot be written: {printable(place.parent)} is no directory, or not writable."
            )
    return place


def _place(path: str | Path) -> Path:
    """Where links lead; a pipe without a name, as a shell's `>(cat)` gives, has only the path that leads to it."""
    place = Path(os.path.realpath(path))
    if not place.exists() and (given := _status(Path(path))) is not None and not stat.S_ISREG(given.st_mode):
        return Path(path)
    return place


def check_readable(path: str | Path) -> Path:
    """Refuse, before it is opened, what is no file that can be read; for a pipe one would wait without end."""
    with reading(path):
        place = Path(path)
        mode = place.stat().st_mode
        if stat.S_ISDIR(mode):
            raise InputError(f"{printable(path)} is a directory; give a file.")
        if not stat.S_ISREG(mode):
            kind = "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
            raise InputError(f"{printable(path)} is {kind}; give a regular file.")
        if not os.access(place, os.R_OK):
            raise InputError(f"{printable(path)} may not be read; change its permissions, or give another file.")
    return place


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Why the system does not let a file be read, said in words."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(f"there is no file {printable(path)}.") from error
    except OSError as error:
        raise InputError(f"{printable(path)} could not be read: {error.strerror or error}.") from error
    except ValueError as error:
        # A null byte, or a name that the file system's encoding cannot write.
        if isinstance(error, UnicodeEncodeError) or "null" in str(error):
            raise InputError(f"{printable(path)} is no name of a file: {error}. Give another.") from error
        raise


def make_directory(path: str | Path) -> Path:
    """A directory with all that lead to it, or an error that says why there can be none."""
    with saying(path):
        place = Path(path)
        if place.exists() and not place.is_dir():
            raise InputError(f"{printable(path)} is a file; give a directory.")
        place.mkdir(parents=True, exist_ok=True)
    return place


@contextmanager
def filling(directory: str | Path) -> Iterator[Path]:
    """An empty directory aside, for whoever writes several files by itself; they are in `directory` at the end.

    One that is not there yet comes into being by that, whole, and one that is there is added to. Files have the mode
    that the umask gives, whoever wrote them. Nothing is left where the block fails, nor of directories on the way.

    >>> with filling("checkpoint") as aside:
    ...     model.save_pretrained(aside)
    """
    place = Path(directory)
    with saying(place):
        made = [one for one in (place, *place.parents) if not one.exists()]
        beside = place.parent if made else place
        aside = beside / f"{ASIDE}{secrets.token_hex(8)}"
        try:
            make_directory(beside)
            aside.mkdir()
            yield aside
            mode = stat.S_IMODE(aside.stat().st_mode) & 0o666
            for path in aside.rglob("*"):
                if path.is_file():
                    path.chmod(mode)
                flush(path)
            if made:
                flush(aside)
                aside.rename(place)
            else:
                for path in sorted(aside.iterdir()):
                    path.rename(place / path.name)
            flush(beside)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            for one in made[1:]:
                with suppress(OSError):  # what somebody else has put there since stays
                    one.rmdir()
            raise
        shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def saying(path: str | Path, afterwards: str = "") -> Iterator[None]:
    """What the system refuses, said in words. afterwards: what is whole in any case."""
    try:
        yield
    except ValueError as error:
        # A null byte, or a name that the file system's encoding cannot write.
        if isinstance(error, UnicodeError) or "null" in str(error):
            raise InputError(f"{printable(path)} is no name of a file: {error}. Give another.") from error
        raise
    except Exception as error:
        # Libraries written in Rust (safetensors, tokenizers) have errors of their own, with the number in their words.
        number = re.search(r"\(os error ([0-9]+)\)", str(error))
        if not isinstance(error, OSError) and number is None:
            raise
        code = int(number[1]) if number else getattr(error, "errno", None) or 0
        reason = _SAID.get(code, f"{getattr(error, 'strerror', None) or error}; see to it, or name another place")
        raise InputError(
            f"{printable(path)} could not be written: {reason}.{afterwards and ' '}{afterwards}"
        ) from error


def printable(path: str | Path) -> str:
    """A path as any terminal can show it: bytes that are no UTF-8, and control characters, as their escapes."""
    text = str(path).encode("utf-8", "backslashreplace").decode("utf-8")
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def flush(path: Path) -> None:
    """See to it that a file, or the names in a directory, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _status(place: Path) -> os.stat_result | None:
    try:
        return place.stat()
    except FileNotFoundError:
        return None


def _temporary() -> Path:
    import tempfile

    return Path(tempfile.mkdtemp(prefix="identiscope-"))


def _pour(source: Path, node: Path) -> None:
    """Copy a file into a device or a pipe; a pipe that nobody reads is an error, and not a wait without end."""
    handle = os.open(node, os.O_WRONLY | os.O_NONBLOCK)
    os.set_blocking(handle, True)
    with source.open("rb") as given, os.fdopen(handle, "wb") as taken:
        shutil.copyfileobj(given, taken)
