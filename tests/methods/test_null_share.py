"""Null share and correlation with raw attention, per head, row and type of key."""

import numpy as np
import pytest
import torch

import reference
from identiscope.errors import InputError
from identiscope.methods.factored import rows_of
from identiscope.methods.null_share import null_share
from identiscope.methods.raw_correlation import raw_correlation


@pytest.mark.parametrize("kind", ["all", "causal", "blocks"])
def test_against_the_literal_definitions(kind):
    generator = np.random.default_rng(1)
    value, projection = generator.standard_normal((1, 25, 4)), generator.standard_normal((2, 4, 9))
    matrix = reference.allowed_matrix(kind, 25, 25)
    attention = reference.softmax_rows(generator, 2, matrix, 2.0)
    types = generator.random((3, 25)) < 0.4
    tensors = (*map(torch.from_numpy, (value, projection, attention @ value)), rows_of(torch.from_numpy(attention)))
    options = {"allowed": torch.from_numpy(matrix), "key_types": torch.from_numpy(types)}
    share, correlation = null_share(*tensors, **options), raw_correlation(*tensors, **options)
    for head in range(2):
        effective = reference.effective(attention[head], value[0] @ projection[head], matrix)
        assert float(share.head[head]) == pytest.approx(reference.null_share(attention[head], effective), abs=1e-11)
        assert float(correlation.head[head]) == pytest.approx(
            reference.pearson(attention[head][matrix], effective[matrix]), abs=1e-10
        )
        for row in range(25):
            expected = reference.null_share(attention[head, row], effective[row])
            assert float(share.row[head, row]) == pytest.approx(expected, abs=1e-11)
            keys = matrix[row]
            if keys.sum() > 1:
                expected = reference.pearson(attention[head, row][keys], effective[row][keys])
                assert float(correlation.row[head, row]) == pytest.approx(expected, abs=1e-8)
            else:
                assert bool(correlation.row[head, row].isnan())
        for index, chosen in enumerate(types):
            expected = reference.null_share(attention[head][:, chosen], effective[:, chosen])
            assert float(share.key_type[head, index]) == pytest.approx(expected, abs=1e-11)
            inside = matrix & chosen
            expected = reference.pearson(attention[head][inside], effective[inside])
            assert float(correlation.key_type[head, index]) == pytest.approx(expected, abs=1e-10)


def test_identifiable_head_has_no_null_share_and_correlation_one():
    generator = np.random.default_rng(2)
    value, projection = generator.standard_normal((1, 6, 8)), generator.standard_normal((1, 8, 9))
    attention = reference.softmax_rows(generator, 1, np.ones((6, 6), dtype=bool))
    tensors = (*map(torch.from_numpy, (value, projection, attention @ value)), rows_of(torch.from_numpy(attention)))
    assert float(null_share(*tensors).head[0]) < 1e-20
    assert float(raw_correlation(*tensors).head[0]) == pytest.approx(1.0, abs=1e-12)


def test_key_types_are_checked():
    one = torch.ones(1, 2, 1)
    with pytest.raises(InputError, match="key types"):
        null_share(one, torch.ones(1, 1, 1), one, rows_of(torch.full((1, 2, 2), 0.5)), key_types=torch.ones(1, 2))
