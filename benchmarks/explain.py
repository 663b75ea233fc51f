"""Explanations: what they cost in passes, and against the ways that public code takes. CPU time, one thread, one run.

    OMP_NUM_THREADS=1 python benchmarks/explain.py

Baselines: networkx's maximum flow for each pair (on a sample of pairs, scaled to all), the n²·d tensor of Kobayashi's
norms, one pass through a layer for each zeroed value, and sums of 64 steps from the left for attention attribution.
"""

import time

import numpy as np
import torch
from claims import at_least, at_most, claim, need
from timing import cpu_seconds, faster, least_seconds, one_thread

import identiscope
from identiscope.linalg.decomposition import Moved, moved, pair_blocks, part_sizes
from identiscope.methods.mixtures.attention_flow import attention_flow
from identiscope.methods.mixtures.rollout import mixed_attention
from identiscope.methods.mixtures.value_zeroing import value_zeroing
from identiscope.methods.outcome_runs import OutcomeRuns

SIMILAR = "similarity:A short note about what people trust."
QUESTION = (
    "The old lighthouse keeper walked down the stairs every morning to look at the sea. One day he found a letter in a"
    " bottle. It said that the treasure was hidden under the third stone behind the house of the old"
    " captain, who had left the island many years ago and had never come back to the"
)


def main() -> None:
    one_thread()
    need("networkx")
    minilm = identiscope.load("minilm")
    ids = minilm.tokenizer(identiscope.PASSAGE)["input_ids"]
    flows(identiscope.trace(minilm, ids[:64]))
    trace = identiscope.trace(minilm, ids[:128])
    norms(trace)
    memory(minilm, ids)
    zeroing(trace)
    attention_attribution(identiscope.trace(minilm, ids[:48]))
    fast(trace)
    everything()


def flows(trace: identiscope.Trace) -> None:
    import networkx

    attention = [site.attentions() for site in trace.sites]
    capacity = torch.stack(list(mixed_attention(attention, 0.5))).numpy()
    depth, count = capacity.shape[:2]
    attention_flow(attention[:1])  # compiled
    begin = time.process_time()
    found = attention_flow(attention)
    ours = time.process_time() - begin
    graph = networkx.DiGraph()
    for layer in range(depth):
        for query in range(count):
            for key in range(count):
                if capacity[layer, query, key] > 0:
                    graph.add_edge((layer + 1, query), (layer, key), capacity=float(capacity[layer, query, key]))
    generator = np.random.default_rng(0)
    pairs = [(int(generator.integers(count)), int(generator.integers(count))) for _ in range(6)]
    begin = time.process_time()
    values = [networkx.maximum_flow_value(graph, (depth, query), (0, key)) for query, key in pairs]
    theirs = (time.process_time() - begin) / len(pairs) * depth * count**2
    off = max(abs(value - float(found.flow[-1, query, key])) for value, (query, key) in zip(values, pairs, strict=True))
    print(f"attention_flow of all pairs, {depth} layers, {count} tokens; networkx on {len(pairs)} pairs, scaled")
    faster("attention_flow against networkx per pair", theirs, ours, 100)
    at_most("attention_flow off networkx", off * 1e9, 1.0, "e-9")
    share = found.arrays()["decided_by_input"][1]
    print("decided by the edges at the input or the query, by layer:", [round(float(one), 2) for one in share])


def norms(trace: identiscope.Trace) -> None:
    site = trace.sites[3]
    attention, value, projection = site.attentions(), site.value.double(), site.projection.double()

    def explicit() -> torch.Tensor:
        """As the paper's code has it: a vector for each head, query and key, then summed over heads."""
        vectors = torch.einsum("hkc,hcm->hkm", value, projection)
        return torch.einsum("hqk,hkm->hqkm", attention, vectors).sum(0).norm(dim=-1)

    def lean() -> torch.Tensor:
        """The same tensor, summed over heads as it is made."""
        vectors = torch.einsum("hkc,hcm->hkm", value, projection)
        return torch.einsum("hqk,hkm->qkm", attention, vectors).norm(dim=-1)

    def ours() -> torch.Tensor:
        return part_sizes(Moved(attention, value, projection, None, (), 1.0, None))

    off = float((explicit() - ours()).abs().max())
    own = cpu_seconds(ours)
    faster("weighted_norm against the n²·d tensor of the paper's code, 128 tokens", cpu_seconds(explicit, 3), own, 20)
    faster("weighted_norm against the same tensor summed as it is made", cpu_seconds(lean), own)
    at_most("weighted_norm off the n²·d tensor", off * 1e12, 1.0, "e-12")


