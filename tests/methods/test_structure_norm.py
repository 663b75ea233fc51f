"""The norm that knows the structure: axioms, the draft's examples, and when it is only a seminorm."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference_structure as reference
from identiscope.errors import InputError
from identiscope.methods.heads.structure_norm import structure_distance, structure_norm

PROPERTY = settings(max_examples=60, deadline=None, derandomize=True)

NAMES = ("structure", "one", "infinity", "frobenius", "spectral")


@st.composite
def matrices(draw: st.DrawFn, count: int = 1) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Some matrices of one shape, and positive weights for them."""
    shape = draw(st.tuples(st.integers(1, 6), st.integers(1, 6)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    scale = draw(st.sampled_from([1e-3, 1.0, 1e3]))
    made = [scale * torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(count)]
    return made, torch.rand(shape, generator=generator, dtype=torch.float64) + 0.01


@PROPERTY
@given(matrices())
def test_equals_the_literal_sum_and_numpys_norms(case: tuple[list[torch.Tensor], torch.Tensor]) -> None:
    (matrix,), weights = case
    found = structure_norm(matrix, weights=weights)
    assert float(found.structure) == pytest.approx(reference.structure_norm(matrix.numpy(), weights.numpy()), rel=1e-12)
    classical = [float(getattr(found, name)) for name in NAMES[1:]]
    assert classical == pytest.approx(reference.classical_norms(matrix.numpy()), rel=1e-12)


# Squares of numbers below 1e-154 vanish in float64, so factors are not taken that small.
@PROPERTY
@given(matrices(2), st.floats(-50, 50).filter(lambda factor: factor == 0 or abs(factor) > 1e-100))
def test_norm_axioms(case: tuple[list[torch.Tensor], torch.Tensor], factor: float) -> None:
    (first, second), weights = case
    one, other, both = (structure_norm(matrix, weights=weights) for matrix in (first, second, first + second))
    scaled = structure_norm(factor * first, weights=weights)
    assert one.kind == "norm" and one.zero_weights == 0
    for name in NAMES:
        size = float(getattr(one, name))
        assert size > 0  # a random matrix is not zero
        assert float(getattr(scaled, name)) == pytest.approx(abs(factor) * size, rel=1e-9)
        assert float(getattr(both, name)) <= (size + float(getattr(other, name))) * (1 + 1e-12)
        assert float(getattr(structure_norm(torch.zeros_like(first), weights=weights), name)) == 0


@PROPERTY
@given(matrices(3))
def test_the_distance_is_symmetric_and_keeps_the_triangle(case: tuple[list[torch.Tensor], torch.Tensor]) -> None:
    (first, second, third), weights = case
    for name in NAMES:
        there = float(getattr(structure_distance(first, second, weights), name))
        assert there == float(getattr(structure_distance(second, first, weights), name))
        around = sum(
            float(getattr(structure_distance(a, b, weights), name)) for a, b in ((first, third), (third, second))
        )
        assert there <= around * (1 + 1e-12)
        assert float(getattr(structure_distance(first, first, weights), name)) == 0


def test_a_zero_weight_makes_a_seminorm() -> None:
    weights = torch.ones(3, 3).index_put((torch.tensor([1]), torch.tensor([2])), torch.tensor(0.0))
    blind = torch.zeros(3, 3).index_put((torch.tensor([1]), torch.tensor([2])), torch.tensor(5.0))
    found = structure_norm(blind, weights=weights)
    assert (found.kind, found.zero_weights, float(found.structure)) == ("seminorm", 1, 0.0)
    assert float(found.frobenius) == 5


ANTIDIAGONAL, IDENTITY = torch.eye(4).flip(0), torch.eye(4)


def weights_on(cells: torch.Tensor, epsilon: float) -> torch.Tensor:
    return torch.where(cells > 0, 1.0, epsilon * torch.ones_like(cells, dtype=torch.float64))


@pytest.mark.parametrize("epsilon", [1e-1, 1e-3])
def test_draft_example_one_classical_norms_see_no_difference(epsilon: float) -> None:
    """(4): the identity and the antidiagonal have the same classical norms, and different ‖·‖_S."""
    weights = weights_on(IDENTITY, epsilon)
    one, other = structure_norm(ANTIDIAGONAL, weights=weights), structure_norm(IDENTITY, weights=weights)
    for name in NAMES[1:]:
        assert float(getattr(one, name)) == pytest.approx(float(getattr(other, name)), rel=1e-15)
    # The draft prints these two the other way round: with w_ii = 1 it is the identity that weighs 1/4.
    assert float(one.structure) == pytest.approx(epsilon / 4, rel=1e-12)
    assert float(other.structure) == pytest.approx(1 / 4, rel=1e-12)
    distance = structure_distance(ANTIDIAGONAL, IDENTITY, weights).structure
    assert float(distance) == pytest.approx((1 + epsilon) / 4, rel=1e-12)


def test_draft_example_two_as_printed_with_weights_on_the_antidiagonal() -> None:
    """With the structure where the task has it, the printed values 1/4 and ε/4 are right."""
    weights = weights_on(ANTIDIAGONAL, 0.01)
    assert float(structure_norm(ANTIDIAGONAL, weights=weights).structure) == pytest.approx(1 / 4, rel=1e-12)
    assert float(structure_norm(IDENTITY, weights=weights).structure) == pytest.approx(0.01 / 4, rel=1e-12)


def test_draft_example_three_noise_off_the_structure_is_small() -> None:
    noisy = ANTIDIAGONAL.clone()
    noisy[0, 0] = noisy[2, 3] = 0.1
    weights = weights_on(ANTIDIAGONAL, 0.01)
    near = structure_distance(noisy, ANTIDIAGONAL, weights)
    assert float(near.structure) == pytest.approx(0.2 * 0.01 / 16, rel=1e-6)
    # Moving as much (in Frobenius norm) on the structure is a hundred times as far.
    broken = ANTIDIAGONAL.clone()
    broken[0, 3] -= 0.1
    broken[2, 1] -= 0.1
    far = structure_distance(broken, ANTIDIAGONAL, weights)
    assert float(far.frobenius) == pytest.approx(float(near.frobenius), rel=1e-6)
    assert float(far.structure) == pytest.approx(100 * float(near.structure), rel=1e-5)


def test_stacks_of_maps_and_missing_weights() -> None:
    maps = torch.rand(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    found = structure_norm(maps)
    assert found.structure.shape == (2, 3)
    assert np.allclose(found.structure, maps.double().mean((-2, -1)))
    assert structure_norm(maps, weights=torch.rand(4, 5)).structure.shape == (2, 3)


def test_refuses_what_is_no_map_or_no_weight() -> None:
    with pytest.raises(InputError, match="expected the same queries and keys"):
        structure_distance(torch.eye(3), torch.eye(4))
    with pytest.raises(InputError, match=r"expected floats \[..., query, key\]"):
        structure_norm(torch.ones(3))
    with pytest.raises(InputError, match=r"expected \[3, 3\]"):
        structure_norm(torch.eye(3), weights=torch.ones(2, 3))
    with pytest.raises(InputError, match="negative weight is no norm"):
        structure_norm(torch.eye(3), weights=-torch.ones(3, 3))
    with pytest.raises(InputError, match="not finite"):
        structure_norm(torch.full((2, 2), torch.nan))
