"""The Ray engine: shards computed by the workers of a cluster, one model in each, and written here."""

from collections import Counter, deque
from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

from identiscope.capture.placement import kind_of_device
from identiscope.errors import IdentiscopeError, InputError
from identiscope.runs.compute.batch import Worker
from identiscope.runs.compute.shard import Moved, ShardTask, compute_shard
from identiscope.runs.engines.ray_cluster import Health, connected, import_ray, lost_connection
from identiscope.runs.engines.work import Work
from identiscope.runs.format.shards import ShardFiles

#: Seconds between looks at the cluster while nothing arrives.
_LOOK = 2.0
#: How often one shard may lose its worker: it may be the shard that ends them.
_MOST_LOSSES = 5


class ShardActor:
    """A worker on the cluster: holds a model, and computes shards."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.worker: Worker | None = None

    def load(self) -> None:
        """Load the model; not when it is made, so that what is wrong with it comes back as it was said."""
        import torch

        self.worker = self.work.worker()
        torch.set_num_threads(self.worker.options.threads)

    def compute(self, task: ShardTask) -> ShardFiles:
        """Compute a shard."""
        assert self.worker is not None
        return compute_shard(self.worker, task)


def run_ray(
    work: Work, tasks: Iterator[ShardTask], workers: int, moved: Moved, address: str | None = None
) -> Generator[ShardFiles]:
    """Compute the shards on a Ray cluster: the one at `address`, or one of this machine that ends with the Run.

    A task whose worker or machine dies is given to another; machines that join are used. Pickles pass between our own
    processes only.
    """
    with connected(workers, address) as health:
        check_gpus(import_ray(), work)
        for shard in _results(work, tasks, workers, health):
            moved(shard.facts["texts"], shard.facts["tokens"])
            yield shard


def resources(work: Work) -> dict[str, int]:
    """What one worker asks a cluster for: Ray counts the GPUs of CUDA, and shows a worker its own alone."""
    return {"num_cpus": 1} | ({"num_gpus": 1} if _on_gpu(work) else {})


def check_gpus(ray: Any, work: Work) -> None:
    """Refuse to wait for a GPU where there is none."""
    if _on_gpu(work) and not ray.cluster_resources().get("GPU"):
        raise InputError(
            "workers were to compute on cuda, and no machine of the Ray cluster has a GPU to give. Add one that has, or"
            " leave --device out."
        )


def _on_gpu(work: Work) -> bool:
    return bool(work.manifest["model"].get("device") == "cuda")


def for_cluster(loading: Mapping[str, Any]) -> dict[str, Any]:
    """How workers of a cluster load the model: the kind of device alone, of which Ray gives each its own."""
    device = loading.get("device")
    return {**loading, **({} if device is None else {"device": kind_of_device(device)})}


def _results(work: Work, tasks: Iterator[ShardTask], workers: int, health: Health) -> Iterator[ShardFiles]:
    ray = import_ray()
    actors = ray.remote(max_restarts=0, **resources(work))(ShardActor)
    waiting = deque(islice(tasks, workers))
    #: What was asked of whom: to load its model (no task), or to compute a task.
    asked: dict[Any, tuple[Any, ShardTask | None]] = {}
    losses: Counter[int | None] = Counter()

    def start() -> None:
        actor = actors.remote(work)
        asked[actor.load.remote()] = (actor, None)

    def give(actor: Any) -> None:
        task = waiting.popleft() if waiting else next(tasks, None)
        if task is not None:
            asked[actor.compute.remote(task)] = (actor, task)

    try:
        for _ in range(len(waiting)):
            start()
        while waiting or any(task is not None for _, task in asked.values()):
            done, _ = ray.wait(list(asked), timeout=_LOOK)
            if not done:
                health.check()
                continue
            health.look()
            actor, task = asked.pop(done[0])
            try:
                shard = ray.get(done[0])
            except ray.exceptions.RayTaskError as error:
                # What our own code said, on the worker.
                raise error.cause if isinstance(error.cause, IdentiscopeError) else error from None
            except ray.exceptions.RayError as error:
                # The worker is gone, or its machine. Another takes its place, where and as soon as there is one.
                health.check()
                number = None if task is None else task.number
                losses[number] += 1
                _give_up(losses, number, workers, error)
                if task is not None:
                    waiting.append(task)
                _end(ray, actor)
                start()
                continue
            losses[None] = 0
            give(actor)
            if shard is not None:
                yield shard
    except lost_connection() as error:
        # Ray's client has no other way to say it; of a head that was started anew it lets gRPC's own error through.
        health.give_up(f"does not answer any more, or was started anew ({_first_line(error)})")
    finally:
        # On a cluster that stays, nothing of ours does. Of one that is lost no worker is let go of while connected:
        # Ray would write on the terminal that it cannot tell.
        for worker, _ in () if health.lost else asked.values():
            _end(ray, worker)


def _end(ray: Any, actor: Any) -> None:
    # Where the connection is lost, any call would make Ray look for another cluster, and connect to that.
    if ray.is_initialized():
        with suppress(Exception):
            ray.kill(actor)


def _first_line(error: BaseException) -> str:
    details = getattr(error, "details", None)
    said = str(details() if callable(details) else error)
    return (said.splitlines() or [type(error).__name__])[0].rstrip(".")


def _give_up(losses: "Counter[int | None]", number: int | None, workers: int, error: Exception) -> None:
    if losses[number] < (_MOST_LOSSES if number is not None else _MOST_LOSSES + workers):
        return
    what = "workers end while they load the model" if number is None else f"shard {number} lost its worker"
    raise InputError(
        f"{what}, {losses[number]} times by now ({_first_line(error)}); memory may have run out (a smaller"
        " --batch-size, or fewer --workers on a machine, need less). All shards written before are whole; the same"
        " command goes on."
    ) from error
