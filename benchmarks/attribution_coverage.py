"""How often the 95 % intervals of estimated attributions hold the exact value, and what noise adds to `not_largest`.

    OMP_NUM_THREADS=1 python benchmarks/attribution_coverage.py [--seeds 40] [--model minilm] [--docs]

Random BERTs of 12 layers, 96 wide, with weights of the size that BERT-base starts from and twice as large, and
`minilm`. Responses to the probes of many seeds are computed together, and the estimates made of them are checked to be
those that a user gets. The share of cells whose interval holds the exact value is averaged over seeds, and its standard
error is that between seeds, since the cells of one seed share their probes. The first layer does not count: its norms
are known in closed form. --docs writes the table into docs/methods/hidden_token_attribution.md, with how many seeds.
"""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import transformers
from claims import claim
from timing import one_thread

import identiscope
from identiscope.capture.blocks import find_blocks
from identiscope.linalg.jacobian.blocks import Blocks
from identiscope.linalg.jacobian.composed import compose
from identiscope.linalg.jacobian.norms import squared_responses
from identiscope.linalg.jacobian.probes import orthogonal_probes
from identiscope.methods.mixtures.attribution.contributions import Attribution
from identiscope.methods.mixtures.attribution.estimate import add_round
from identiscope.methods.mixtures.attribution.starting import push, start_of
from identiscope.methods.mixtures.attribution.summaries import self_contribution
from identiscope.methods.mixtures.hidden_token_attribution import (
    ROUND_PROBES,
    _finish,
    hidden_token_attribution,
)

PROBES = (4, 6, 8, 12, 16)
LOW, HIGH = 0.94, 0.96
# Seeds whose probes are pushed together.
TOGETHER = 20
PAGE = Path(__file__).parent.parent / "docs/methods/hidden_token_attribution.md"
TEXT = "The nurse told the doctor that she had found the keys."


