"""Faster than the plain way: the shared subspace of a corpus, and the search for blocks. Run with OMP_NUM_THREADS=1."""

import numpy as np
import torch
from timing import cpu_seconds, faster, one_thread

from identiscope.linalg.rank.projection_factor import projection_factor
from identiscope.methods.heads.head_pattern import _masked_intervals, _unmasked_intervals
from identiscope.methods.structure.shared_subspace import no_samples

HEADS, KEYS, CHANNELS, MODEL, SAMPLES = 12, 128, 32, 384, 8


def main() -> None:
    one_thread()
    generator = torch.Generator().manual_seed(0)
    values = [torch.randn(HEADS, KEYS, CHANNELS, generator=generator) for _ in range(SAMPLES)]
    projection = torch.randn(HEADS, CHANNELS, MODEL, generator=generator)
    factor = projection_factor(projection)

    def streamed() -> torch.Tensor:
        found = no_samples(HEADS, KEYS)
        for value in values:
            found = found.add(value, factor)
        return found.mean_projector

    def plain() -> np.ndarray:
        """T of every text and head written out, its singular vectors, and the projector on those that count."""
        total = np.zeros((HEADS, KEYS, KEYS))
        for value in values:
            for head in range(HEADS):
                left, sizes, _ = np.linalg.svd((value[head].double() @ projection[head].double()).numpy(), False)
                kept = left[:, sizes > MODEL * np.finfo(np.float32).eps * sizes[0]]
                total[head] += kept @ kept.T
        return total / SAMPLES

    assert np.allclose(streamed().numpy(), plain(), atol=1e-8)
    slow, fast = cpu_seconds(plain, 2), cpu_seconds(streamed, 3)
    faster("shared subspace, 8 texts of 128 tokens, 12 heads, against an SVD of every T", slow, fast, 3)

    weights = np.random.default_rng(0).dirichlet(np.ones(64), 64)
    places = np.arange(0, 65)
    first, after = np.triu_indices(len(places), 2)
    given = (weights, np.ones((64, 64), dtype=bool), np.ones(64, dtype=bool), places[first], places[after])
    slow, fast = cpu_seconds(lambda: _masked_intervals(*given), 2), cpu_seconds(lambda: _unmasked_intervals(*given), 3)
    faster("all blocks of a map of 64 tokens, against the way of masked maps", slow, fast, 5)


if __name__ == "__main__":
    main()
