"""The Ray engine: shards computed by the workers of a cluster, one model in each, and written here."""

import logging
import pickle
from collections.abc import Iterator
from itertools import chain
from typing import Any

from identiscope.corpus.engines.work import Work
from identiscope.corpus.run_shard import Moved, ShardFiles, ShardTask, compute_shard
from identiscope.errors import InputError

#: Texts (in bytes) given to the cluster at a time: memory stays that, and models are loaded once for each.
WAVE_BYTES = 2**26


class ShardActor:
    """What Ray Data calls on its workers: holds a model, takes rows that each hold a task, returns rows with files."""

    def __init__(self, work: Work) -> None:
        import torch

        self.worker = work.worker()
        torch.set_num_threads(self.worker.options.threads)

    def __call__(self, rows: dict[str, Any]) -> dict[str, Any]:
        """Compute the tasks of some rows."""
        shards = [compute_shard(self.worker, pickle.loads(task)) for task in rows["task"]]
        return {"shard": [pickle.dumps(shard) for shard in shards]}


def run_ray(
    work: Work, tasks: Iterator[ShardTask], workers: int, moved: Moved, address: str | None = None
) -> Iterator[ShardFiles]:
    """Compute the shards on a Ray cluster: the one at `address`, or one of this machine that ends with the Run.

    A task whose worker dies is given to another. Pickles pass between our own processes only.
    """
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise InputError('the Ray engine needs Ray: pip install "identiscope[ray]".') from error
    options: dict[str, Any] = {"address": address} if address else {"num_cpus": workers, "include_dashboard": False}
    started = not ray.is_initialized()
    if started:
        try:
            ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
        except ConnectionError as error:
            raise InputError(f"no Ray cluster answers at {address}: {error}") from error
    # Ray Data says on the standard error what it does; a Run has its own words.
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    try:
        for wave in _waves(tasks):
            rows = [{"task": pickle.dumps(task)} for task in wave]
            shards = ray.data.from_items(rows, override_num_blocks=len(rows)).map_batches(
                ShardActor,
                fn_constructor_args=(work,),
                batch_size=1,
                compute=ray.data.ActorPoolStrategy(size=min(workers, len(rows)), max_tasks_in_flight_per_actor=2),
            )
            for row in shards.iter_rows():
                shard = pickle.loads(row["shard"])
                moved(shard.facts["texts"], shard.facts["tokens"])
                yield shard
    finally:
        if started:
            ray.shutdown()


def _waves(tasks: Iterator[ShardTask]) -> Iterator[list[ShardTask]]:
    for first in tasks:
        wave, size = [], 0
        for task in chain([first], tasks):
            wave.append(task)
            size += sum(len(part) for text in task.texts for part in text.parts)
            if size >= WAVE_BYTES:
                break
        yield wave
