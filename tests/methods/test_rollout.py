"""Attention rollout against the paper's recursion, in plain NumPy loops."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import contract
import identiscope
from identiscope.errors import InputError
from identiscope.methods.mixtures.rollout import rollout


def reference(layers: list[np.ndarray], residual: float) -> np.ndarray:
    """Ã(l) = A(l)·Ã(l − 1), A(l) = normalised r·I + (1 − r)·mean over heads (§3), each number by itself."""
    tokens = layers[0].shape[1]
    before = np.eye(tokens)
    rolled = np.zeros((len(layers), tokens, tokens))
    for number, layer in enumerate(layers):
        for output in range(tokens):
            row = [
                (residual if output == middle else 0.0)
                + (1 - residual) * np.mean([head[output, middle] for head in layer])
                for middle in range(tokens)
            ]
            for token in range(tokens):
                for middle in range(tokens):
                    rolled[number, output, token] += row[middle] / sum(row) * before[middle, token]
        before = rolled[number]
    return rolled


def made(seed: int, layers: int, heads: int, tokens: int, causal: bool, sink: float = 1.0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(layers, heads, tokens, tokens, generator=generator, dtype=torch.float64)
    if causal:
        logits = logits.masked_fill(torch.ones(tokens, tokens, dtype=torch.bool).triu(1), -torch.inf)
    return list(sink * logits.softmax(-1))


@given(
    seed=st.integers(0, 2**20), layers=st.integers(1, 3), heads=st.integers(1, 3), tokens=st.integers(1, 6),
    causal=st.booleans(), residual=st.floats(0, 1), sink=st.floats(0.1, 1),
)  # fmt: skip
def test_it_is_the_recursion_of_the_paper(
    seed: int, layers: int, heads: int, tokens: int, causal: bool, residual: float, sink: float
) -> None:
    attention = made(seed, layers, heads, tokens, causal, sink)
    rolled = rollout(attention, residual=residual).numpy()
    np.testing.assert_allclose(rolled, reference([one.numpy() for one in attention], residual), atol=1e-12)
    # Whatever the attention: shares, and of a causal model none of what comes later.
    np.testing.assert_allclose(rolled.sum(-1), 1, atol=1e-12)
    assert rolled.min() >= 0 and not (causal and np.triu(rolled, 1).any())


def test_all_residual_leaves_every_token_itself_and_none_is_a_plain_product() -> None:
    attention = made(0, 3, 2, 5, False)
    np.testing.assert_array_equal(rollout(attention, residual=1.0).numpy(), np.broadcast_to(np.eye(5), (3, 5, 5)))
    product = attention[2].mean(0) @ attention[1].mean(0) @ attention[0].mean(0)
    np.testing.assert_allclose(rollout(attention, residual=0.0)[-1].numpy(), product.numpy(), atol=1e-12)


def test_of_a_model_it_is_that_of_its_attention() -> None:
    trace = contract.trace(contract.CASES["causal, grouped queries"])
    result = identiscope.rollout(trace, residual=0.3)
    expected = reference([site.attentions().double().numpy() for site in trace.sites], 0.3)
    np.testing.assert_allclose(result["rollout"], expected, atol=1e-12)
    assert result.attrs["options"]["residual"] == 0.3


@pytest.mark.parametrize("residual", [-0.1, 1.5, float("nan")])
def test_a_share_that_is_none_is_refused(residual: float) -> None:
    with pytest.raises(InputError, match=r"residual=.* was given; expected a share between 0 and 1"):
        rollout(made(0, 1, 1, 3, False), residual=residual)
