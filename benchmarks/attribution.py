"""Hidden Token Attribution: exact against the usual ways, the machine's own rate, and the estimate against exact.

    OMP_NUM_THREADS=1 python benchmarks/attribution.py [--large]

One thread, CPU seconds, ratios within one run; each time is the least of a few. What would take many minutes is
measured on a slice and scaled, and marked so.
"""

import argparse
import resource
import time

import torch
from claims import at_least
from timing import least_seconds, one_thread

import identiscope
from identiscope.capture.blocks import find_blocks
from identiscope.linalg.jacobian.forward import forward_jacobian
from identiscope.methods.mixtures.hidden_token_attribution import hidden_token_attribution

TEXT = "The nurse told the doctor that she had found the keys."


def matrix_rate(width: int, columns: int) -> float:
    """Floating-point operations a second of a plain matrix product, the better of two shapes."""
    rates = []
    for rows in (width, 4 * width):
        one, other, into = torch.randn(rows, width), torch.randn(width, columns), torch.empty(rows, columns)

        def multiply(one: torch.Tensor = one, other: torch.Tensor = other, into: torch.Tensor = into) -> None:
            for _ in range(20):
                torch.mm(one, other, out=into)

        rates.append(2 * rows * width * columns * 20 / least_seconds(multiply, 5))
    return max(rates)


def operations(tokens: int, width: int, inner: int, layers: int) -> float:
    """What the composed path computes: four d×d products a token and column (one in the first layer), attention,
    and multiplying the layers out."""
    columns = tokens * width
    layer = 4 * width**2 + 2 * tokens * width
    making = inner * width**2 + 3 * width**3
    return 2.0 * tokens * (columns * (width**2 + (layers - 1) * layer) + layers * making)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--large", action="store_true", help="also a 12-layer 768-wide model at 58 tokens")
    chosen = parser.parse_args()
    one_thread()
    trace = identiscope.trace("minilm", TEXT)
    replay, x = trace.replay, trace.embeddings.detach()
    blocks = find_blocks(trace).blocks
    assert blocks is not None
    tokens, width = x.shape
    print(f"minilm, {tokens} tokens, {len(blocks.layers)} layers, d = {width}, float32, one thread\n")

    exact_result = hidden_token_attribution(replay, x, blocks=blocks)
    exact = least_seconds(lambda: hidden_token_attribution(replay, x, blocks=blocks), 2)
    rate = matrix_rate(width, 4 * width)
    used = operations(tokens, width, 1536, len(blocks.layers)) / exact
    print(f"exact, all layers, composed         {exact:8.2f} s")
    print(f"  rate {used / 1e9:.0f} of {rate / 1e9:.0f} GFLOP/s of a matrix product: {used / rate:.0%}\n")

    general = forward_jacobian(replay, x, memory=2**30)
    unit, layers = torch.eye(width), range(1, len(blocks.layers) + 1)
    part = 64
    slice_seconds = least_seconds(lambda: list(general.push(range(3, 4), unit[:, :part], layers)), 2)
    pushed = slice_seconds * tokens * width / part
    print(f"vmap(jvp), all layers               {pushed:8.1f} s   scaled from {part} of {tokens * width} directions")
    at_least("exact attribution of all layers, against vmap(jvp)", pushed / exact, 5, "×")

    reverse = 0.0
    for layer in layers:

        def outputs(inputs: torch.Tensor, layer: int = layer) -> torch.Tensor:
            return replay(inputs)[layer][5, :32]

        reverse += least_seconds(lambda outputs=outputs: torch.func.jacrev(outputs, chunk_size=32)(x), 1)
    reverse *= tokens * width / 32
    print(f"jacrev, repeated for each layer     {reverse:8.1f} s   scaled from 32 of {tokens * width} outputs a layer")
    at_least("exact attribution of all layers, against jacrev a layer", reverse / exact, 10, "×")

    print("estimate, with the mean relative error of the contributions and what the 95 % intervals cover, by layer")
    exactly = exact_result.contribution
    print("(from layer 1 on: layer 0 is known in closed form)")
    for probes, claimed in ((4, 10), (8, 7), (16, 5)):
        errors, covered = [], []
        for seed in range(5):
            found = hidden_token_attribution(replay, x, blocks=blocks, mode="estimate", probes=probes, seed=seed)
            errors.append((found.contribution / exactly - 1).abs().mean())
            low, high = found.interval()
            covered.append(((low <= exactly) & (exactly <= high)).double().mean((1, 2))[1:])

        def estimate(probes: int = probes) -> None:
            hidden_token_attribution(replay, x, blocks=blocks, mode="estimate", probes=probes)

        taken, by_layer = least_seconds(estimate, 5), torch.stack(covered).mean(0)
        error, least, most = float(torch.stack(errors).mean()), float(by_layer.min()), float(by_layer.max())
        print(
            f"  k = {probes:2d} {taken:6.2f} s, {exact / taken:4.1f} times faster than exact,"
            f" error {error:.2%}, covered {least:.1%} to {most:.1%}"
        )
        at_least(f"estimated attribution, {probes} probes, against exact", exact / taken, claimed, "×")
    if chosen.large:
        large()


def large() -> None:
    import transformers

    torch.manual_seed(0)
    config = transformers.BertConfig(num_hidden_layers=12, hidden_size=768, num_attention_heads=12)
    model = identiscope.load(transformers.BertModel(config, add_pooling_layer=False).eval())
    trace = identiscope.trace(model, [101, *range(2000, 2056), 102])
    blocks = find_blocks(trace).blocks
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.process_time()
    found = hidden_token_attribution(trace.replay, trace.embeddings, blocks=blocks, mode="estimate", probes=16)
    taken = time.process_time() - begun
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**10
    print(
        f"\n12 layers, d = 768, 58 tokens (random weights), {found.probes} probes: {taken:.0f} s, {more:.0f} MiB more"
    )


if __name__ == "__main__":
    main()
