"""Effective, null and simplex-span attention against the literal projection, for every kind of mask."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from identiscope.errors import InputError
from identiscope.linalg.allowed import sliding
from identiscope.methods.maps.effective import effective
from identiscope.methods.maps.effective_simplex_span import effective_simplex_span
from identiscope.methods.maps.factored import rows_of
from identiscope.methods.maps.null import null

MASKS = ["all", "causal", "sliding", "blocks"]


def make(seed, kind, queries, keys, channels, model, value_heads=1, group=1, sink=0.0, temperature=2.0):
    generator = np.random.default_rng(seed)
    value = generator.standard_normal((value_heads, keys, channels))
    projection = generator.standard_normal((value_heads * group, channels, model))
    matrix = reference.allowed_matrix(kind, queries, keys)
    attention = reference.softmax_rows(generator, value_heads * group, matrix, temperature, sink)
    context = attention @ np.repeat(value, group, 0)
    return value, projection, attention, context, matrix


def tensors(
    value: np.ndarray, projection: np.ndarray, context: np.ndarray
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.from_numpy(value), torch.from_numpy(projection), torch.from_numpy(context)


def allowed_of(kind, matrix):
    return {"all": None, "causal": "causal", "sliding": sliding(len(matrix), matrix.shape[1], 3)}.get(
        kind, torch.from_numpy(matrix)
    )


cases = st.tuples(
    st.integers(0, 10**6), st.sampled_from(MASKS), st.integers(1, 30), st.integers(1, 7), st.integers(1, 9),
    st.integers(1, 2), st.integers(1, 3), st.sampled_from([torch.float64, torch.float32]),
)  # fmt: skip


@given(cases)
@settings(max_examples=120, deadline=None, derandomize=True)
@pytest.mark.parametrize("simplex", [False, True])
def test_equals_literal_projection_and_keeps_output(simplex, case):
    seed, kind, keys, channels, model, value_heads, group, precision = case
    value, projection, attention, context, matrix = make(seed, kind, keys, keys, channels, model, value_heads, group)
    method = effective_simplex_span if simplex else effective
    found = method(
        torch.from_numpy(value), torch.from_numpy(projection), torch.from_numpy(context),
        allowed=allowed_of(kind, matrix), precision=precision,
    ).dense().numpy()  # fmt: skip
    assert (found[:, ~matrix] == 0).all()
    for head in range(len(attention)):
        transformed = value[head // group] @ projection[head]
        output, kept = attention[head] @ transformed, found[head] @ transformed
        assert np.linalg.norm(kept - output) <= 1e-10 * np.linalg.norm(output)
        expected = reference.effective(attention[head], transformed, matrix, simplex)
        assert np.abs(found[head] - expected).max() < 1e-7
        assert (np.linalg.norm(found[head], axis=1) <= np.linalg.norm(attention[head], axis=1) * (1 + 1e-9)).all()
        if simplex:
            assert np.abs(found[head].sum(1) - 1).max() < 1e-11


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("method", [effective, effective_simplex_span])
def test_idempotent(kind, method):
    value, projection, _, context, matrix = make(0, kind, 40, 40, 6, 100, 2, 2)
    options = {"allowed": allowed_of(kind, matrix), "precision": torch.float32}
    value, projection = torch.from_numpy(value), torch.from_numpy(projection)
    once = method(value, projection, torch.from_numpy(context), **options).dense()
    twice = method(value, projection, once @ value.repeat_interleave(2, 0), **options).dense()
    assert float((once - twice).abs().max()) < 1e-11


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["all", "causal"])
def test_long_causal_prefixes_cross_all_regimes(kind, precision):
    """Rows short, square, and long enough for several blocks, with value norms that grow along the text."""
    value, projection, attention, context, matrix = make(3, kind, 200, 200, 16, 48, 1, 2)
    scale = np.geomspace(1e-2, 1e2, 200)[:, None]
    value, context = value * scale, attention @ (value * scale)
    found = effective(
        torch.from_numpy(value), torch.from_numpy(projection), torch.from_numpy(context),
        allowed=allowed_of(kind, matrix), precision=precision,
    )  # fmt: skip
    dense = found.dense().numpy()
    for head in range(2):
        transformed = value[0] @ projection[head]
        relative = 200 * (2.3e-16 if precision == torch.float64 else 1.2e-7)
        expected = reference.effective(attention[head], transformed, matrix, relative=relative)
        output = attention[head] @ transformed
        assert np.linalg.norm(dense[head] @ transformed - output) <= 1e-10 * np.linalg.norm(output)
        assert np.abs(dense[head] - expected).max() < 1e-7
        assert found.rank is not None and found.rank[head].tolist() == [
            reference.rank_of(transformed[matrix[i]], relative) for i in range(200)
        ]  # fmt: skip


def test_full_row_rank_leaves_attention_alone():
    value, projection, attention, context, _ = make(1, "all", 5, 5, 8, 20)
    found = effective(*tensors(value, projection, context))
    assert np.abs(found.dense().numpy() - attention).max() < 1e-12
    assert found.rank is not None and found.rank.tolist() == [[5] * 5]


def test_one_more_key_than_channels_is_identifiable_on_the_simplex_only():
    value, projection, attention, context, _ = make(2, "all", 7, 7, 6, 20)
    given_ = tensors(value, projection, context)
    assert np.abs(effective_simplex_span(*given_).dense().numpy() - attention).max() < 1e-11
    assert np.abs(effective(*given_).dense().numpy() - attention).max() > 1e-2


def test_a_causal_row_never_touches_the_future():
    value, projection, attention, context, _ = make(4, "causal", 50, 50, 4, 12)
    given_ = tensors(value, projection, context)
    before = effective(*given_, allowed="causal").dense()
    assert bool((before.triu(1) == 0).all())
    changed = value.copy()
    changed[:, 30:] += 1.0
    after = effective(
        torch.from_numpy(changed), given_[1], torch.from_numpy(attention @ changed), allowed="causal"
    ).dense()
    assert float((before[:, :30] - after[:, :30]).abs().max()) < 1e-11
    assert float((before[:, 30:] - after[:, 30:]).abs().max()) > 1e-3


def test_fewer_queries_than_keys():
    """Cross-attention, and queries that continue a cache."""
    for kind in ("all", "causal"):
        value, projection, attention, context, matrix = make(5, kind, 6, 25, 4, 12, 1, 2)
        found = effective(*tensors(value, projection, context), allowed=allowed_of(kind, matrix))
        expected = [reference.effective(attention[h], value[0] @ projection[h], matrix) for h in range(2)]
        assert np.abs(found.dense().numpy() - np.array(expected)).max() < 1e-11


def test_projection_without_full_row_rank():
    value, projection, attention, context, matrix = make(6, "causal", 30, 30, 6, 40, 1, 3)
    projection[1, 4] = projection[1, 0] - 2 * projection[1, 3]
    projection[2] = 0.0
    projection[2, 0] = 1.0
    for kind in ("all", "causal"):
        allowed = matrix if kind == "causal" else np.ones_like(matrix)
        found = effective(
            *tensors(value, projection, context),
            allowed=torch.from_numpy(allowed), precision=torch.float32,
        )  # fmt: skip
        assert found.rank is not None and found.rank[:, -1].tolist() == [6, 5, 1]
        dense = found.dense().numpy()
        for head in range(3):
            expected = reference.effective(attention[head], value[0] @ projection[head], allowed)
            assert np.abs(dense[head] - expected).max() < 1e-10


def test_attention_sinks_keep_their_row_sums():
    value, projection, attention, context, matrix = make(7, "causal", 30, 30, 4, 12, 1, 2, sink=0.3)
    total = torch.from_numpy(attention.sum(-1))
    found = effective_simplex_span(
        *tensors(value, projection, context), allowed="causal", row_sum=total
    ).dense().numpy()  # fmt: skip
    assert np.abs(found.sum(-1) - 0.7).max() < 1e-12
    for head in range(2):
        expected = reference.effective(attention[head], value[0] @ projection[head], matrix, simplex=True)
        assert np.abs(found[head] - expected).max() < 1e-10


def test_value_bias_changes_effective_but_not_the_simplex_span():
    value, projection, attention, context, matrix = make(8, "all", 30, 30, 5, 12, 1, 2)
    bias = np.array([[3.0, -2.0, 0.5, 1.0, -1.0]])
    biased = value + bias[:, None]
    given_ = tensors(biased, projection, attention @ biased)
    literal = effective(*given_, value_bias=torch.from_numpy(bias)).dense().numpy()
    assert np.abs(literal - effective(*tensors(value, projection, context)).dense().numpy()).max() < 1e-12
    assert np.abs(literal - effective(*given_).dense().numpy()).max() > 1e-2
    span = effective_simplex_span(*given_).dense().numpy()
    plain = effective_simplex_span(*tensors(value, projection, context)).dense().numpy()
    assert np.abs(span - plain).max() < 1e-12
    assert matrix.all()


def test_value_bias_with_sinks_uses_the_row_sums():
    value, projection, attention, _, matrix = make(9, "causal", 20, 20, 3, 8, 1, 1, sink=0.4)
    bias = np.array([[2.0, -1.0, 4.0]])
    found = effective(
        torch.from_numpy(value + bias[:, None]), torch.from_numpy(projection),
        torch.from_numpy(attention @ (value + bias[:, None])), allowed="causal",
        value_bias=torch.from_numpy(bias), row_sum=torch.from_numpy(attention.sum(-1)),
    )  # fmt: skip
    expected = reference.effective(attention[0], value[0] @ projection[0], matrix)
    assert np.abs(found.dense().numpy()[0] - expected).max() < 1e-10


def test_null_attention_has_no_output():
    value, projection, attention, context, matrix = make(10, "causal", 40, 40, 5, 12, 2, 2)
    found = null(*tensors(value, projection, context), rows_of(torch.from_numpy(attention)), allowed="causal")
    dense = found.dense().numpy()
    for head in range(4):
        transformed = value[head // 2] @ projection[head]
        assert np.linalg.norm(dense[head] @ transformed) < 1e-10 * np.linalg.norm(attention[head] @ transformed)
        assert np.abs(attention[head] - dense[head] - reference.effective(
            attention[head], transformed, matrix)).max() < 1e-10  # fmt: skip
    assert np.abs(found.row(39).numpy() - dense[:, 39]).max() < 1e-15
    assert np.abs(found.cell(39, 3).numpy() - dense[:, 39, 3]).max() < 1e-15


def test_single_token_equal_tokens_and_zero_values():
    one = effective(torch.full((1, 1, 3), 2.0), torch.eye(3)[None], torch.full((1, 1, 3), 2.0))
    assert one.dense().tolist() == [[[1.0]]]
    attention = torch.tensor([[[0.7, 0.2, 0.1]]])
    same = torch.tensor([1.0, -2.0]).expand(1, 3, 2)
    for method in (effective, effective_simplex_span):
        found = method(same, torch.eye(2)[None], attention @ same)
        assert torch.allclose(found.dense(), torch.full((1, 1, 3), 1 / 3, dtype=torch.float64), atol=1e-7)
        assert found.rank is not None and found.rank.tolist() == [[1]]
    zero = effective(torch.zeros(1, 3, 2), torch.eye(2)[None], torch.zeros(1, 1, 2))
    assert zero.dense().abs().max() == 0
    assert zero.rank is not None and zero.rank.tolist() == [[0]]


def test_one_hot_rows():
    value, projection, _, _, _ = make(11, "all", 20, 20, 4, 9)
    attention = np.eye(20)[None]
    found = effective(*tensors(value, projection, attention @ value)).dense().numpy()[0]
    null_basis = reference.left_null_basis(value[0] @ projection[0])
    assert np.abs(found - (np.eye(20) - null_basis @ null_basis.T)).max() < 1e-12


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"value": torch.zeros(2, 4)}, r"values of shape \[2, 4\]"),
        ({"value": torch.zeros(3, 4, 3)}, "divides 2"),
        ({"context": torch.zeros(2, 4, 5)}, "context of shape"),
        ({"value": torch.full((2, 4, 3), torch.nan)}, "not finite"),
        ({"allowed": torch.zeros(4, 4, dtype=torch.bool)}, "no allowed key"),
        ({"allowed": torch.ones(4, 4)}, "boolean"),
        ({"allowed": torch.ones(3, 4, dtype=torch.bool)}, "expected"),
        ({"precision": torch.int32}, "precision"),
        ({"value_bias": torch.zeros(3)}, "value bias"),
    ],
)
def test_errors_say_what_was_given(change, message):
    given_ = {"value": torch.zeros(2, 4, 3), "context": torch.zeros(2, 4, 3), "projection": torch.ones(2, 3, 6)}
    with pytest.raises(InputError, match=message):
        effective(**{**given_, **change})
