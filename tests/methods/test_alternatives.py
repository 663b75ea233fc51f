"""Alternatives keep what they must, go where they were sent, and carry a true certificate."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from identiscope.errors import InputError, MathError
from identiscope.linalg.simplex.polytope import Certificate, worst_certificate
from identiscope.methods.freedom.alternatives import (
    alternative_along,
    alternative_avoiding,
    alternative_farthest,
    alternative_favouring,
)
from identiscope.methods.freedom.intervals import intervals
from identiscope.methods.freedom.polytopes import head_rows
from identiscope.methods.freedom.realisable_alternative import realisable_alternative
from identiscope.methods.maps.factored import rows_of


def build(seed, keys, channels, kind="all", temperature=1.0, sink=0.0):
    generator = np.random.default_rng(seed)
    value, projection = generator.standard_normal((1, keys, channels)), generator.standard_normal((1, channels, 6))
    matrix = reference.allowed_matrix(kind, keys, keys)
    attention = reference.softmax_rows(generator, 1, matrix, temperature, sink)
    return value, projection, attention, matrix


def tensors(value, projection, attention) -> tuple[torch.Tensor, torch.Tensor, Any]:
    return torch.from_numpy(value), torch.from_numpy(projection), rows_of(torch.from_numpy(attention))


def check(found, row, transformed):
    """The certificate says what is so, and what is so is good."""
    other = found.row.numpy()
    change = np.linalg.norm((other - row) @ transformed)
    assert found.certificate.least_weight == pytest.approx(other.min(), abs=1e-15)
    assert found.certificate.row_sum_error == pytest.approx(abs(other.sum() - row.sum()), abs=1e-14)
    assert found.certificate.output_error == pytest.approx(change, abs=1e-13)
    assert found.total_variation == pytest.approx(0.5 * np.abs(other - row).sum(), abs=1e-14)
    assert found.certificate.least_weight >= 0
    assert found.certificate.row_sum_error < 1e-10
    assert found.certificate.output_error_relative < 1e-9


@given(st.integers(0, 10**6), st.integers(4, 25), st.integers(1, 5), st.sampled_from(["all", "causal"]),
       st.sampled_from([0.0, 0.3]))  # fmt: skip
@settings(max_examples=40, deadline=None, derandomize=True)
def test_along_goes_to_the_edge(seed, keys, channels, kind, sink):
    value, projection, attention, matrix = build(seed, keys, channels, kind, sink=sink)
    query, direction = keys - 1, np.random.default_rng(seed + 1).standard_normal(keys)
    transformed, row = value[0] @ projection[0], attention[0, query]
    null = reference.left_null_basis(reference.with_ones(transformed))
    rows = head_rows(*tensors(value, projection, attention), allowed=torch.from_numpy(matrix))
    given_, options = (rows, torch.from_numpy(direction)), {"query": query}
    if null.shape[1] == 0:
        with pytest.raises(MathError, match="dimension is 0"):
            alternative_along(*given_, **options)
        return
    found = alternative_along(*given_, **options)
    check(found, row, transformed)
    inward = null @ (null.T @ direction)
    expected = row + reference.largest_step(row, inward) * inward
    assert np.abs(found.row.numpy() - expected).max() < 1e-9
    assert found.row.min() < 1e-12
    unit = inward / np.linalg.norm(inward)
    assert found.lambda_max == pytest.approx(reference.largest_step(row, unit), abs=1e-9)
    assert found.lambda_max == pytest.approx(np.linalg.norm(found.row.numpy() - row), abs=1e-9)


@pytest.mark.parametrize("size", [1e-300, 1e300])
def test_only_where_a_direction_points_matters(size):
    value, projection, attention, _ = build(3, 12, 3)
    direction = torch.from_numpy(np.random.default_rng(4).standard_normal(12))
    given_ = tensors(value, projection, attention)
    found = alternative_along(head_rows(*given_), size * direction, query=4)
    expected = alternative_along(head_rows(*given_), direction, query=4)
    assert found.row.tolist() == pytest.approx(expected.row.tolist(), abs=1e-12)
    assert found.lambda_max == pytest.approx(expected.lambda_max, abs=1e-12)


def test_avoiding_and_favouring_are_the_ends_of_the_interval():
    value, projection, attention, _ = build(0, 12, 3)
    given_ = tensors(value, projection, attention)
    bounds = intervals(*given_, head=0, query=4)
    for key in range(12):
        least = alternative_avoiding(head_rows(*given_), query=4, keys=[key])
        most = alternative_favouring(head_rows(*given_), query=4, keys=[key])
        for found, bound in ((least, bounds.lower), (most, bounds.upper)):
            check(found, attention[0, 4], value[0] @ projection[0])
            assert float(found.row[key]) == pytest.approx(float(bound[key]), abs=1e-9)
    both = alternative_avoiding(head_rows(*given_), query=4, keys=[0, 1])
    corners = reference.vertices(attention[0, 4], value[0] @ projection[0])
    assert float(both.row[:2].sum()) == pytest.approx(corners[:, :2].sum(1).min(), abs=1e-9)


@pytest.mark.parametrize("measure", ["total_variation", "jensen_shannon"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_farthest_is_a_lower_bound_and_a_good_one(measure, seed):
    value, projection, attention, _ = build(seed, 10, 2)
    row = attention[0, 3]
    found = alternative_farthest(head_rows(*tensors(value, projection, attention)), query=3, measure=measure)
    check(found, row, value[0] @ projection[0])
    corners = reference.vertices(row, value[0] @ projection[0])
    if measure == "total_variation":
        distances, reached = 0.5 * np.abs(corners - row).sum(1), found.total_variation
    else:
        middle = 0.5 * (corners + row)
        with np.errstate(divide="ignore", invalid="ignore"):
            part = np.where(corners > 0, corners * np.log(corners / middle), 0)
        distances = 0.5 * (part + row * np.log(row / middle)).sum(1)
        reached = found.jensen_shannon
    assert reached <= distances.max() + 1e-9
    assert reached >= 0.9 * distances.max()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_farthest_with_copies_added_up(seed):
    """Over all corners, literally: the distance of the sums by group."""
    value, projection, attention, _ = build(seed, 10, 2)
    row, groups = attention[0, 3], np.array([0, 1, 2, 0, 3, 1, 4, 0, 2, 5])
    rows = head_rows(*tensors(value, projection, attention))
    found = alternative_farthest(rows, query=3, groups=torch.from_numpy(groups)).row.numpy()
    corners = reference.vertices(row, value[0] @ projection[0])

    def distance(other):
        return 0.5 * sum(abs(other[groups == group].sum() - row[groups == group].sum()) for group in range(6))

    best = max(map(distance, corners))
    assert 0.9 * best <= distance(found) <= best + 1e-9


def test_nothing_moves_where_nothing_can():
    value, projection, attention, _ = build(5, 4, 3)
    found = alternative_farthest(head_rows(*tensors(value, projection, attention)), query=0)
    assert found.total_variation == 0
    one_hot = np.eye(10)[None]
    value, projection, _, _ = build(6, 10, 3)
    extreme = int(np.argmax(np.linalg.norm(value[0] @ projection[0], axis=1)))
    found = alternative_farthest(head_rows(*tensors(value, projection, one_hot)), query=extreme)
    assert found.total_variation < 1e-7


@pytest.mark.parametrize(("kind", "sink"), [("all", 0.0), ("causal", 0.0), ("causal", 0.25)])
def test_realisable_by_maximum_entropy(kind, sink):
    """T serves as keys: the centred logits have rank ≤ d_v ≤ d_k on the allowed cells, and the output is kept."""
    value, projection, attention, matrix = build(7, 30, 4, kind, sink=sink)
    found = realisable_alternative(
        *tensors(value, projection, attention), head=0, key_channels=4, allowed=torch.from_numpy(matrix)
    )
    other = found.attention.numpy()
    assert bool(found.solved.all())
    assert found.key.shape[1] <= 4
    assert found.certificate.least_weight >= 0
    assert found.certificate.row_sum_error < 1e-10
    assert found.certificate.output_error_relative < 1e-8
    logits = (found.query @ found.key.mT).numpy()
    again = np.where(matrix, np.exp(logits - logits.max(1, keepdims=True)), 0)
    assert np.abs((1 - sink) * again / again.sum(1, keepdims=True) - other).max() < 1e-12
    if kind == "all":
        centred = np.log(other) - np.log(other).mean(1, keepdims=True)
        assert reference.rank_of(centred, 1e-9) <= 4
        assert np.linalg.matrix_rank(other) > 5
    assert float(found.total_variation.max()) > 0.1
    entropy = [-(x[x > 0] * np.log(x[x > 0])).sum() for x in (other, attention[0])]
    assert entropy[0] > entropy[1]


def test_realisable_with_fewer_key_channels_than_the_rank_of_t():
    generator = np.random.default_rng(8)
    keys, channels, key_channels = 24, 4, 3
    value, projection = generator.standard_normal((1, keys, channels)), generator.standard_normal((1, channels, 6))
    logits = generator.standard_normal((keys, key_channels)) @ generator.standard_normal((key_channels, keys))
    attention = np.exp(0.5 * logits)
    attention = (attention / attention.sum(1, keepdims=True))[None]
    found = realisable_alternative(*tensors(value, projection, attention), head=0, key_channels=key_channels)
    assert bool(found.solved.all())
    assert found.certificate.output_error_relative < 1e-8
    other = found.attention.numpy()
    centred = np.log(other) - np.log(other).mean(1, keepdims=True)
    assert reference.rank_of(centred, 1e-9) <= key_channels
    assert float(found.total_variation.max()) > 0.01


def test_realisable_says_when_it_cannot():
    value, projection, attention, _ = build(9, 10, 6)
    with pytest.raises(MathError, match="fewer than the output fixes"):
        realisable_alternative(*tensors(value, projection, attention), head=0, key_channels=2)
    value, projection, attention, _ = build(10, 30, 4)
    with pytest.raises(MathError, match="do not have rank 3"):
        realisable_alternative(*tensors(value, projection, attention), head=0, key_channels=3)


def test_a_certificate_of_many_rows_is_that_of_the_worst_and_hides_no_nan():
    good, bad = Certificate(0.1, 1e-12, 2e-12, 3e-12), Certificate(-0.2, 1e-3, 1e-13, 4e-12)
    assert worst_certificate([good, bad]) == Certificate(-0.2, 1e-3, 2e-12, 4e-12)
    unknown = Certificate(*[float("nan")] * 4)
    for several in ([good, unknown], [unknown, good]):
        worst = worst_certificate(several)
        assert np.isnan(
            [worst.least_weight, worst.row_sum_error, worst.output_error, worst.output_error_relative]
        ).all()


def test_errors():
    given_ = tensors(*build(11, 8, 2)[:3])
    with pytest.raises(InputError, match="direction of shape"):
        alternative_along(head_rows(*given_), torch.ones(3), query=0)
    for wrong in (torch.nan, torch.inf):
        with pytest.raises(InputError, match="NaN or infinite"):
            alternative_along(head_rows(*given_), torch.tensor([1.0] * 7 + [wrong]), query=0)
    with pytest.raises(InputError, match=r"query=1\.5 was given"):
        alternative_farthest(head_rows(*given_), query=1.5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"keys=\[\] was given"):
        alternative_avoiding(head_rows(*given_), query=0, keys=[])
    with pytest.raises(InputError, match="measure"):
        alternative_farthest(head_rows(*given_), query=0, measure="euclid")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="allowed keys"):
        alternative_avoiding(head_rows(*given_), query=0, keys=[8])
