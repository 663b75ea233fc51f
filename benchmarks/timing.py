"""CPU time on one thread, and ratios of it: what a claim of speed is made of."""

import time
from collections.abc import Callable

import torch


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


def report(name: str, slow: float, fast: float, wanted: float) -> bool:
    """Print how many times faster, and whether that is as fast as claimed."""
    ratio, enough = slow / fast, slow / fast >= wanted
    print(
        f"{name:<66} {slow * 1e3:>10.1f} ms / {fast * 1e3:>8.2f} ms = {ratio:>7.1f}x  (claim: {wanted:g}x)", flush=True
    )
    return enough
