"""Intervals against brute-force enumeration of the vertices."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from identiscope.errors import InputError
from identiscope.methods.freedom.intervals import intervals
from identiscope.methods.maps.factored import rows_of


def build(seed, keys, channels, kind="all", temperature=1.0, sink=0.0):
    generator = np.random.default_rng(seed)
    value, projection = generator.standard_normal((1, keys, channels)), generator.standard_normal((2, channels, 6))
    matrix = reference.allowed_matrix(kind, keys, keys)
    attention = reference.softmax_rows(generator, 2, matrix, temperature, sink)
    return value, projection, attention, matrix


@given(
    st.integers(0, 10**6), st.integers(1, 8), st.integers(1, 3), st.sampled_from(["all", "causal", "blocks"]),
    st.sampled_from([0.5, 2.0, 5.0]), st.sampled_from([0.0, 0.4]),
)  # fmt: skip
@settings(max_examples=40, deadline=None, derandomize=True)
def test_equal_the_vertices(seed, keys, channels, kind, temperature, sink):
    value, projection, attention, matrix = build(seed, keys, channels, kind, temperature, sink)
    query, head = keys - 1, 1
    found = intervals(
        torch.from_numpy(value), torch.from_numpy(projection), rows_of(torch.from_numpy(attention)),
        head=head, query=query, allowed=torch.from_numpy(matrix),
    )  # fmt: skip
    inside = np.flatnonzero(matrix[query])
    transformed, row = value[0] @ projection[head], attention[head, query]
    corners = reference.vertices(row[inside], transformed[inside])
    assert found.key.tolist() == inside.tolist()
    assert np.abs(found.lower.numpy() - corners.min(0)).max() < 1e-9
    assert np.abs(found.upper.numpy() - corners.max(0)).max() < 1e-9
    assert (found.lower <= found.weight).all()
    assert (found.weight <= found.upper).all()
    assert found.weight.tolist() == row[inside].tolist()
    for index, key in enumerate(inside):
        for rows, bound in ((found.lower_row, found.lower), (found.upper_row, found.upper)):
            attaining = rows[index].numpy()
            assert attaining[key] == float(bound[index])
            assert attaining.min() >= 0
            assert (attaining[~matrix[query]] == 0).all()
            assert abs(attaining.sum() - row.sum()) < 1e-10
            assert np.linalg.norm((attaining - row) @ transformed) < 1e-9 * np.linalg.norm(row @ transformed)


def test_identifiable_rows_have_point_intervals():
    value, projection, attention, _ = build(0, 4, 3)
    found = intervals(
        torch.from_numpy(value), torch.from_numpy(projection), rows_of(torch.from_numpy(attention)), head=0, query=2
    )
    assert found.freedom.tolist() == [0] * 4
    assert found.lower.tolist() == found.upper.tolist() == found.weight.tolist()


def test_longer_rows_contain_the_weight_and_every_known_alternative():
    value, projection, attention, _ = build(1, 60, 8)
    found = intervals(
        torch.from_numpy(value), torch.from_numpy(projection), rows_of(torch.from_numpy(attention)), head=0, query=5
    )
    rows = torch.cat([found.lower_row, found.upper_row])
    assert bool((rows >= found.lower - 1e-9).all())
    assert bool((rows <= found.upper + 1e-9).all())
    assert float((found.upper - found.lower).min()) > 1e-3
    change = (rows - torch.from_numpy(attention[0, 5])) @ torch.from_numpy(value[0] @ projection[0])
    assert float(change.norm(dim=1).max()) < 1e-9


def test_head_cells_and_top_agree_and_report_progress():
    value, projection, attention, _ = build(2, 7, 2, "causal")
    tensors = torch.from_numpy(value), torch.from_numpy(projection), rows_of(torch.from_numpy(attention))
    seen = []
    whole = intervals(
        *tensors, head=0, allowed="causal", progress=lambda done, total: seen.append((done, total))
    )  # fmt: skip
    assert seen == [(done, 28) for done in range(1, 29)]
    assert len(whole.key) == 28
    place = {(int(q), int(k)): i for i, (q, k) in enumerate(zip(whole.query, whole.key, strict=True))}
    top = intervals(*tensors, head=0, allowed="causal", top=4)
    largest = np.sort(attention[0].ravel())[::-1][:4]
    assert top.weight.tolist() == largest.tolist()
    cells = list(zip(top.query.tolist(), top.key.tolist(), strict=True))
    some = intervals(*tensors, head=0, allowed="causal", cells=cells)
    assert some.upper.tolist() == top.upper.tolist()
    for index, cell in enumerate(cells):
        assert float(top.upper[index]) == pytest.approx(float(whole.upper[place[cell]]), abs=1e-10)
        assert float(top.lower[index]) == pytest.approx(float(whole.lower[place[cell]]), abs=1e-10)


def test_cells_come_back_in_the_order_given():
    value, projection, attention, _ = build(2, 7, 2)
    tensors = torch.from_numpy(value), torch.from_numpy(projection), rows_of(torch.from_numpy(attention))
    cells = [(5, 1), (0, 3), (5, 0), (2, 6), (0, 3), (5, 6)]
    found = intervals(*tensors, head=1, cells=cells)
    assert list(zip(found.query.tolist(), found.key.tolist(), strict=True)) == cells
    assert found.weight.tolist() == [attention[1, query, key] for query, key in cells]
    for index, (query, key) in enumerate(cells):
        alone = intervals(*tensors, head=1, query=query, keys=[key])
        assert float(found.lower[index]) == pytest.approx(float(alone.lower[0]), abs=1e-10)
        assert float(found.upper[index]) == pytest.approx(float(alone.upper[0]), abs=1e-10)
        assert float(found.lower_row[index, key]) == float(found.lower[index])
        assert float(found.upper_row[index, key]) == float(found.upper[index])


def test_what_cannot_be_answered_is_refused_before_any_work():
    value, projection, attention, _ = build(3, 4, 2, "causal")
    moved = []
    with pytest.raises(InputError, match="may not look"):
        intervals(
            torch.from_numpy(value), torch.from_numpy(projection), rows_of(torch.from_numpy(attention)),
            allowed="causal", head=0, cells=[(3, 0), (0, 3)], progress=lambda *step: moved.append(step),
        )  # fmt: skip
    assert moved == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"query": 9}, "query 9"),
        ({"query": 1.5}, r"query=1\.5 was given, expected one query position"),
        ({"query": 1, "keys": []}, r"keys=\[\] was given, expected key positions of query 1"),
        ({"query": 1, "keys": [0.5]}, r"keys=0\.5 was given, expected key positions of query 1"),
        ({"cells": []}, "no cells were given, expected at least one pair"),
        ({"cells": [3]}, r"cells=\[3\] was given, expected at least one pair"),
        ({"cells": [(1, 0.5)]}, "expected at least one pair"),
        ({"top": 0}, "the top 0 weights were asked for, expected between 1 and 10"),
        ({"top": 2.5}, r"top=2\.5 was given, expected how many"),
        ({"query": 1, "top": 2}, "more than one"),
        ({"keys": [1]}, "keys without a query"),
        ({"query": 1, "keys": [3]}, "may not look"),
        ({"top": 99}, "top 99"),
        ({"query": 1, "head": 5}, "head 5"),
    ],
)
def test_errors(options, message):
    value, projection, attention, _ = build(3, 4, 2, "causal")
    options = {"head": 0, **options}
    with pytest.raises(InputError, match=message):
        intervals(
            torch.from_numpy(value), torch.from_numpy(projection), rows_of(torch.from_numpy(attention)),
            allowed="causal", **options,
        )  # fmt: skip


def test_a_mask_that_does_not_belong_to_the_rows_is_noticed():
    value, projection, attention, _ = build(4, 4, 2, "all")
    with pytest.raises(InputError, match="not allowed"):
        intervals(
            torch.from_numpy(value), torch.from_numpy(projection), rows_of(torch.from_numpy(attention)),
            head=0, query=1, allowed="causal",
        )  # fmt: skip
