"""CPU time on one thread, and ratios of it: what a claim of speed is made of."""

import time
from collections.abc import Callable

import torch
from claims import at_least


def one_thread() -> None:
    """Let torch use one thread; start Python with OMP_NUM_THREADS=1 so that NumPy and SciPy do too."""
    torch.set_num_threads(1)


def cpu_seconds(function: Callable[[], object], repeats: int = 5) -> float:
    """Least CPU time of one call, after one call that does not count."""
    function()
    return least_seconds(function, repeats)


def least_seconds(function: Callable[[], object], repeats: int = 1) -> float:
    """Least CPU time of one call, the first included: for calls too slow to warm up."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def faster(name: str, slow: float, fast: float, wanted: float | None = None) -> None:
    """Say how many times faster, and claim that it is as many as wanted; without that it is only said."""
    print(f"{name}: {slow * 1e3:,.1f} ms / {fast * 1e3:,.2f} ms = {slow / fast:,.1f}×", flush=True)
    if wanted is not None:
        at_least(name, slow / fast, wanted, "×")
