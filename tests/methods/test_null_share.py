"""Null share and correlation with raw attention, per head, row and type of key."""

from typing import Any

import numpy as np
import pytest
import torch

import reference
from identiscope.errors import InputError
from identiscope.methods.heads.null_share import null_share
from identiscope.methods.maps.factored import rows_of


def given(value: np.ndarray, projection: np.ndarray, attention: np.ndarray) -> Any:
    """What the method is given of a layer."""
    return *map(torch.from_numpy, (value, projection, attention @ value)), rows_of(torch.from_numpy(attention))


@pytest.mark.parametrize("kind", ["all", "causal", "blocks"])
def test_against_the_literal_definitions(kind):
    generator = np.random.default_rng(1)
    value, projection = generator.standard_normal((1, 25, 4)), generator.standard_normal((2, 4, 9))
    matrix = reference.allowed_matrix(kind, 25, 25)
    attention = reference.softmax_rows(generator, 2, matrix, 2.0)
    types = generator.random((3, 25)) < 0.4
    options: dict[str, Any] = {"allowed": torch.from_numpy(matrix), "key_types": torch.from_numpy(types)}
    groups = generator.integers(0, 9, size=25)
    options["copies"] = torch.from_numpy(groups)
    share = null_share(*given(value, projection, attention), **options)
    for head in range(2):
        kept = reference.effective(attention[head], value[0] @ projection[head], matrix, simplex=True)
        assert float(share.simplex[head]) == pytest.approx(reference.null_share(attention[head], kept), abs=1e-11)
        together = np.stack([groups == group for group in range(9)], 1).astype(float)
        merged = reference.null_share(attention[head] @ together, kept @ together)
        assert float(share.merged[head]) == pytest.approx(merged, abs=1e-11)
        for row in range(25):
            expected = reference.null_share(attention[head, row], kept[row])
            assert float(share.row_simplex[head, row]) == pytest.approx(expected, abs=1e-11)
            expected = reference.null_share(attention[head, row] @ together, kept[row] @ together)
            assert float(share.row_merged[head, row]) == pytest.approx(expected, abs=1e-11)
        effective = reference.effective(attention[head], value[0] @ projection[head], matrix)
        assert float(share.head[head]) == pytest.approx(reference.null_share(attention[head], effective), abs=1e-11)
        assert float(share.correlation[head]) == pytest.approx(
            reference.pearson(attention[head][matrix], effective[matrix]), abs=1e-10
        )
        for row in range(25):
            expected = reference.null_share(attention[head, row], effective[row])
            assert float(share.row[head, row]) == pytest.approx(expected, abs=1e-11)
            keys = matrix[row]
            if keys.sum() > 1:
                expected = reference.pearson(attention[head, row][keys], effective[row][keys])
                assert float(share.row_correlation[head, row]) == pytest.approx(expected, abs=1e-8)
            else:
                assert bool(share.row_correlation[head, row].isnan())
        for index, chosen in enumerate(types):
            expected = reference.null_share(attention[head][:, chosen], effective[:, chosen])
            assert float(share.key_type[head, index]) == pytest.approx(expected, abs=1e-11)
            inside = matrix & chosen
            expected = reference.pearson(attention[head][inside], effective[inside])
            assert float(share.key_type_correlation[head, index]) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("kind", ["all", "causal"])
def test_copies_by_their_values_are_those_of_each_head(kind):
    """Keys 3 and 11 have equal values; 5 and 8 differ by what one head's output projection does not see."""
    generator = np.random.default_rng(4)
    value, projection = generator.standard_normal((1, 25, 4)), generator.standard_normal((2, 4, 9))
    value[0, 11], value[0, 8] = value[0, 3], value[0, 5]
    value[0, 8, 2] += 1.0
    projection[1, 2] = 0.0
    matrix = reference.allowed_matrix(kind, 25, 25)
    attention = reference.softmax_rows(generator, 2, matrix, 2.0)
    options: dict[str, Any] = {"allowed": torch.from_numpy(matrix), "copies": torch.zeros(25, dtype=torch.long)}
    share = null_share(*given(value, projection, attention), equal="values", **options)
    for head, pairs in enumerate(([(3, 11)], [(3, 11), (5, 8)])):
        together = np.eye(25)
        for first, second in pairs:
            together[second, first], together[second, second] = 1.0, 0.0
        kept = reference.effective(attention[head], value[0] @ projection[head], matrix, simplex=True)
        merged = reference.null_share(attention[head] @ together, kept @ together)
        assert float(share.merged[head]) == pytest.approx(merged, abs=1e-11)
        for row in range(25):
            expected = reference.null_share(attention[head, row] @ together, kept[row] @ together)
            assert float(share.row_merged[head, row]) == pytest.approx(expected, abs=1e-11)
    by_token = null_share(*given(value, projection, attention), **options)
    assert float(by_token.merged.max()) < 1e-20, "all keys are of one token: a row has its sum and nothing else"
    with pytest.raises(InputError, match="equal='rows' was given; expected one of tokens, values"):
        null_share(*given(value, projection, attention), equal="rows", **options)  # type: ignore[arg-type]


def test_identifiable_head_has_no_null_share_and_correlation_one():
    generator = np.random.default_rng(2)
    value, projection = generator.standard_normal((1, 6, 8)), generator.standard_normal((1, 8, 9))
    attention = reference.softmax_rows(generator, 1, np.ones((6, 6), dtype=bool))
    assert float(null_share(*given(value, projection, attention)).head[0]) < 1e-20
    assert float(null_share(*given(value, projection, attention)).correlation[0]) == pytest.approx(1.0, abs=1e-12)


def test_key_types_are_checked():
    one = torch.ones(1, 2, 1)
    with pytest.raises(InputError, match="key types"):
        null_share(one, torch.ones(1, 1, 1), one, rows_of(torch.full((1, 2, 2), 0.5)), key_types=torch.ones(1, 2))
