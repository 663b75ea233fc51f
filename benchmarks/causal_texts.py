"""Attention identifiability and statistics of long causal texts: ratios of CPU time, one thread, one run.

    OMP_NUM_THREADS=1 python benchmarks/causal_texts.py [--smoke]

Compared with the way that any other mask is taken, which forms every cell of the effective attention, and with a plain
forward pass of the model; the statistics of minilm, whose texts are not causal, too, in batches as a run has them.
Needs the weights of both. --smoke only sees whether all of it runs, on 64 tokens of a tiny random model.
"""

import ctypes
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import transformers
from claims import at_most
from timing import faster, one_thread
from tokenizers import Tokenizer, models, pre_tokenizers

import identiscope
from identiscope.linalg.allowed import describe_allowed
from identiscope.linalg.moments import Moments
from identiscope.linalg.rank.full_rank import head_products
from identiscope.linalg.rank.projection_factor import projection_factor
from identiscope.methods.fields import LayerFields, layer_fields
from identiscope.methods.heads.attention_moments import attention_moments
from identiscope.methods.heads.attention_rank import attention_rank
from identiscope.methods.heads.row_rank import row_rank
from identiscope.methods.maps.effective import effective
from identiscope.runs.compute.batch import Worker, compute_batch, model_shape
from identiscope.runs.compute.options import RunOptions

MODEL, LAYER = "smollm2", 15
LICENCE = Path(__file__).parent.parent / "LICENSE"
# Rounds that count; to see whether all runs, one is enough.
ROUNDS = 1 if "--smoke" in sys.argv else 3


def text_of(model: identiscope.Model, tokens: int) -> list[int]:
    """So many tokens of the licence, which is longer than that."""
    text = LICENCE.read_text()
    ids: list[int] = model.tokenizer(text, truncation=True, max_length=tokens)["input_ids"]
    assert len(ids) == tokens
    return ids


def alternately(*functions: Callable[[], object]) -> list[float]:
    """Least CPU time of each, one after the other in turn, so that a busy machine disturbs all; the first is not
    counted."""
    times: list[list[float]] = []
    for _ in range(ROUNDS + 1):
        times.append([])
        for function in functions:
            start = time.process_time()
            function()
            times[-1].append(time.process_time() - start)
    return [min(one) for one in zip(*times[1:], strict=True)]


def cell_by_cell(held: LayerFields) -> tuple[Moments, torch.Tensor, torch.Tensor]:
    """Moments, ranks of T and of [T,1] of each row, with every cell of both maps formed."""
    factor = projection_factor(held.projection)
    found = effective(
        held.value, factor, held.context, allowed=held.allowed, precision=held.precision, row_sum=held.row_sum,
        raw=held.raw,
    )  # fmt: skip
    ranks = row_rank(held.value, factor, queries=held.site.queries, allowed=held.allowed, precision=held.precision)
    attention_rank(held.value, factor, precision=held.precision)
    return found.moments_with_raw(two_types(held)), ranks.rank, ranks.simplex_rank


def in_sums(held: LayerFields) -> tuple[Moments, torch.Tensor, torch.Tensor]:
    """The same from the sums of a sweep over the prefixes."""
    allowed = describe_allowed(held.allowed, held.queries, held.site.keys, held.value.device)
    found = attention_moments(
        held.value, head_products(projection_factor(held.projection)), two_types(held), allowed, raw=held.raw,
        exact_context=held.exact_context, precision=held.precision, value_bias=held.value_bias, row_sum=held.row_sum,
        softmax_rows=held.softmax_rows,
    )  # fmt: skip
    return found.moments, found.rank, found.simplex_rank


def two_types(held: LayerFields) -> torch.Tensor:
    """The first token, on which attention rests, and all others."""
    first = torch.arange(held.site.keys) == 0
    return torch.stack([first, ~first])


def one_layer(model: identiscope.Model, tokens: int, wanted: float, layer: int = LAYER) -> None:
    held = fields_of(model, tokens, layer)
    slow, fast = cell_by_cell(held), in_sums(held)
    assert torch.equal(slow[1], fast[1]) and torch.equal(slow[2], fast[2])
    # The context of the cells was rounded to float32 by the pass.
    assert float((slow[0].unexplained("row") - fast[0].unexplained("row")).abs().max()) < 1e-3
    assert float((slow[0].unexplained("head") - fast[0].unexplained("head")).abs().max()) < 1e-5
    seconds = alternately(lambda: cell_by_cell(held), lambda: in_sums(held))
    faster(
        f"null shares and ranks of a layer of {model.name}, {tokens} tokens, in sums, against every cell",
        *seconds,
        wanted,
    )


