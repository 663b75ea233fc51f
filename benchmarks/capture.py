"""The cost of capturing attention.

Time: tracing against a plain forward pass, at 512 tokens, CPU seconds of one thread, alternating, least of
several. Memory: peak above the loaded model at 2,048 tokens, each way in a process of its own, against
`output_attentions=True` on the eager kernel. The model is a random BERT: 12 layers, 12 heads, 768 wide.

    python benchmarks/capture.py [--tokens 2048]
"""

import argparse
import resource
import subprocess
import sys
import time

import torch
import transformers
from claims import at_most
from timing import one_thread

import identiscope

WAYS = ("plain", "trace", "stream", "output_attentions")


def build(tokens: int, kernel: str = "sdpa") -> torch.nn.Module:
    """A random BERT with room for `tokens` positions."""
    torch.manual_seed(0)
    config = transformers.BertConfig(max_position_embeddings=tokens, attn_implementation=kernel)
    return transformers.BertModel(config, add_pooling_layer=False).eval()


def run(way: str, model: torch.nn.Module, ids: torch.Tensor) -> object:
    """One pass; what it returns is what it keeps in memory."""
    with torch.no_grad():
        if way == "trace":
            return identiscope.trace(model, ids[0].tolist())
        if way == "stream":
            return identiscope.stream(model, ids[0].tolist(), lambda site: None)
        return model(ids, output_attentions=way == "output_attentions", output_hidden_states=way != "plain")


def cpu_seconds(tokens: int, repeats: int = 7) -> dict[str, float]:
    model = identiscope.load(build(tokens))
    ids = torch.randint(0, 30000, (1, tokens))
    best: dict[str, float] = {}
    for _ in range(repeats):
        for way in ("plain", "trace"):
            begin = time.process_time()
            run(way, model.module if way == "plain" else model, ids)  # type: ignore[arg-type]
            best[way] = min(best.get(way, float("inf")), time.process_time() - begin)
    return best


def peak_megabytes(way: str, tokens: int) -> float:
    """Run one way in a process of its own, which prints the growth of its peak over the loaded model."""
    done = subprocess.run(
        [sys.executable, __file__, "--measure", way, "--tokens", str(tokens)],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def measure(way: str, tokens: int) -> None:
    model = build(tokens, "eager" if way == "output_attentions" else "sdpa")
    ids = torch.randint(0, 30000, (1, tokens))
    run(way, model, ids[:, :8])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    kept = run(way, model, ids)
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
    del kept


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--measure", choices=WAYS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    one_thread()
    if given.measure:
        measure(given.measure, given.tokens)
        sys.exit()
    seconds = cpu_seconds(512)
    print(f"512 tokens: plain {seconds['plain']:.2f} s CPU, trace {seconds['trace']:.2f} s")
    at_most("tracing 512 tokens, against a plain forward pass", seconds["trace"] / seconds["plain"], 1.1, "×", 3)
    peaks = {way: peak_megabytes(way, given.tokens) for way in WAYS}
    print(
        f"{given.tokens} tokens, peak above the model: " + ", ".join(f"{way} {mb:,.0f} MB" for way, mb in peaks.items())
    )
    share = peaks["trace"] / peaks["output_attentions"]
    at_most(f"memory of tracing {given.tokens} tokens, against output_attentions", share, 0.2, "×", 3)
