"""What a Run will cost, by method, told before the work: some of its texts are run, and timed."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from identiscope.runs.compute.batch import FORWARD, Worker, compute_batch, trace_methods
from identiscope.runs.compute.shard import ShardTask, measured_task
from identiscope.runs.compute.texts import batches, rows_of
from identiscope.runs.engines.work import threads


@dataclass(frozen=True)
class RunCosts:
    """Seconds that a batch of so many texts takes in each method (and in the forward pass, which they share), and that
    all texts of the Run will take together, as far as such a batch tells."""

    texts: int
    seconds: Mapping[str, float]
    total: float


def run_costs(worker: Worker, task: ShardTask, texts: int, workers: int) -> RunCosts | None:
    """Time the middle batch of a shard. texts: how many are to be done, by so many workers.

    Methods that follow each text by itself are timed on one text, of middling length.
    """
    options = worker.options
    measured = measured_task(worker, task).measured
    assert measured is not None
    made = batches(measured, worker.batch_size)
    if not made:
        return None
    numbers = made[len(made) // 2]
    given = rows_of(measured, numbers)
    middle = [given[len(given) // 2]]
    traced = tuple(trace_methods(options))
    together = tuple(name for name in options.methods if name not in traced)
    seconds: dict[str, float] = {}
    with threads(options.threads):
        for methods, batch in ((together, given), (traced, middle)):
            if methods:
                own = Worker(worker.model, replace(options, methods=methods), worker.shape, worker.products)
                if methods == together:
                    # The first pass does what is done once, and would not tell.
                    compute_batch(own, middle)
                by_method = compute_batch(own, batch).seconds
                times = {name: value * len(given) / len(batch) for name, value in by_method.items()}
                seconds = times | seconds
    seconds = {name: seconds[name] for name in (FORWARD, *options.methods)}
    return RunCosts(len(given), seconds, sum(seconds.values()) / len(given) * texts / workers)
