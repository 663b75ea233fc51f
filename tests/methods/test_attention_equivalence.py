"""Equivalence of maps under one input, and under another."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from identiscope.errors import InputError
from identiscope.methods.structure.attention_equivalence import RELATIONS, attention_equivalence

PROPERTY = settings(max_examples=40, deadline=None, derandomize=True)


@st.composite
def heads(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor], torch.Tensor]:
    """A map, a null move of it that keeps sums and signs under the first input, two inputs, and H."""
    channels = draw(st.integers(1, 3))
    keys = channels + 1 + draw(st.integers(1, 5))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    values = [torch.randn(keys, channels, generator=generator, dtype=torch.float64) for _ in range(2)]
    projection = torch.randn(channels, channels + 2, generator=generator, dtype=torch.float64)
    attention = torch.randn(4, keys, generator=generator, dtype=torch.float64).softmax(-1)
    null = torch.from_numpy(reference.left_null_basis(reference.with_ones((values[0] @ projection).numpy())))
    direction = null @ torch.randn(null.shape[1], generator=generator, dtype=torch.float64)
    step = 0.9 * min(reference.largest_step(row.numpy(), direction.numpy()) for row in attention)
    return attention, attention + step * direction, values, projection


@PROPERTY
@given(heads())
def test_null_moves_are_equivalent_here_and_not_there(case: tuple) -> None:  # type: ignore[type-arg]
    first, second, values, projection = case
    found = attention_equivalence(first, second, values, projection)
    assert found.holds[:, 0].tolist() == [True, True, True]
    assert found.holds[:, 1].tolist() == [False, False, False]
    for place, value in enumerate(values):
        transformed = (value @ projection).numpy()
        one, other = first.numpy() @ transformed, second.numpy() @ transformed
        expected = np.linalg.norm(one - other) / np.linalg.norm(one)
        assert float(found.output_difference[place]) == pytest.approx(expected, rel=1e-9, abs=1e-13)
        rows = np.linalg.norm(one - other, axis=1) / np.linalg.norm(one)
        assert np.allclose(found.row_output_difference[place], rows, atol=1e-13)


@PROPERTY
@given(heads(), st.floats(0.01, 10))
def test_each_relation_asks_for_one_thing_more(case: tuple, size: float) -> None:  # type: ignore[type-arg]
    first, _, values, projection = case
    null = torch.from_numpy(reference.left_null_basis((values[0] @ projection).numpy()))
    # In LN(T) but not in LN([T,1]): same output, other row sums.
    outside = null @ (null.mT @ torch.ones(first.shape[1], dtype=torch.float64))
    moved = attention_equivalence(first, first + size * outside, values[:1], projection)
    if float(outside.sum()) > 1e-3:
        assert moved.holds[:, 0].tolist() == [True, False, False]
        assert moved.row_sum_error == pytest.approx(size * float(outside.sum()), rel=1e-6)
    # Far along a direction of LN([T,1]): same output and sums, some weights negative.
    direction = torch.from_numpy(reference.left_null_basis(reference.with_ones((values[0] @ projection).numpy())))[:, 0]
    far = attention_equivalence(first, first + 10 * direction / direction.abs().max(), values[:1], projection)
    assert far.holds[:, 0].tolist() == [True, True, False]
    assert far.negative_weight > 0.1
    assert len(RELATIONS) == 3


@PROPERTY
@given(heads())
def test_is_an_equivalence(case: tuple) -> None:  # type: ignore[type-arg]
    first, second, values, projection = case
    same = attention_equivalence(first, first, values, projection)
    assert bool(same.holds.all()) and float(same.output_difference.max()) == 0
    there, back = (attention_equivalence(*pair, values, projection) for pair in ((first, second), (second, first)))
    assert torch.equal(there.holds, back.holds)


def test_refuses_inputs_of_another_length() -> None:
    with pytest.raises(InputError, match="as many tokens as the maps have keys"):
        attention_equivalence(torch.eye(3), torch.eye(3), [torch.ones(4, 1)], torch.eye(1))
    with pytest.raises(InputError, match="two maps"):
        attention_equivalence(torch.eye(3), torch.eye(4), [torch.ones(3, 1)], torch.eye(1))
