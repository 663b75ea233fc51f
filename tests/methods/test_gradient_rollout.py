"""Relevance maps of Chefer et al. 2021, against their rules by loops."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import identiscope
from identiscope.methods.mixtures.gradient_rollout import gradient_rollout
from plain_families import SIDES, traced
from reference_outcome import TOLERANCE, map_gradients, read


def reference(layers: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Ā = E_h((∇A ⊙ A)⁺) (eq. 5), R ← R + Ā·R (eq. 6) from R = I (eq. 1), each number by itself."""
    heads, count, _ = layers[0][0].shape
    relevance, found = np.eye(count), []
    for maps, slopes in layers:
        now = relevance.copy()
        for i in range(count):
            for k in range(count):
                step = sum(max(maps[h, i, k] * slopes[h, i, k], 0.0) for h in range(heads)) / heads
                for j in range(count):
                    now[i, j] += step * relevance[k, j]
        relevance = now
        found.append(relevance)
    return np.stack(found)


@given(seed=st.integers(0, 2**20), depth=st.integers(1, 3), heads=st.integers(1, 3), count=st.integers(1, 5))
def test_it_is_the_rules_of_the_paper(seed: int, depth: int, heads: int, count: int) -> None:
    generator = np.random.default_rng(seed)
    layers = [
        (generator.dirichlet(np.ones(count), (heads, count)), generator.standard_normal((heads, count, count)))
        for _ in range(depth)
    ]
    found = gradient_rollout(
        [torch.from_numpy(maps) for maps, _ in layers], [torch.from_numpy(slopes) for _, slopes in layers]
    )
    np.testing.assert_allclose(found.numpy(), reference(layers), atol=1e-12)


@pytest.mark.parametrize("family", SIDES)
def test_of_a_model_it_is_that_of_its_weights(family: str) -> None:
    result = identiscope.gradient_rollout(traced(family), outcome=read)
    np.testing.assert_allclose(result["gradient_rollout"], reference(map_gradients(family)), atol=5 * TOLERANCE[family])


def test_an_outcome_that_all_attention_speaks_against_leaves_tokens_themselves() -> None:
    maps, slopes = torch.full((2, 3, 3), 1 / 3), -torch.ones(2, 3, 3)
    assert torch.equal(gradient_rollout([maps] * 2, [slopes] * 2)[-1], torch.eye(3, dtype=torch.float64))
