"""Run methods over a corpus into a directory: streamed, resumable, the same bytes however it was computed."""

import os
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from identiscope.capture.models import Model, load
from identiscope.careful_reading import DamagedRun, json_bytes, read_bounded
from identiscope.corpus.readers import Corpus
from identiscope.errors import InputError
from identiscope.files import make_directory, printable, saying, write_file
from identiscope.methods.structure.shared_subspace import from_arrays
from identiscope.numbers import whole_number
from identiscope.progress import Listener, Progress
from identiscope.runs.compute.batch import Worker, model_shape
from identiscope.runs.compute.corpus_copy import CorpusCopy
from identiscope.runs.compute.costs import RunCosts, run_costs
from identiscope.runs.compute.identity import CorpusFacts, run_manifest
from identiscope.runs.compute.options import RunOptions
from identiscope.runs.compute.shard import ShardTask, measured_task
from identiscope.runs.compute.texts import measure
from identiscope.runs.engines.local import run_here, run_processes
from identiscope.runs.engines.ray import for_cluster, run_ray
from identiscope.runs.engines.ray_cluster import check_ray
from identiscope.runs.engines.work import Work
from identiscope.runs.format.lock import NAME as LOCK
from identiscope.runs.format.lock import locked
from identiscope.runs.format.manifest import NAME, check_same, has_manifest, read_manifest
from identiscope.runs.format.opened_run import Run, open_run
from identiscope.runs.format.repair import finished_shards
from identiscope.runs.format.seal import SEAL, seal_bytes
from identiscope.runs.format.shards import SHARDS, ShardFiles, is_unfinished, remove_unfinished, write_shard
from identiscope.runs.format.subspaces import Arrays
from identiscope.runs.format.summary import summary_files

ENGINES = ("local", "ray")
_MOST_WORKERS = 2**14
_FEW_TEXTS = 8


@dataclass(frozen=True)
class RunProgress:
    """How far a Run is: texts done before it was (re)started, done now, and in all; tokens and seconds of now; what it
    will cost, if that was found out before the work."""

    before: int
    texts: int
    total: int
    tokens: int
    seconds: float
    costs: RunCosts | None = None

    @property
    def tokens_per_second(self) -> float:
        """Tokens of a second of now."""
        return self.tokens / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """What the rest will take at this pace, or by what was found out before; None where nothing is known."""
        if not self.texts:
            return None if self.costs is None else self.costs.total
        return (self.total - self.before - self.texts) * self.seconds / self.texts


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a Run; the message says that it can go on."""


def run_corpus(
    model: Any,
    corpus: "str | Path | Corpus",
    directory: str | Path,
    *,
    options: RunOptions | None = None,
    text_columns: Sequence[str] | None = None,
    label_column: str | None = None,
    limit: int | None = None,
    loading: dict[str, Any] | None = None,
    engine: str = "local",
    workers: int = 1,
    address: str | None = None,
    repair: bool = False,
    modules: Sequence[str] = (),
    progress: Progress | None = None,
) -> Run:
    """Run methods over a corpus into a directory, or go on with a Run that was interrupted there.

    >>> run = run_corpus("minilm", "pairs", "my-run", options=RunOptions(methods=("attention",)))

    corpus: a built-in name (`pairs`, `passages`), a file, a directory or an id, as `read_corpus` takes it, with its
    text_columns, label_column and limit. loading: options of `identiscope.load`, such as a revision or a device. With
    the device "cuda" workers have a GPU each, as far as there are enough; "cuda:1" is one for all of them. engine:
    "local", in this process or with `workers` processes, or "ray", on the cluster at `address` or a local one. repair:
    move damaged shards aside and compute them again, rather than stop at them. modules: those that bring what the Run
    computes beside methods; every worker imports them. progress: called with how many texts are
    done, and of how many; an `identiscope.progress.Listener` hears the pace, and beforehand what each method will cost,
    unless there are so few texts that finding out would take as long as the work. The directory ends with the same
    bytes whichever engine is chosen.
    """
    options = options or RunOptions()
    directory = Path(directory)
    if engine not in ENGINES:
        raise InputError(f"engine {engine!r} was asked for; expected local or ray.")
    workers = whole_number("workers", workers, 1, _MOST_WORKERS)
    named = isinstance(model, (str, Path))
    if not named and (engine == "ray" or workers > 1):
        raise InputError("a model in memory stays in one process; give its name or directory for several workers.")
    if engine == "ray":
        check_ray(address)
    _check_directory(directory)
    read = corpus if isinstance(corpus, Corpus) else Corpus(str(corpus), text_columns, label_column, limit)
    with closing(CorpusCopy(read, options.shard_size)) as copy:
        facts = copy.facts
        loading = dict(loading or {})
        device = None
        if engine == "ray":
            loading = for_cluster(loading)
            # The machine that starts a Run need not have what its workers have.
            device = loading.get("device")
        loaded = load(model, **{**loading, **({} if device is None else {"device": "cpu"})})
        manifest = run_manifest(loaded, loading, model_shape(loaded, options), facts, options, device)
        make_directory(directory)
        with locked(directory):
            if has_manifest(directory):
                check_same(directory, read_manifest(directory), manifest)
            else:
                _check_directory(directory)
                _refuse_long(loaded, read.source, copy, options)
                write_file(directory / NAME, json_bytes(manifest))
            done = finished_shards(directory, manifest, facts.shards, repair=repair)
            # After the manifest: a directory with anything else and none would be taken for somebody else's.
            make_directory(directory / SHARDS)
            remove_unfinished(directory)
            clock = _Clock(sum(record["texts"] for record in done.values()), facts.texts, progress)
            work = Work(manifest, str(model), loading, tuple(modules))
            tasks = _tasks(copy, manifest["shards"], options.shard_size, done)
            if len(done) < manifest["shards"]:
                if progress is not None and device in (None, "cpu"):
                    tasks = _with_costs(work.worker(loaded), tasks, clock, workers)
                results: Generator[ShardFiles]
                if engine == "ray":
                    results = run_ray(work, tasks, workers, clock.moved, address)
                elif workers > 1:
                    results = run_processes(work, tasks, workers, clock.moved)
                else:
                    results = run_here(work, tasks, loaded, clock.moved)
                with closing(results):
                    _write_all(directory, manifest, facts, results, done)
            files, records = summary_files(directory, manifest, merge_subspaces)
            # The seal last: it says that all else is there.
            for name, data in (files | {SEAL: seal_bytes(manifest, records, files)}).items():
                if not _holds(directory / name, data):
                    write_file(directory / name, data)
    return open_run(directory)


def _check_directory(directory: Path) -> None:
    """Refuse a directory that is a file, or somebody else's."""
    with saying(directory):
        if not os.path.exists(directory):
            return
        if not directory.is_dir():
            raise InputError(f"{printable(directory)} is a file; give a directory.")
        foreign = [name for name in os.listdir(directory) if name != LOCK and not is_unfinished(name)]
    if foreign and NAME not in foreign:
        raise InputError(
            f"{printable(directory)} holds other files ({printable(min(foreign))}) and no Run; name an empty directory."
        )


