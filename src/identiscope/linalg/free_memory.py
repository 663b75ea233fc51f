"""How much memory is free, asked before it is needed: on most systems nobody refuses it, and the process is ended."""

from pathlib import Path

import torch

from identiscope.errors import IdentiscopeError, InputError

#: Less than this is not asked about: reading how much is free takes as long as a map of so few bytes.
SMALL = 2**24

_GROUPS = ("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")


def free_memory(device: torch.device | str = "cpu") -> int | None:
    """Bytes that are free on a device; None where it cannot be told."""
    device = torch.device(device)
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        # What the allocator holds and does not use is free for us.
        return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    if device.type != "cpu":
        return None
    known = [size for size in (_available(), _left_of_group(), _left_of_process()) if size is not None]
    return min(known, default=None)


def check_free(
    needed: int, device: torch.device | str, what: str, lower: str, kind: type[IdentiscopeError] = InputError
) -> None:
    """An error that says how much `what` needs, how much there is, and what to lower, if it is too little."""
    free = None if needed < SMALL else free_memory(device)
    if free is not None and needed > free:
        raise kind(
            f"{what} needs about {in_words(needed)} of memory on {device}, where {in_words(free)} are free. {lower}"
        )


def in_words(size: int) -> str:
    """So many bytes, to be read.

    >>> in_words(3 * 2**30), in_words(2**20)
    ('3.0 GiB', '1 MiB')
    """
    return f"{size / 2**30:,.1f} GiB" if size >= 2**29 else f"{size / 2**20:,.0f} MiB"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this is what Python, NumPy or torch says when memory was refused."""
    said = str(error).lower()
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or (
        isinstance(error, RuntimeError) and ("out of memory" in said or "can't allocate memory" in said)
    )


def _available() -> int | None:
    """What Linux says could be had without swapping."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):  # not every system says
        return None


def _left_of_group() -> int | None:
    """What a container may still have."""
    for limit, used in _GROUPS:
        folder = Path("/sys/fs/cgroup")
        try:
            return int((folder / limit).read_text()) - int((folder / used).read_text()) + _cached(folder)
        except (OSError, ValueError):  # no such group, or "max", which is no limit
            continue
    return None


def _left_of_process() -> int | None:
    """What this process may still have, where its address space is limited (`ulimit -v`, as on many clusters)."""
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except (ImportError, OSError, ValueError):  # not every system knows such limits
        return None
    return None if limit == resource.RLIM_INFINITY else max(0, limit - pages * resource.getpagesize())


def _cached(folder: Path) -> int:
    """What the group holds of files, which it gives up when memory is asked for."""
    try:
        lines = (folder / "memory.stat").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))
    except (OSError, ValueError, StopIteration):
        return 0