def memory(model: identiscope.Model, ids: list[int]) -> None:
    """Peak of the vectors of pairs against n·d: a block of rows at a time."""
    peaks = []
    for count in (64, 128, 256, 512):
        trace = identiscope.trace(model, (ids * 4)[:count])
        site, step = trace.sites[0], trace.parts().layers[0].attends[0]
        pieces = moved(site.attentions(), site.value, site.projection, step)
        largest = max(vectors.numel() for _, vectors in pair_blocks(pieces))
        peaks.append(largest / (count * step.before.shape[1]))
    print("rows of n·d vectors held at a time at 64, 128, 256, 512 tokens:", [round(one) for one in peaks])
    claim(
        "alti holds blocks of rows",
        f"{peaks[-1]:.0f} of 512 rows",
        "fewer rows in a longer text",
        peaks[-1] < peaks[0] * 2,
    )


def zeroing(trace: identiscope.Trace) -> None:
    """Against running each layer once for every zeroed value, as the module itself runs it."""
    attention = [site.attentions() for site in trace.sites]
    values, maps = [site.value for site in trace.sites], [site.projection for site in trace.sites]
    parts = trace.parts()
    layer = trace.model.module.encoder.layer[2]
    states = trace.hidden_states[2][None]

    def theirs() -> torch.Tensor:
        attended = layer.attention.self
        own = attended.value.forward
        found = []
        with torch.no_grad():
            whole = layer(states)
            whole = whole[0] if isinstance(whole, tuple) else whole
            for token in range(states.shape[1]):

                def zeroed(x: torch.Tensor, token: int = token) -> torch.Tensor:
                    made = own(x).clone()
                    made[:, token] = 0
                    return made

                attended.value.forward = zeroed
                made = layer(states)
                made = made[0] if isinstance(made, tuple) else made
                found.append(1 - torch.cosine_similarity(made[0].double(), whole[0].double(), dim=-1))
            del attended.value.forward
        return torch.stack(found, 1)

    def ours() -> torch.Tensor:
        one = type(parts)(parts.layers[2:3])
        return value_zeroing(attention[2:3], values[2:3], maps[2:3], one).step[0]

    expected = theirs()
    off = float((expected / expected.sum(-1, keepdim=True) - ours()).abs().max())
    faster(
        "value_zeroing of a layer against one pass for each token",
        least_seconds(theirs, 2),
        least_seconds(ours, 2),
        1.5,
    )
    at_most("value_zeroing off the passes", off * 1e4, 1.0, "e-4")


def attention_attribution(trace: identiscope.Trace) -> None:
    """How many gradients bring the completeness residual of 64 steps from the left."""
    runs = OutcomeRuns(trace, [trace.main], SIMILAR)
    ratios = []
    for site in trace.sites:
        attention = site.attentions()
        (none, whole), _ = runs.attention_path(site.index, [0.0, 1.0], slopes=False)
        gained = float(whole - none)
        _, slopes = runs.attention_path(site.index, [step / 64 for step in range(64)])
        left = abs(float((attention * slopes.mean(0)).sum()) - gained)
        for points in range(1, 9):
            at, weights = np.polynomial.legendre.leggauss(points)
            _, slopes = runs.attention_path(site.index, ((at + 1) / 2).tolist())
            mean = torch.einsum("p,phqk->hqk", torch.tensor(weights / 2), slopes)
            if abs(float((attention * mean).sum()) - gained) <= left:
                break
        ratios.append(64 / points)
        print(f"layer {site.layer}: 64 steps from the left are off by {left:.1e}, {points} points by no more")
    at_least("attention_attribution: fewer gradients for the same residual (worst layer)", min(ratios), 8, "×")


def fast(trace: identiscope.Trace) -> None:
    identiscope.explain(trace, SIMILAR)  # loaded, and compiled
    found = identiscope.explain(trace, SIMILAR)
    print(f"runs of the model: {float(found.passes.sum()):.0f}; CPU time in plain passes by method:")
    print({name: round(float(cost), 2) for name, cost in zip(found.method.values, found.cost.values, strict=True)})
    at_most("the fast methods together on minilm, 128 tokens", float(found.cost.sum()), 12, " passes")


def everything() -> None:
    trace = identiscope.trace("smollm2", QUESTION)
    tokens = len(trace.main)
    trace.parts()
    found = identiscope.explain(trace, methods="all")
    for name, cost, passes, failed in zip(
        found.method.values, found.cost.values, found.passes.values, found.failed.values, strict=True
    ):
        print(f"{name:26} cost {cost:8.1f}  runs {passes:6.0f}  {failed}")
    at_most(f"all methods on smollm2, {tokens} tokens", float(found.cost.sum()), 2000, " passes", 0)
    at_most("of them Shapley", float(found.passes.loc["shapley"]), 300, " passes", 0)


if __name__ == "__main__":
    main()
