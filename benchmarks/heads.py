"""What a survey of heads costs beside plain passes of minilm at 128 tokens: CPU time, one thread, one run.

    OMP_NUM_THREADS=1 python benchmarks/heads.py

Statistics of raw and effective attention are those of a batch of the Run; ablation leaves every head out of one text
once, the layers below being reused, against plain passes of the same text.
"""

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from claims import at_most
from timing import least_seconds, one_thread

import identiscope
from identiscope.capture.inputs import encode, token_row
from identiscope.corpus.readers import Corpus
from identiscope.methods.heads.head_importance import one_by_one
from identiscope.methods.trace_fields import runs_of
from identiscope.runs.compute.batch import Worker, compute_batch, model_shape
from identiscope.runs.compute.options import RunOptions
from identiscope.runs.compute.run import run_corpus
from identiscope.runs.heads.survey import STATISTICS

TOKENS, BATCH, REPEATS = 128, 16, 3
PASSAGES = [text.parts[0] for text in Corpus("passages").read()]


def statistics(model: identiscope.Model) -> None:
    options = RunOptions(methods=STATISTICS)
    worker = Worker(model, options, model_shape(model, options))
    # Each begins with another passage, and goes on with the next until it is long enough.
    texts = [" ".join((PASSAGES * 3)[place : place + 3]) for place in range(BATCH)]
    rows = [token_row(model, (text,), TOKENS) for text in texts]
    batch = encode(model, rows, targets=[None] * BATCH)

    def plain() -> None:
        with torch.no_grad():
            model.module(**dict(batch.arguments))

    def both() -> None:
        compute_batch(worker, rows)

    plain(), both()
    times = [(least_seconds(plain), least_seconds(both)) for _ in range(REPEATS)]
    one, other = (min(part) for part in zip(*times, strict=True))
    at_most("pass and all statistics of heads, in plain passes of minilm at 128 tokens", other / one, 2, "×")


def ablation(model: identiscope.Model) -> None:
    row = token_row(model, (" ".join(PASSAGES[:3]),), TOKENS)
    traced = identiscope.trace(model, row)
    batch = encode(model, [row], targets=[None])
    heads = sum(len(site.heads) for site in traced.sites)

    def plain() -> None:
        with torch.no_grad():
            for _ in range(8):
                model.module(**dict(batch.arguments))

    def every() -> None:
        runs = runs_of(traced, "similarity:A dog lay there.")
        for site in traced.sites:
            runs.with_contexts(site.index, one_by_one(site.context, {"zero": torch.zeros_like(site.context)})[1:])

    plain(), every()
    times = [(least_seconds(plain) / 8, least_seconds(every)) for _ in range(REPEATS)]
    one, other = (min(part) for part in zip(*times, strict=True))
    at_most("every head of minilm left out once, in plain passes for each head", other / one / heads, 0.6, "×")


def memory() -> None:
    """Peak memory of a Run of these statistics over corpora of growing length."""
    peaks = {}
    for count in (50, 400):
        done = subprocess.run([sys.executable, __file__, str(count)], capture_output=True, text=True, check=True)
        peaks[count] = float(done.stdout)
    at_most("peak memory of statistics of heads, 400 texts against 50", peaks[400] / peaks[50], 1.1, "×")


def measure_memory(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "texts.txt"
        corpus.write_text("".join(f"The {number}th of the letters was short.\n" for number in range(count)))
        options = RunOptions(methods=STATISTICS, layers=(0,), shard_size=25)
        run_corpus("minilm", corpus, Path(folder) / "run", options=options)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


if __name__ == "__main__":
    one_thread()
    transformers.logging.set_verbosity_error()
    if len(sys.argv) > 1:
        measure_memory(int(sys.argv[1]))
    else:
        loaded = identiscope.load("minilm")
        statistics(loaded)
        ablation(loaded)
        memory()
