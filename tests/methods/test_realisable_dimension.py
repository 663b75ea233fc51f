"""The count of realisable maps against the tangent spaces themselves, built in NumPy at random weights."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from identiscope.errors import InputError
from identiscope.methods.freedom.realisable_dimension import realisable_dimension


def measured(n: int, d_k: int, d_v: int, seed: int) -> tuple[int, int]:
    """dim LN([T,1]) and the dimension of the changes of Q and K that move the map but not A·T, to first order.

    dA_i = (diag(a_i) − a_i·a_iᵀ)·(K·dq_i + dK·q_i). From the nullity of (dQ, dK) → (dA_i·T)_i those that do not move
    the map at all are taken off.
    """
    generator = np.random.default_rng(seed)
    query, key, values = (generator.normal(size=(n, width)) for width in (d_k, d_k, d_v))
    logits = query @ key.T / np.sqrt(d_k)
    attention = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    columns = []
    for place in range(2 * n * d_k):
        change = np.zeros(2 * n * d_k)
        change[place] = 1
        d_query, d_key = change[: n * d_k].reshape(n, d_k), change[n * d_k :].reshape(n, d_k)
        moved = d_query @ key.T + query @ d_key.T
        columns.append(attention * (moved - (attention * moved).sum(1, keepdims=True)))
    maps = np.array(columns)  # [change, query, key]
    moves = np.linalg.matrix_rank(maps.reshape(len(maps), -1), tol=1e-9)
    outputs = np.linalg.matrix_rank((maps @ values).reshape(len(maps), -1), tol=1e-9)
    null = n - np.linalg.matrix_rank(np.hstack([values, np.ones((n, 1))]))
    return int(null), int(moves - outputs)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 8), st.integers(1, 5), st.integers(1, 5), st.integers(0, 2**16))
def test_against_tangent_spaces(n: int, d_k: int, d_v: int, seed: int) -> None:
    null, expected = measured(n, d_k, d_v, seed)
    assert realisable_dimension(n, null, d_k) == expected


def test_both_ends() -> None:
    assert realisable_dimension(9, 4, 100) == 9 * 4  # no bound on the logits: every row moves as it likes
    assert realisable_dimension(9, 0, 100) == 0
    assert [realisable_dimension(30, 13, d_k) for d_k in (16, 8, 4, 2)] == [208, 0, 0, 0]
    assert realisable_dimension(20, 11.5, 8) > realisable_dimension(20, 11.0, 8) > 0
    for arguments in ((0, 0, 1), (5, 5, 1), (5, 1, 0), (5, -1, 1)):
        with pytest.raises(InputError, match="expected at least one key"):
            realisable_dimension(*arguments)