def random_bert(size: float) -> identiscope.Trace:
    """12 layers, 8 heads, 96 wide; weights `size` times as large as those BERT-base starts from, relative to width."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=500, hidden_size=96, num_hidden_layers=12, num_attention_heads=8, intermediate_size=384,
        initializer_range=0.02 * (768 / 96) ** 0.5 * size,
    )  # fmt: skip
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    return identiscope.trace(model, torch.randint(5, 500, (14,)).tolist())


MODELS = {
    "random BERT": lambda: random_bert(1),
    "random BERT, weights ×2": lambda: random_bert(2),
    "minilm": lambda: identiscope.trace("minilm", TEXT),
}


def covered(interval: tuple[torch.Tensor, torch.Tensor], exact: torch.Tensor) -> float:
    low, high = interval
    return float(((low <= exact) & (exact <= high))[1:].double().mean())


def shares(found: Attribution) -> tuple[np.ndarray, np.ndarray]:
    """`not_largest` of the later half of the layers as counted, and what noise is said to have added."""
    own = self_contribution([found.contribution.numpy()], errors=[found.contribution_error.numpy()])
    half = len(own.median) // 2
    return own.not_largest[half:], own.not_largest_noise[half:]


def estimates(blocks: Blocks, x: torch.Tensor, seeds: int) -> Iterator[dict[int, Attribution]]:
    """Of each seed, the estimate from each number of probes."""
    made = {probes: compose(blocks, x, memory=2**30, directions=probes, anchored=True) for probes in PROBES}
    layers, most = tuple(range(len(blocks.layers))), PROBES[-1]
    for begin in range(0, seeds, TOGETHER):
        own = range(begin, min(begin + TOGETHER, seeds))
        directions = torch.cat([orthogonal_probes(x.shape[1], 0, most, seed=seed, like=x) for seed in own], 1)
        responses = x.new_zeros(len(layers), len(x), len(x), len(own), most)
        for token in range(len(x)):
            for layer, first, pushed in push(made[most], range(token, token + 1), directions, layers):
                seen = squared_responses(pushed, "frobenius")
                responses[layer, first:, token] = seen.view(len(seen), len(own), most)
        for seed, seen in zip(own, responses.unbind(3), strict=True):
            found = {}
            for probes, jacobian in made.items():
                start = start_of(jacobian, layers, "frobenius", "estimate", seed, None)
                estimate = start.estimate
                assert estimate is not None
                for part in torch.arange(probes).split(ROUND_PROBES):
                    there = None if estimate.anchor is None else seen[0][..., part]
                    estimate = add_round(estimate, seen[..., part], there)
                found[probes] = _finish(start, estimate, start.first, True)
            yield found


def measure(name: str, trace: identiscope.Trace, seeds: int) -> list[str]:
    """The rows of the table for a model; what they say of coverage is claimed."""
    blocks = find_blocks(trace).blocks
    assert blocks is not None
    replay, x = trace.replay, trace.embeddings
    exact = hidden_token_attribution(replay, x, blocks=blocks)
    truth = shares(exact)[0].mean()
    print(f"{name}: {len(x)} tokens, {len(blocks.layers)} layers, d = {x.shape[1]}, {seeds} seeds", flush=True)
    measured: dict[int, list[tuple[float, ...]]] = {probes: [] for probes in PROBES}
    for seed, estimated in enumerate(estimates(blocks, x, seeds)):
        for probes, found in estimated.items():
            if seed == 0:
                given = hidden_token_attribution(replay, x, blocks=blocks, mode="estimate", probes=probes)
                torch.testing.assert_close(found.contribution_error, given.contribution_error, rtol=1e-3, atol=1e-6)
                torch.testing.assert_close(found.norm, given.norm, rtol=1e-4, atol=1e-6)
            counted, noise = shares(found)
            inside = covered(found.norm_interval(), exact.norm), covered(found.interval(), exact.contribution)
            measured[probes].append((*inside, float(counted.mean() - truth), float(noise.mean())))
    means = np.array([np.mean(measured[probes], 0) for probes in PROBES])
    errors = np.array([np.std(measured[probes], 0, ddof=1) for probes in PROBES]) / seeds**0.5
    for column, kind in enumerate(("norms", "contributions")):
        mean, error = means[:, column], errors[:, column]
        claim(
            f"{name}: 95 % intervals of {kind} hold the exact value, {PROBES[0]} to {PROBES[-1]} probes",
            f"{mean.min():.3f} to {mean.max():.3f} (± {error.max():.3f})",
            f"{LOW} to {HIGH}, within three standard errors",
            bool(((LOW - 3 * error <= mean) & (mean <= HIGH + 3 * error)).all()),
        )
    rows = []
    for probes, mean, error in zip(PROBES, 100 * means, 100 * errors, strict=True):
        cells = [f"{one:.1f} ± {off:.1f}" for one, off in zip(mean[:2], error[:2], strict=True)]
        rows.append(f"| {name} | {probes} | {' | '.join(cells)} | {mean[2]:+.1f} ± {error[2]:.1f} | {mean[3]:+.1f} |")
        print(rows[-1], flush=True)
    return rows


def write_table(rows: list[str], seeds: int) -> None:
    """Put the table in its place on the page."""
    head = "| model | probes | norms, % | contributions, % | `not_largest` off, points | `not_largest_noise`, points |"
    table = "\n".join([f"<!-- coverage: {seeds} seeds -->", head, "|---|--:|--:|--:|--:|--:|", *rows, "<!-- end -->"])
    written, count = re.subn(r"(?s)<!-- coverage:.*?<!-- end -->", lambda _: table, PAGE.read_text(encoding="utf-8"))
    assert count == 1, f"{PAGE} has {count} places for the table"
    PAGE.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--model", choices=list(MODELS), action="append", help="only this; may be given several times")
    parser.add_argument("--docs", action="store_true", help="write the table into the documentation")
    given = parser.parse_args()
    one_thread()
    transformers.logging.set_verbosity_error()
    with torch.no_grad():
        rows = [row for name in given.model or MODELS for row in measure(name, MODELS[name](), given.seeds)]
    if given.docs:
        write_table(rows, given.seeds)