def _refuse_long(model: Model, source: str, copy: CorpusCopy, options: RunOptions) -> None:
    """Where texts that are too long are refused: before any work, with how many there are.

    What is found out about the texts is kept, so that no worker has to find it out again.
    """
    if options.too_long != "refuse":
        return
    long: list[tuple[int, int]] = []
    number = 0
    for text in copy.texts():
        one = measure(model, [text], options)[0]
        copy.add_measured(one)
        if one.status == "too long":
            long.append((number, one.tokens))
        number += 1
    if long:
        raise InputError(
            f"{len(long)} of {number} texts of {printable(source)} are too long, first text {long[0][0]} with"
            f' {long[0][1]} tokens. Cut such texts (too_long="cut", on the command line --too-long cut), or keep their'
            " places without statistics (keep)."
        )


def _tasks(copy: CorpusCopy, shards: int, size: int, done: Mapping[int, Any]) -> Iterator[ShardTask]:
    """The shards that are not there yet, in order."""
    texts, measured = copy.texts(), copy.measured()
    for number in range(shards):
        part = tuple(islice(texts, size))
        known = None if measured is None else tuple(islice(measured, size))
        if number not in done:
            yield ShardTask(number, number * size, part, known)


def _write_all(
    directory: Path,
    manifest: dict[str, Any],
    facts: CorpusFacts,
    results: Iterator[ShardFiles],
    done: dict[int, dict[str, Any]],
) -> None:
    try:
        for shard in results:
            if shard.facts["corpus"] != facts.shards[shard.number]:
                raise InputError(
                    f"shard {shard.number} came back made of other texts than were given; nothing was written."
                )
            done[shard.number] = write_shard(directory, manifest, shard)
    except KeyboardInterrupt:
        texts = sum(record["texts"] for record in done.values())
        raise Interrupted(
            f"interrupted: {texts} of {manifest['corpus']['texts']} texts are in {printable(directory)}; the same"
            " command goes on."
        ) from None
    if len(done) != manifest["shards"]:
        missing = sorted(set(range(manifest["shards"])) - set(done))
        raise InputError(f"shards {missing[:5]} did not arrive; the same command goes on.")


def merge_subspaces(one: Arrays, other: Arrays) -> Arrays:
    """Sums of projectors of the texts of both, in this order."""
    return from_arrays(one).merge(from_arrays(other)).arrays()


def _holds(path: Path, data: bytes) -> bool:
    """Whether a file has just these bytes already."""
    try:
        return read_bounded(path, len(data)) == data
    except DamagedRun:
        return False


def _with_costs(worker: Worker, tasks: Iterator[ShardTask], clock: "_Clock", workers: int) -> Iterator[ShardTask]:
    """The same tasks, after it was said what they will cost; of a few texts that is not worth the time."""
    left = clock.total - clock.before
    if left <= _FEW_TEXTS:
        return tasks
    first = measured_task(worker, next(tasks))
    clock.tell(run_costs(worker, first, left, workers))
    return chain([first], tasks)


class _Clock:
    """Turns what engines report into a `RunProgress`."""

    def __init__(self, before: int, total: int, progress: Progress | None) -> None:
        self.before, self.total, self.progress = before, total, progress
        self.texts = self.tokens = 0
        self.costs: RunCosts | None = None
        self.begun = time.monotonic()

    def tell(self, costs: RunCosts | None) -> None:
        """Say what the Run will cost; the work begins now."""
        self.costs = costs
        self.begun = time.monotonic()
        if costs is not None:
            self.moved(0, 0)

    def moved(self, texts: int, tokens: int) -> None:
        """Some texts are done."""
        self.texts += texts
        self.tokens += tokens
        if self.progress is not None:
            if isinstance(self.progress, Listener):
                seconds = time.monotonic() - self.begun
                state = RunProgress(self.before, self.texts, self.total, self.tokens, seconds, self.costs)
                self.progress.running(state)
            self.progress(self.before + self.texts, self.total)
