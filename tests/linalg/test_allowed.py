"""Descriptions of allowed keys."""

import pytest
import torch

import reference
from identiscope.errors import InputError
from identiscope.linalg.allowed import causal, describe_allowed, sliding


@pytest.mark.parametrize(("queries", "keys"), [(7, 7), (3, 7), (1, 1)])
def test_descriptions_are_the_matrices_they_stand_for(queries, keys):
    rows = slice(0, queries)
    for kind, described in (
        ("all", describe_allowed(None, queries, keys)),
        ("causal", causal(queries, keys)),
        ("sliding", sliding(queries, keys, 3)),
    ):
        matrix = torch.from_numpy(reference.allowed_matrix(kind, queries, keys))
        assert torch.equal(described.block(rows), matrix)
        assert torch.equal(described.count(), matrix.sum(1))
        from_matrix = describe_allowed(matrix, queries, keys)
        assert torch.equal(from_matrix.block(rows), matrix)
        # A matrix of ranges is kept as ranges, so that the fast ways apply to it.
        assert from_matrix.matrix is None
        assert from_matrix.everything == bool(matrix.all())
    assert causal(queries, keys).consecutive_prefixes


def test_arbitrary_matrices_and_their_distinct_rows():
    matrix = torch.from_numpy(reference.allowed_matrix("blocks", 6, 6))
    described = describe_allowed(matrix, 6, 6)
    assert not described.everything
    assert not described.consecutive_prefixes
    rows, index = described.distinct()
    assert len(rows) == 2
    assert all(torch.equal(matrix[row], matrix[int(rows[index[row]])]) for row in range(6))


def test_errors():
    with pytest.raises(InputError, match="at least as many"):
        causal(5, 3)
    with pytest.raises(InputError, match="window of 0"):
        sliding(3, 3, 0)
    with pytest.raises(InputError, match="banana"):
        describe_allowed("banana", 2, 2)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="query 2 has no allowed key"):
        describe_allowed(torch.tensor([[True], [True], [False]]), 3, 1)
    with pytest.raises(InputError, match="query 4"):
        causal(4, 4).row(4)
