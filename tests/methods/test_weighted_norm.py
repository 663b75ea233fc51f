"""Lengths of what heads move, against the n²·d tensor of the paper, in NumPy."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import identiscope
from identiscope.methods.maps.weighted_norm import weighted_norm
from plain_families import PRECISION, SIDES, ran, traced


def reference(attention: np.ndarray, value: np.ndarray, projection: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """‖α_ij·f_h(x_j)‖ and ‖Σ_h α_ij^h·f_h(x_j)‖, f_h(x_j) = v_j·H_h, every vector made (Kobayashi et al. 2020)."""
    heads, queries, keys = attention.shape
    group = heads // len(value)
    by_head, together = np.zeros((heads, queries, keys)), np.zeros((queries, keys))
    for query in range(queries):
        for key in range(keys):
            total = np.zeros(projection.shape[2])
            for head in range(heads):
                moved = attention[head, query, key] * (value[head // group, key] @ projection[head])
                by_head[head, query, key] = np.sqrt((moved**2).sum())
                total += moved
            together[query, key] = np.sqrt((total**2).sum())
    return by_head, together


@given(
    seed=st.integers(0, 2**20), tokens=st.integers(1, 6), queries=st.integers(1, 4), pairs=st.integers(1, 2),
    group=st.sampled_from([1, 2]), channels=st.integers(1, 4), width=st.integers(1, 9),
)  # fmt: skip
def test_it_is_the_formula(
    seed: int, tokens: int, queries: int, pairs: int, group: int, channels: int, width: int
) -> None:
    generator = np.random.default_rng(seed)
    heads = 2 * pairs
    attention = generator.dirichlet(np.ones(tokens), (heads, queries))
    value = generator.standard_normal((heads // group, tokens, channels))
    projection = generator.standard_normal((heads, channels, width))
    found = weighted_norm(*map(torch.from_numpy, (attention, value, projection)))
    by_head, together = reference(attention, value, projection)
    np.testing.assert_allclose(found.heads.numpy(), by_head, atol=1e-12)
    # Squares are what is added up: where heads cancel, a length is the root of what rounding leaves of them.
    size = (by_head.sum(0) ** 2).max()
    np.testing.assert_allclose(found.together.numpy() ** 2, together**2, atol=1e-13 * size)


def test_heads_that_cancel_leave_nothing_together() -> None:
    """Each head moves something, all of them nothing: the length of the sum sees it, a sum of lengths does not."""
    generator = np.random.default_rng(0)
    attention = np.repeat(generator.dirichlet(np.ones(4), (1, 3)), 2, 0)
    value, one = generator.standard_normal((1, 4, 2)), generator.standard_normal((2, 5))
    found = weighted_norm(*map(torch.from_numpy, (attention, value, np.stack([one, -one]))))
    assert float(found.together.max()) < 1e-7 and float(found.heads.max()) > 1


@pytest.mark.parametrize("family", SIDES)
def test_of_a_model_it_is_that_of_its_weights(family: str) -> None:
    """Value biases are in, that of the output is not."""
    _, plain = ran(family)
    result = identiscope.weighted_norm(traced(family))
    for number, layer in enumerate(plain.layers):
        one = layer.attended[0]
        by_head, together = reference(one.maps.numpy(), one.value.numpy(), one.output.numpy())
        tolerance = PRECISION.get(family, 1e-12) * by_head.max()
        np.testing.assert_allclose(result["weighted_norm"][number], by_head, atol=tolerance)
        np.testing.assert_allclose(result["together"][number], together, atol=tolerance)
    assert result["together"].dims == ("layer", "query", "key")
