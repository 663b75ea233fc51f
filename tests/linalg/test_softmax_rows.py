"""The compiled softmax against NumPy in extended precision, row by row."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from identiscope.linalg.simplex.softmax_compiled import LOWEST, softmax_rows


def swept(logits, lengths, sinks):
    weights, sums = logits.copy(), np.full((5, *logits.shape[:2]), np.nan)
    received = np.ones((logits.shape[0], logits.shape[2]))
    lengths = np.ascontiguousarray(np.broadcast_to(lengths, logits.shape[:2]))
    softmax_rows(weights, lengths, sinks.astype(logits.dtype), LOWEST[logits.dtype], sums, received)
    return weights, sums, received - 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(st.integers(0, 10**6), st.integers(1, 90), st.sampled_from([0.1, 3.0, 40.0, 900.0]), st.booleans())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_weights_and_their_sums(dtype, seed, keys, spread, with_sinks):
    generator = np.random.default_rng(seed)
    logits = (spread * generator.standard_normal((2, 5, keys))).astype(dtype)
    lengths = generator.integers(1, keys + 1, 5)
    sinks = spread * generator.standard_normal(2) if with_sinks else np.full(2, -np.inf)
    weights, sums, received = swept(logits, lengths, sinks)
    epsilon = np.finfo(dtype).eps
    total_received = np.zeros((2, keys))
    for head in range(2):
        sink = np.longdouble(dtype(sinks[head]))
        for row, length in enumerate(lengths):
            given_logits = logits[head, row, :length].astype(np.longdouble)
            top = max(given_logits.max(), sink)
            powers = np.exp(given_logits - top)
            exact = powers / (powers.sum() + np.exp(sink - top))
            found = weights[head, row]
            # A logit is as large as `top − x` when it is rounded, and what has no exponent left is zero.
            close = epsilon * (4 + (top - given_logits)) * exact + np.finfo(dtype).tiny * 10
            assert (np.abs(found[:length] - exact) <= close + length * epsilon * exact).all()
            assert (found[length:] == 0).all()
            nats = -(exact * np.log(np.where(exact > 0, exact, 1))).sum()
            slack = 8 * (length + 8) * epsilon
            assert abs(sums[0, head, row] - exact.sum()) <= slack
            assert abs(sums[1, head, row] - (exact**2).sum()) <= slack
            assert abs(sums[2, head, row] - nats) <= slack * (1 + np.log(length + 1))
            assert sums[3, head, row] == found[length - 1]
            spread = ((exact - exact.mean()) ** 2).sum()
            # Weights are off relative to their size, which is more than that of what is left without their mean.
            size = np.sqrt((exact**2).sum())
            off = slack * (1 + (top - given_logits.max())) * size
            assert abs(sums[4, head, row] - spread) <= off * (np.sqrt(spread) + off) + np.finfo(dtype).tiny
            total_received[head] += found
    assert np.abs(received - total_received).max() <= 1e-14


def test_a_logit_that_is_not_a_number_is_not_hidden():
    logits = np.zeros((1, 1, 40))
    logits[0, 0, 3] = np.nan
    weights, sums, _ = swept(logits, np.array([40]), np.array([-np.inf]))
    assert np.isnan(weights).all() and np.isnan(sums[0]).all()


def test_a_row_that_sees_nothing_has_no_weight():
    weights, sums, received = swept(np.ones((1, 2, 3)), np.array([2, 0]), np.array([-np.inf]))
    assert (weights[0, 1] == 0).all() and (sums[:, 0, 1] == 0).all()
    assert received.sum() == pytest.approx(1)
