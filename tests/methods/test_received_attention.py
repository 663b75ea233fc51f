"""What tokens receive in a layer, against plain loops."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import identiscope
import reference
from identiscope.methods.scores.received_attention import received_attention


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**20), st.integers(1, 9), st.booleans())
def test_it_is_the_sum_of_columns(seed: int, tokens: int, effective: bool) -> None:
    generator = np.random.default_rng(seed)
    allowed = np.tril(np.ones((tokens, tokens), dtype=bool))
    attention = reference.softmax_rows(generator, 2, allowed)
    value, projection = generator.standard_normal((2, tokens, 3)), generator.standard_normal((2, 3, 5))
    expected = np.zeros(tokens)
    for head in range(2):
        for query in range(tokens):
            row, seen = attention[head, query].copy(), query + 1
            if effective:
                points = np.column_stack([value[head, :seen] @ projection[head], np.ones(seen)])
                row[:seen] = points @ np.linalg.lstsq(points, row[:seen], rcond=1e-10)[0]
            for key in range(tokens):
                expected[key] += row[key] / 2
    maps, values, projections, seen_by = ([torch.from_numpy(one)] for one in (attention, value, projection, allowed))
    found = received_attention(
        maps, values, projections, seen_by, [torch.float64], [None], torch.zeros(tokens, 1),
        of="effective" if effective else "attention",
    )  # fmt: skip
    np.testing.assert_allclose(found.score.numpy(), expected, atol=1e-8)


def test_layers_that_there_are_not_are_refused() -> None:
    one = [torch.eye(2)[None]]
    with pytest.raises(identiscope.InputError, match="layer=1 was given; expected one of 0 to 0"):
        received_attention(one, one, one, [None], [None], [None], torch.zeros(2, 1), layer=1)
