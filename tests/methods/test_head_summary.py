"""The few numbers about one raw map."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from identiscope.methods.heads.head_summary import map_summary


@given(st.integers(1, 12), st.integers(0, 2**16))
def test_against_numpy(size: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    weights = generator.dirichlet(np.full(size, 0.3), size=size)
    special = generator.random(size) < 0.3
    summary = map_summary(torch.from_numpy(weights), torch.from_numpy(special))
    positive = np.where(weights > 0, weights, 1.0)
    assert np.isclose(summary.entropy, -(weights * np.log2(positive)).sum(1).mean())
    assert np.isclose(summary.to_special, weights[:, special].sum(1).mean())
    assert np.isclose(summary.to_self, np.mean([weights[i, i] for i in range(size)]))
    assert summary.strongest == weights[summary.strongest_query, summary.strongest_key]
    pairs = [(i, j) for i in range(size) for j in range(size) if i != j and not special[i] and not special[j]]
    if pairs:
        assert summary.strongest == max(weights[pair] for pair in pairs)


def test_cross_attention_has_no_self() -> None:
    summary = map_summary(torch.tensor([[0.2, 0.3, 0.5]]), torch.tensor([False, False, False]))
    assert np.isnan(summary.to_self)
    assert (summary.strongest_query, summary.strongest_key) == (0, 2)
