"""The local engine: this process, or some processes of this machine with a model each."""

import multiprocessing
from collections.abc import Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from identiscope.capture.models import Model
from identiscope.errors import InputError
from identiscope.runs.compute.batch import Worker
from identiscope.runs.compute.shard import Moved, ShardTask, compute_shard
from identiscope.runs.engines.work import Work, threads
from identiscope.runs.format.shards import ShardFiles

_WORKER: Worker | None = None


def run_here(work: Work, tasks: Iterator[ShardTask], model: Model, moved: Moved) -> Generator[ShardFiles]:
    """Compute the shards one after the other in this process."""
    worker = work.worker(model)
    with threads(worker.options.threads):
        for task in tasks:
            yield compute_shard(worker, task, moved)


def run_processes(work: Work, tasks: Iterator[ShardTask], workers: int, moved: Moved) -> Generator[ShardFiles]:
    """Compute the shards in some processes; they come in the order in which they are done."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(work, context.Value("i", 0)))
    running: set[Future[ShardFiles]] = set()
    try:
        for task in tasks:
            running.add(pool.submit(_compute, task))
            # Two shards for each worker: none waits, and no more of the corpus is held.
            if len(running) >= 2 * workers:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from _arrived(done, moved)
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from _arrived(done, moved)
    except BrokenProcessPool as error:
        raise InputError(
            "a worker process ended by itself; it may have run out of memory (fewer --workers or a smaller --batch-size"
            " need less). All shards written before are whole; the same command goes on."
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _arrived(done: set[Future[ShardFiles]], moved: Moved) -> Iterator[ShardFiles]:
    for future in done:
        shard = future.result()
        moved(shard.facts["texts"], shard.facts["tokens"])
        yield shard


def _begin(work: Work, begun: Any) -> None:
    """begun: how many workers have, which is the number of the next."""
    global _WORKER
    import torch

    with begun.get_lock():
        number = begun.value
        begun.value += 1
    _WORKER = work.worker(number=number)
    torch.set_num_threads(_WORKER.options.threads)


def _compute(task: ShardTask) -> ShardFiles:
    assert _WORKER is not None
    return compute_shard(_WORKER, task)
