"""The least and the most of every weight, alone and with its copies, against all corners written out."""

import numpy as np
import pytest
import torch

import identiscope
import reference
from identiscope.errors import InputError
from identiscope.linalg.equal_rows import equal_rows
from identiscope.methods.freedom.interval_map import interval_map
from identiscope.methods.freedom.intervals import intervals
from identiscope.methods.maps.factored import rows_of


def build(seed: int, kind: str = "all", keys: int = 9, channels: int = 2) -> tuple[np.ndarray, ...]:
    generator = np.random.default_rng(seed)
    value, projection = generator.standard_normal((1, keys, channels)), generator.standard_normal((1, channels, 5))
    matrix = reference.allowed_matrix(kind, keys, keys)
    return value, projection, reference.softmax_rows(generator, 1, matrix), matrix


@pytest.mark.parametrize("kind", ["all", "causal", "blocks"])
@pytest.mark.parametrize("seed", [0, 1])
def test_every_bound_is_that_of_all_corners(seed: int, kind: str) -> None:
    value, projection, attention, matrix = build(seed, kind)
    groups = np.array([0, 1, 2, 1, 3, 0, 4, 1, 5])
    found = interval_map(
        torch.from_numpy(value), torch.from_numpy(projection), rows_of(torch.from_numpy(attention)), 9,
        allowed=torch.from_numpy(matrix), copies=torch.from_numpy(groups),
    )  # fmt: skip
    assert found.copies.tolist() == groups.tolist()
    transformed = value[0] @ projection[0]
    for query in range(9):
        keys = np.flatnonzero(matrix[query])
        row = attention[0, query, keys]
        corners = reference.vertices(row, transformed[keys])
        corners = corners if len(corners) else row[None]
        for place, key in enumerate(keys):
            same = groups[keys] == groups[key]
            for parts, lower, upper, weight in (
                (corners[:, place], found.lower, found.upper, found.weight),
                (corners[:, same].sum(1), found.merged_lower, found.merged_upper, found.merged_weight),
            ):
                assert float(lower[query, key]) == pytest.approx(parts.min(), abs=1e-9)
                assert float(upper[query, key]) == pytest.approx(parts.max(), abs=1e-9)
                assert lower[query, key] - 1e-15 <= weight[query, key] <= upper[query, key] + 1e-15
        unseen = ~matrix[query]
        assert not found.upper[query, unseen].any() and not found.merged_upper[query, unseen].any()
        rank = np.linalg.matrix_rank(reference.with_ones(transformed[keys]))
        assert int(found.freedom[query]) == len(keys) - rank


def test_cells_and_the_map_say_the_same(minilm: identiscope.Model) -> None:
    trace = identiscope.trace(minilm, identiscope.PASSAGE)
    whole = identiscope.interval_map(trace, 3, 5)
    some = identiscope.attention_intervals(trace, 3, 5, cells=[(20, 0), (20, 31), (77, 76), (101, 4)])
    for cell in range(4):
        query, key = int(some["query"][cell]), int(some["key"][cell])
        for name in ("weight", "lower", "upper", "merged_weight", "merged_lower", "merged_upper"):
            assert float(some[name][cell]) == pytest.approx(float(whole[name][query, key]), abs=1e-12), name
        copies = [place for place, token in enumerate(trace.tokens) if token == trace.tokens[key]]
        assert int(some["copies"][cell]) == len(copies)
        raw = trace.site(3).attention(5)[query, copies].sum()
        assert float(some["merged_weight"][cell]) == pytest.approx(float(raw), abs=1e-14)


def test_copies_may_be_told_by_their_values() -> None:
    """Two keys with one row of T, and a third that is a copy by its token alone."""
    value, projection, attention, _ = build(5, keys=6)
    value[0, 4] = value[0, 1]
    tensors = torch.from_numpy(value), torch.from_numpy(projection), rows_of(torch.from_numpy(attention))
    tokens = torch.tensor([0, 1, 2, 0, 3, 4])
    found = intervals(*tensors, head=0, query=2, equal="values", copies=tokens)
    assert found.copies.tolist() == [1, 2, 1, 1, 2, 1]
    # What only moves between the two keys does not move.
    corners = reference.vertices(attention[0, 2], value[0] @ projection[0])
    both = corners[:, [1, 4]].sum(1)
    assert float(found.merged_lower[1]) == pytest.approx(both.min(), abs=1e-9)
    assert float(found.merged_upper[4]) == pytest.approx(both.max(), abs=1e-9)
    assert float(found.upper[1]) >= float(found.merged_weight[1])
    by_token = intervals(*tensors, head=0, query=2, copies=tokens)
    assert by_token.copies.tolist() == [2, 1, 1, 2, 1, 1]
    with pytest.raises(InputError, match=r"equal='sound' was given; expected one of tokens, values"):
        intervals(*tensors, head=0, query=2, equal="sound")  # type: ignore[arg-type]


def test_rows_that_rounding_sets_apart_are_equal_and_others_are_not() -> None:
    points = torch.tensor([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0 + 2e-7], [1.0, 2.01], [0.0, 0.0], [0.0, 0.0]]).double()
    assert equal_rows(points, torch.float32).tolist() == [0, 1, 0, 2, 3, 3]
    assert equal_rows(points, torch.float64).tolist() == [0, 1, 2, 3, 4, 4]
    assert equal_rows(points, torch.bfloat16).tolist() == [0, 1, 0, 0, 2, 2]


def test_the_same_word_twice_in_the_first_layer_of_a_rotary_model(smollm2: identiscope.Model) -> None:
    """Positions are in queries and keys alone there, so that the values of two copies are the same."""
    trace = identiscope.trace(smollm2, "I want to go to the sea and to the hills.")
    found = identiscope.interval_map(trace, 0, 0, equal="values")
    tokens = identiscope.interval_map(trace, 0, 0)
    assert found.copies.values.tolist() == tokens.copies.values.tolist()
    assert float(found.width.max()) > 0.05
    assert float(found.merged_width.max()) < 1e-6