def fields_of(model: identiscope.Model, tokens: int, layer: int) -> LayerFields:
    return layer_fields(identiscope.trace(model, text_of(model, tokens), layers=[layer]).site(layer))


def whole_model(model: identiscope.Model, tokens: int, limit: float) -> None:
    ids = text_of(model, tokens)
    trace = identiscope.trace(model, ids)
    given = torch.tensor([ids])

    def plain() -> None:
        with torch.no_grad():
            model.module(given)

    passed, analysed = alternately(plain, lambda: identiscope.attention_identifiability(trace))
    print(f"{model.name}, {tokens} tokens: plain pass {passed:.2f} s, attention_identifiability {analysed:.2f} s")
    at_most(f"attention_identifiability of {model.name}, {tokens} tokens, in plain passes", analysed / passed, limit)


def statistics(model: identiscope.Model, tokens: int, limit: float, count: int = 1) -> None:
    """Of so many texts in one batch."""
    text = model.tokenizer.decode(text_of(model, tokens), skip_special_tokens=True)
    options = RunOptions(too_long="cut")
    worker = Worker(model, options, model_shape(model, options))
    given = torch.tensor([model.tokenizer(text)["input_ids"]] * count)

    def plain() -> None:
        with torch.no_grad():
            model.module(given)

    passed, computed = alternately(plain, lambda: compute_batch(worker, [text] * count))
    of = f"{given.shape[1]} tokens" if count == 1 else f"{count} texts of {given.shape[1]} tokens"
    at_most(f"pass and attention statistics of {model.name}, {of}, in plain passes", computed / passed, limit)


def memory(model: identiscope.Model, layer: int, tokens: int, limit: float) -> None:
    """Peak memory of one layer above its inputs, each way in a process of its own, since a peak is never forgotten."""
    sums, cells = (in_a_fork(partial(measured_memory, model, layer, way, tokens)) for way in ("sums", "cells"))
    print(f"one layer, {tokens} tokens, peak above its inputs: {sums:.0f} MB, with cells {cells:.0f} MB")
    at_most(f"memory of a layer in sums, {tokens} tokens, against every cell", sums / max(cells, 1e-3), limit)


def in_a_fork(measure: Callable[[], float]) -> float:
    """What a function gives in a process that begins as this one is."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, str(measure()).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        said = file.read()
    if os.waitpid(child, 0)[1]:
        sys.exit("a process that measures memory did not end well.")
    return float(said)


def measured_memory(model: identiscope.Model, layer: int, way: str, tokens: int) -> float:
    run = {"sums": in_sums, "cells": cell_by_cell}[way]
    run(fields_of(model, min(tokens, 100), layer))
    held = fields_of(model, tokens, layer)
    # The pass has had a peak of its own, and has left memory behind that a smaller one would fit in: both are given up.
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = peak_kilobytes()
    run(held)
    return (peak_kilobytes() - before) / 1024


def peak_kilobytes() -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1])


def tiny(folder: str) -> identiscope.Model:
    """A random model of two layers whose tokens are the words of the licence."""
    found = pre_tokenizers.Whitespace().pre_tokenize_str(LICENCE.read_text())
    known = {word: number for number, word in enumerate(sorted({word for word, _ in found}))}
    tokenizer = Tokenizer(models.WordLevel({**known, "?": known.get("?", len(known))}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    config = transformers.LlamaConfig(
        vocab_size=len(known) + 1, hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=6,
        num_key_value_heads=2,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="?").save_pretrained(folder)
    return identiscope.load(folder)


def smoke() -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = tiny(folder)
        one_layer(model, 64, 0, layer=1)
        whole_model(model, 64, 1000)
        statistics(model, 64, 1000, 2)
        memory(model, 1, 64, 1000)


def main() -> None:
    loaded = identiscope.load(MODEL)
    for length, times in ((512, 4), (1024, 6), (2048, 7)):
        one_layer(loaded, length, times)
    # The goal is half a pass beside the pass itself, at whatever length.
    for length in (512, 1024, 2000):
        whole_model(loaded, length, 1.5)
    for length in (256, 1024):
        statistics(loaded, length, 1.5)
    encoder = identiscope.load("minilm")
    for length, count in ((32, 16), (64, 16), (128, 8), (512, 2)):
        statistics(encoder, length, 1.5, count)
    memory(loaded, LAYER, 2048, 0.1)


if __name__ == "__main__":
    one_thread()
    transformers.logging.set_verbosity_error()
    smoke() if "--smoke" in sys.argv else main()
