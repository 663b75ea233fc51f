"""The judge: how many perturbed passes erasure takes, and how fast they run. CPU time, one thread, one run.

    OMP_NUM_THREADS=1 python benchmarks/judge.py

Baseline: the same number of whole texts of that length in plain batches, as many at a time, nothing else done.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from claims import at_least, at_most
from timing import least_seconds, one_thread

import identiscope
from identiscope.asking.explaining import chosen_methods
from identiscope.judge.arena.asking import Judged
from identiscope.judge.truths.erasure import BUDGET, erasure
from identiscope.judge.truths.perturbed import Perturbed, deleted, masked

TEXTS = 8


def main() -> None:
    one_thread()
    model = identiscope.load("minilm")
    pairs = [text.parts for text in identiscope.read_corpus("pairs", limit=TEXTS)]
    passes(model, pairs)
    throughput(model, *pairs[0])


def passes(model: identiscope.Model, pairs: list[tuple[str, ...]]) -> None:
    """The whole erasure part with all fast methods, on pairs and their similarity."""
    judged = Judged(tuple(one.name for one in chosen_methods("fast")))
    most = 0.0
    for first, second in pairs:
        case, _, _ = judged.case(identiscope.trace(model, first), f"similarity:{second}")
        most = max(most, erasure(case).passes)
    at_most(f"perturbed passes of a text, {len(judged.names)} methods, the most of {len(pairs)} pairs", most, BUDGET,
            digits=0)  # fmt: skip


def throughput(model: identiscope.Model, first: str, second: str) -> None:
    """Perturbed texts, sorted by length, against whole texts of the same lengths in plain batches."""
    trace = identiscope.trace(model, first)
    case, _, _ = Judged(("attention",)).case(trace, f"similarity:{second}")
    count = int(case.players.sum())
    generator = np.random.default_rng(0)
    kept = generator.random((256, count)) < generator.uniform(0.3, 0.9, size=(256, 1))
    kept[:, 0] = True
    at_a_time = case.runs.runner.at_a_time
    special = len(trace.tokens) - count
    perturbed: list[tuple[str, Callable[[], Perturbed], list[int]]] = [
        # Without its memory: the same sets again would cost nothing.
        ("masked", lambda: masked.__wrapped__(case), [len(trace.tokens)] * len(kept)),
        ("deleted", lambda: deleted(case), sorted((kept.sum(1) + special).tolist())),
    ]
    for name, made, sizes in perturbed:
        baseline = least_seconds(partial(plain, model, sizes, at_a_time), 2)
        ours = least_seconds(lambda made=made: made()(kept), 2)  # type: ignore[misc]
        at_least(f"throughput of texts {name} against plain batches", baseline / ours, 0.8, digits=2)


def plain(model: identiscope.Model, sizes: list[int], at_a_time: int) -> None:
    """Whole texts of these lengths in batches, and nothing else."""
    with torch.no_grad():
        for begin in range(0, len(sizes), at_a_time):
            some = sizes[begin : begin + at_a_time]
            ids = torch.full((len(some), max(some)), 2003)
            mask = torch.arange(max(some))[None] < torch.tensor(some)[:, None]
            model.module(input_ids=ids, attention_mask=mask.long())


if __name__ == "__main__":
    main()
