"""Canonical attention: feasible, of minimum norm (KKT), unique, for soft and for very peaked rows."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from identiscope.errors import InputError
from identiscope.methods.maps.canonical import canonical
from identiscope.methods.maps.effective_simplex_span import effective_simplex_span
from identiscope.methods.maps.factored import rows_of


def check_row(answer, raw, transformed, keys):
    """Feasibility and the KKT conditions of min ‖a‖² over a ≥ 0, a·[T,1] = raw·[T,1], on the allowed keys."""
    constraints = reference.with_ones(transformed[keys])
    row = answer[keys]
    assert row.min() >= 0
    assert abs(row.sum() - raw.sum()) < 1e-10
    output = raw[keys] @ transformed[keys]
    assert np.linalg.norm(row @ transformed[keys] - output) < 1e-9 * max(float(np.linalg.norm(output)), 1e-3)
    # Stationarity and complementarity: a = Bλ where a > 0, and Bλ ≤ 0 where a = 0, for some λ. The answer is
    # compared with the one of an independent solver, since λ is not unique for sparse rows.
    expected = reference.minimum_norm(raw[keys], transformed[keys])
    assert np.linalg.norm(row) <= np.linalg.norm(expected) + 1e-9
    assert np.abs(row - expected).max() < 1e-6
    positive = row > 1e-9
    multiplier, *_ = np.linalg.lstsq(constraints[positive], row[positive], rcond=None)
    assert np.abs(constraints[positive] @ multiplier - row[positive]).max() < 1e-7


cases = st.tuples(
    st.integers(0, 10**6), st.sampled_from(["all", "causal", "sliding", "blocks"]), st.integers(1, 30),
    st.integers(1, 6), st.sampled_from([0.3, 1.0, 3.0, 8.0]), st.sampled_from([0.0, 0.3]),
)  # fmt: skip


@given(cases)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_kkt_and_independent_solver(case):
    seed, kind, keys, channels, temperature, sink = case
    generator = np.random.default_rng(seed)
    value, projection = generator.standard_normal((1, keys, channels)), generator.standard_normal((2, channels, 9))
    matrix = reference.allowed_matrix(kind, keys, keys)
    attention = reference.softmax_rows(generator, 2, matrix, temperature, sink)
    found = canonical(
        torch.from_numpy(value), torch.from_numpy(projection), rows_of(torch.from_numpy(attention)),
        allowed=torch.from_numpy(matrix),
    )  # fmt: skip
    dense = found.dense().numpy()
    assert (dense[:, ~matrix] == 0).all()
    assert found.residual is not None and float(found.residual.max()) < 1e-10
    for head in range(2):
        for query in range(keys):
            check_row(dense[head, query], attention[head, query], value[0] @ projection[head], matrix[query])


def test_bigger_head_with_sparse_rows():
    """Rows from nearly uniform to nearly one-hot, as the heads of a trained model have them."""
    generator = np.random.default_rng(0)
    value, projection = generator.standard_normal((1, 100, 16)), generator.standard_normal((1, 16, 40))
    temperature = np.geomspace(0.3, 20, 100)[:, None]
    logits = temperature * generator.standard_normal((1, 100, 100))
    attention = np.exp(logits - logits.max(-1, keepdims=True))
    attention /= attention.sum(-1, keepdims=True)
    found = canonical(torch.from_numpy(value), torch.from_numpy(projection), rows_of(torch.from_numpy(attention)))
    assert found.residual is not None and float(found.residual.max()) < 1e-10
    dense = found.dense().numpy()
    assert dense.min() >= 0
    assert np.abs(dense.sum(-1) - 1).max() < 1e-10
    for query in range(0, 100, 7):
        expected = reference.minimum_norm(attention[0, query], value[0] @ projection[0])
        assert np.abs(dense[0, query] - expected).max() < 1e-7


def test_same_for_all_attention_with_the_same_output():
    generator = np.random.default_rng(1)
    value, projection = generator.standard_normal((1, 20, 4)), generator.standard_normal((1, 4, 9))
    attention = reference.softmax_rows(generator, 1, np.ones((1, 20), dtype=bool))
    null = reference.left_null_basis(reference.with_ones(value[0] @ projection[0]))
    direction = null @ generator.standard_normal(null.shape[1])
    other = attention + 0.9 * reference.largest_step(attention[0, 0], direction) * direction
    tensors = torch.from_numpy(value), torch.from_numpy(projection)
    first, second = (
        canonical(*tensors, rows_of(torch.from_numpy(rows)), queries=1).dense() for rows in (attention, other)
    )
    assert float((first - second).abs().max()) < 1e-10
    assert np.abs(attention - other).max() > 1e-3


def test_equals_the_simplex_span_where_that_is_not_negative():
    generator = np.random.default_rng(2)
    value, projection = generator.standard_normal((1, 30, 4)), generator.standard_normal((2, 4, 9))
    attention = reference.softmax_rows(generator, 2, np.ones((30, 30), dtype=bool), 0.2)
    tensors = [torch.from_numpy(x) for x in (value, projection, attention)]
    span = effective_simplex_span(tensors[0], tensors[1], tensors[2] @ tensors[0]).dense()
    found = canonical(tensors[0], tensors[1], rows_of(tensors[2])).dense()
    rows = (span >= 0).all(-1)
    assert bool(rows.any())
    assert float((span - found)[rows].abs().max()) < 1e-11


def test_value_bias_makes_no_difference():
    generator = np.random.default_rng(3)
    value, projection = generator.standard_normal((1, 25, 4)), generator.standard_normal((1, 4, 9))
    attention = torch.from_numpy(reference.softmax_rows(generator, 1, np.ones((25, 25), dtype=bool), 3.0))
    plain, biased = (
        canonical(torch.from_numpy(v), torch.from_numpy(projection), rows_of(attention)).dense()
        for v in (value, value + np.array([5.0, -3.0, 0.0, 1.0]))
    )
    assert float((plain - biased).abs().max()) < 1e-9


def test_one_hot_single_and_equal_tokens():
    generator = np.random.default_rng(4)
    value, projection = torch.from_numpy(generator.standard_normal((1, 12, 4))), torch.eye(4, 8)[None]
    one_hot = canonical(value, projection, rows_of(torch.eye(12)[None]))
    transformed = (value[0] @ projection[0].double()).numpy()
    for query, row in enumerate(one_hot.dense().numpy()[0]):
        assert np.abs(row - reference.minimum_norm(np.eye(12)[query], transformed)).max() < 1e-6
    assert canonical(torch.ones(1, 1, 2), torch.eye(2)[None], rows_of(torch.ones(1, 1, 1))).dense().tolist() == [
        [[pytest.approx(1.0)]]
    ]
    equal = canonical(torch.ones(1, 5, 2), torch.eye(2)[None], rows_of(torch.eye(5)[None])).dense()
    assert float((equal - 0.2).abs().max()) < 1e-12


def test_identifiable_rows_stay():
    generator = np.random.default_rng(5)
    value, projection = generator.standard_normal((1, 9, 8)), generator.standard_normal((1, 8, 9))
    attention = torch.from_numpy(reference.softmax_rows(generator, 1, np.ones((9, 9), dtype=bool), 2.0))
    found = canonical(torch.from_numpy(value), torch.from_numpy(projection), rows_of(attention)).dense()
    assert float((found - attention).abs().max()) < 1e-9


def test_raw_of_the_wrong_shape():
    with pytest.raises(InputError, match=r"raw attention of shape \[1, 3, 3\]"):
        canonical(torch.ones(1, 4, 2), torch.eye(2)[None], rows_of(torch.ones(1, 3, 3)))


@pytest.mark.parametrize(
    ("weights", "allowed"),
    [([0.5, 0.6, -0.1], None), ([0.5, float("nan"), 0.5], None), ([0.0, 0.5, 0.5], [True, True, False])],
)
def test_what_no_softmax_gives_is_refused(weights, allowed):
    mask = None if allowed is None else torch.tensor([allowed])
    with pytest.raises(InputError, match="pass raw attention after the softmax"):
        canonical(
            torch.randn(1, 3, 1), torch.ones(1, 1, 1), rows_of(torch.tensor([[weights]])), queries=1, allowed=mask
        )


def test_rows_that_are_not_solved_are_warned_of(monkeypatch):
    monkeypatch.setattr("identiscope.linalg.simplex.minimum_norm._STEPS", 1)
    generator = np.random.default_rng(6)
    value, projection = generator.standard_normal((1, 40, 8)), generator.standard_normal((1, 8, 9))
    attention = torch.from_numpy(reference.softmax_rows(generator, 1, np.ones((40, 40), dtype=bool), 6.0))
    with pytest.warns(UserWarning, match=r"canonical attention keeps the output to only .* of 40 rows"):
        canonical(torch.from_numpy(value), torch.from_numpy(projection), rows_of(attention))


def test_tensors_that_require_gradients():
    value, projection = torch.randn(1, 6, 2, requires_grad=True), torch.randn(1, 2, 3, requires_grad=True)
    attention = torch.randn(1, 6, 6, requires_grad=True).softmax(-1)
    assert not canonical(value, projection, rows_of(attention)).dense().requires_grad
