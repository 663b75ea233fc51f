"""What a Run's attention statistics cost beside a plain forward pass: CPU time, one thread, one run.

    OMP_NUM_THREADS=1 python benchmarks/run.py [CORPUS [COLUMNS]]

CORPUS is as for `identiscope run`; by default the built-in pairs and passages. Batches, lengths and tokens are the same
for both. Every batch is timed alternately, and the least time of each counts, so that a busy machine disturbs both.
Memory is measured in processes of their own, over corpora of growing length.
"""

import inspect
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import transformers
from claims import at_most
from timing import one_thread

import identiscope
from identiscope.capture.inputs import encode
from identiscope.corpus.readers import Corpus, Text
from identiscope.runs.compute.batch import Worker, compute_batch, model_shape
from identiscope.runs.compute.options import RunOptions
from identiscope.runs.compute.run import run_corpus
from identiscope.runs.compute.texts import batches, measure

CLAIM = 1.5
REPEATS = 3


def seconds(function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def compare(name: str, texts: list[Text], model_name: str = "minilm") -> None:
    model = identiscope.load(model_name)
    options = RunOptions(methods=("attention_identifiability",), too_long="cut")
    worker = Worker(model, options, model_shape(model, options))
    measured = measure(model, texts, options)
    accepted = inspect.signature(model.module.forward).parameters
    total = [0.0, 0.0]
    for numbers in batches(measured, options.batch_size):
        given = [texts[number].given for number in numbers]

        def plain(given: list[str | tuple[str, str]] = given) -> None:
            batch = encode(model, given, targets=[None] * len(given))
            with torch.no_grad():
                model.module(**{key: value for key, value in batch.arguments.items() if key in accepted})

        def statistics(given: list[str | tuple[str, str]] = given) -> None:
            compute_batch(worker, given)

        plain(), statistics()
        times = [(seconds(plain), seconds(statistics)) for _ in range(REPEATS)]
        least = [min(one) for one in zip(*times, strict=True)]
        total = [before + now for before, now in zip(total, least, strict=True)]
    tokens = sum(one.tokens for one in measured)
    whole, extra = total[1] / total[0], (total[1] - total[0]) / total[0]
    print(
        f"{model_name}, {name}: {len(texts)} texts, {tokens / len(texts):.0f} tokens each: plain pass {total[0]:.2f} s;"
        f" statistics {extra:.2f} of it, pass and statistics together {whole:.2f} of it",
        flush=True,
    )
    at_most(f"attention statistics of {name} beside a plain pass of {model_name}", extra, CLAIM, "×")


def memory() -> None:
    """Peak memory of whole Runs over growing corpora."""
    peaks = {}
    for count in (200, 1600):
        done = subprocess.run(
            [sys.executable, __file__, "--memory", str(count)], capture_output=True, text=True, check=True
        )
        peaks[count] = float(done.stdout)
    print("peak memory of a Run: " + ", ".join(f"{count} texts {peak:.0f} MB" for count, peak in peaks.items()))
    at_most("peak memory of a Run, 1,600 texts against 200", peaks[1600] / peaks[200], 1.1, "×")


def measure_memory(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "texts.txt"
        corpus.write_text("".join(f"The {number}th of the letters was short.\n" for number in range(count)))
        run_corpus("minilm", corpus, Path(folder) / "run", options=RunOptions(layers=(0,), shard_size=50))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


if __name__ == "__main__":
    one_thread()
    transformers.logging.set_verbosity_error()
    if "--memory" in sys.argv:
        measure_memory(int(sys.argv[-1]))
    elif len(sys.argv) > 1:
        columns = sys.argv[2].split(",") if len(sys.argv) > 2 else None
        compare(sys.argv[1], list(Corpus(sys.argv[1], columns, limit=128).read()))
    else:
        for name in ("pairs", "passages"):
            compare(f"built-in {name}", list(Corpus(name).read()))
        memory()
