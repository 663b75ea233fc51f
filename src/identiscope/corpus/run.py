"""Run methods over a corpus into a directory: streamed, resumable, the same bytes however it was computed."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from identiscope.capture.models import Model, load
from identiscope.corpus.engines.local import run_here, run_processes
from identiscope.corpus.engines.ray import run_ray
from identiscope.corpus.engines.work import Work
from identiscope.corpus.lock import locked
from identiscope.corpus.manifest import NAME, CorpusFacts, check_same, make_manifest, manifest_bytes, read_manifest
from identiscope.corpus.opened_run import Run, open_run
from identiscope.corpus.readers import Corpus, Text
from identiscope.corpus.run_batch import model_shape
from identiscope.corpus.run_options import RunOptions
from identiscope.corpus.run_shard import ShardFiles, ShardTask
from identiscope.corpus.run_summary import summary_files
from identiscope.corpus.run_texts import measure, text_hash
from identiscope.corpus.shards import (
    DamagedShard,
    finished_shards,
    read_record,
    read_shard_file,
    remove_unfinished,
    shard_path,
    write_shard,
    writing,
)
from identiscope.errors import InputError
from identiscope.files import make_directory, write_file

ENGINES = ("local", "ray")


@dataclass(frozen=True)
class RunProgress:
    """How far a Run is: texts done before it was (re)started, done now, and in all; tokens and seconds of now."""

    before: int
    texts: int
    total: int
    tokens: int
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        """Tokens of a second of now."""
        return self.tokens / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """What the rest will take at this pace; None before anything is done."""
        return (self.total - self.before - self.texts) * self.seconds / self.texts if self.texts else None


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
    progress: Callable[[RunProgress], None] | None = None,
) -> Run:
    """Run methods over a corpus into a directory, or go on with a Run that was interrupted there.

    >>> run = run_corpus("minilm", "pairs", "my-run", options=RunOptions(methods=("attention",)))

    corpus: a built-in name (`pairs`, `passages`), a file, a directory or an id, as `read_corpus` takes it, with its
    text_columns, label_column and limit. loading: options of `identiscope.load`, such as a revision. engine: "local",
    in this process or with `workers` processes, or "ray", on the cluster at `address` or a local one. repair: compute
    damaged shards again, rather than stop at them. The directory ends with the same bytes whichever is chosen.
    """
    options = options or RunOptions()
    directory = Path(directory)
    if engine not in ENGINES or workers < 1:
        raise InputError(
            f"engine {engine!r} with {workers} workers was asked for; expected local or ray, and 1 or more."
        )
    named = isinstance(model, (str, Path))
    if not named and (engine == "ray" or workers > 1):
        raise InputError("a model in memory stays in one process; give its name or directory for several workers.")
    read = corpus if isinstance(corpus, Corpus) else Corpus(str(corpus), text_columns, label_column, limit)
    facts = corpus_facts(read)
    loaded = load(model, **(loading or {}))
    manifest = make_manifest(loaded, loading or {}, model_shape(loaded, options), facts, options)
    _make_directory(directory)
    with locked(directory):
        if (directory / NAME).is_file():
            check_same(directory, read_manifest(directory), manifest)
        else:
            _refuse_long(loaded, read, options)
            write_file(directory / NAME, manifest_bytes(manifest))
        # After the manifest: a directory with anything else and none would be taken for somebody else's.
        with writing(directory):
            (directory / "shards").mkdir(exist_ok=True)
        remove_unfinished(directory)
        done = _finished(directory, manifest, repair)
        clock = _Clock(sum(record["texts"] for record in done.values()), facts.texts, progress)
        work = Work(manifest, str(model), loading or {})
        tasks = _tasks(read, facts, options.shard_size, done)
        if len(done) < manifest["shards"]:
            results: Iterator[ShardFiles]
            if engine == "ray":
                results = run_ray(work, tasks, workers, clock.moved, address)
            elif workers > 1:
                results = run_processes(work, tasks, workers, clock.moved)
            else:
                results = run_here(work, tasks, loaded, clock.moved)
            _write_all(directory, manifest, results, done)
        for name, data in summary_files(directory, manifest).items():
            write_file(directory / name, data)
    return open_run(directory)


def corpus_facts(corpus: Corpus) -> CorpusFacts:
    """A first pass: how many texts there are, and their hash; bad files are found before any work."""
    count = 0

    def counted() -> Iterable[Text]:
        nonlocal count
        for text in corpus.read():
            count += 1
            yield text

    digest = text_hash(counted()).hexdigest()
    return CorpusFacts(corpus.source, count, digest)


def _make_directory(directory: Path) -> None:
    make_directory(directory)
    with writing(directory):
        foreign = [path.name for path in directory.iterdir() if not path.name.startswith((".lock", ".part-"))]
        if foreign and NAME not in foreign:
            raise InputError(f"{directory} holds other files ({foreign[0]}) and no Run; name an empty directory.")


def _refuse_long(model: Model, corpus: Corpus, options: RunOptions) -> None:
    """Where texts that are too long are refused: before any work, with how many there are."""
    if options.too_long != "refuse":
        return
    long: list[tuple[int, int]] = []
    number = 0
    for text in corpus.read():
        one = measure(model, [text], options)[0]
        if one.status == "too long":
            long.append((number, one.tokens))
        number += 1
    if long:
        raise InputError(
            f"{len(long)} of {number} texts of {corpus.source} are too long, first text {long[0][0]} with {long[0][1]}"
            ' tokens. Cut such texts (too_long="cut", on the command line --too-long cut), or keep their places'
            " without statistics (keep)."
        )


def _finished(directory: Path, manifest: dict[str, Any], repair: bool) -> dict[int, dict[str, Any]]:
    if repair:
        import shutil

        for path in sorted((directory / "shards").glob("[0-9]*")):
            try:
                record = read_record(path, manifest["run"])
                for name in record["files"]:
                    read_shard_file(path, record, name)
            except DamagedShard:
                shutil.rmtree(path)
    return finished_shards(directory, manifest)


def _tasks(corpus: Corpus, facts: CorpusFacts, size: int, done: dict[int, dict[str, Any]]) -> Iterator[ShardTask]:
    """The shards that are not there yet, in order; at the end, whether the corpus is what it was at the beginning."""
    texts, read = corpus.read(), text_hash(())
    number = 0
    while part := tuple(islice(texts, size)):
        text_hash(part, read)
        if number not in done:
            yield ShardTask(number, number * size, part)
        elif done[number]["corpus"] != text_hash(part).hexdigest():
            raise DamagedShard(f"shard {number:06d} holds other texts than the corpus has there.")
        number += 1
    if read.hexdigest() != facts.hash:
        raise InputError(f"{corpus.source} changed while it was read; begin a new Run in another directory.")


def _write_all(
    directory: Path, manifest: dict[str, Any], results: Iterator[ShardFiles], done: dict[int, dict[str, Any]]
) -> None:
    try:
        for shard in results:
            done[shard.number] = write_shard(directory, manifest["run"], shard)
    except KeyboardInterrupt:
        texts = sum(record["texts"] for record in done.values())
        raise Interrupted(
            f"interrupted: {texts} of {manifest['corpus']['texts']} texts are in {directory}; the same command goes on."
        ) from None
    if len(done) != manifest["shards"]:
        missing = sorted(set(range(manifest["shards"])) - set(done))
        raise InputError(f"shards {missing[:5]} did not arrive; the same command goes on.")
    assert shard_path(directory, 0).is_dir()


class _Clock:
    """Turns what engines report into a `RunProgress`."""

    def __init__(self, before: int, total: int, progress: Callable[[RunProgress], None] | None) -> None:
        self.before, self.total, self.progress = before, total, progress
        self.texts = self.tokens = 0
        self.begun = time.monotonic()

    def moved(self, texts: int, tokens: int) -> None:
        """Some texts are done."""
        self.texts += texts
        self.tokens += tokens
        if self.progress is not None:
            seconds = time.monotonic() - self.begun
            self.progress(RunProgress(self.before, self.texts, self.total, self.tokens, seconds))
