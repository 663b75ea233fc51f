"""The row solvers on their own: regimes of prefixes, ill-conditioned rows, the dual solvers and programs."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import reference
from identiscope.errors import MathError
from identiscope.linalg.allowed import describe_allowed
from identiscope.linalg.distances import jensen_shannon, largest_step, total_variation
from identiscope.linalg.rank.coordinates import coordinates
from identiscope.linalg.rank.prefix.rows import tall_prefixes, wide_prefixes
from identiscope.linalg.rank.projection_factor import projection_factor
from identiscope.linalg.rank.row_projection import project_rows
from identiscope.linalg.simplex.corner import vertex
from identiscope.linalg.simplex.highs_program import HighsPrograms
from identiscope.linalg.simplex.maximum_entropy import maximum_entropy_rows
from identiscope.linalg.simplex.minimum_norm import minimum_norm_rows
from identiscope.linalg.simplex.polytope import certify
from identiscope.linalg.simplex.row_programs import RowPrograms


def orthonormal(generator, keys, columns):
    matrix = np.concatenate([np.ones((keys, 1)), generator.standard_normal((keys, columns - 1))], 1)
    return torch.from_numpy(np.linalg.qr(matrix)[0])


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
@pytest.mark.parametrize("decay", [1e-2, 1e-4, 1e-7, 1e-11])
@pytest.mark.parametrize("kind", ["all", "causal", "sliding", "blocks"])
def test_output_is_kept_however_fast_the_spectrum_falls(kind, decay, precision):
    """A row keeps the part of its output above the cutoff; below it nothing is promised."""
    generator = np.random.default_rng(0)
    value = generator.standard_normal((1, 120, 8)) * np.geomspace(1, decay, 8)
    projection = torch.linalg.qr(torch.from_numpy(generator.standard_normal((100, 8)))).Q.mT[None]
    matrix = reference.allowed_matrix(kind, 120, 120, window=40)
    attention = reference.softmax_rows(generator, 1, matrix)
    points = coordinates(torch.from_numpy(value), projection_factor(projection), precision)
    context = torch.from_numpy(attention @ value)
    found = project_rows(points, points.target(context, None), describe_allowed(torch.from_numpy(matrix), 120, 120))
    right = found.right[0].numpy() @ np.eye(found.right.shape[-1])
    dense = found.left[0].numpy() @ right.T * matrix
    size = np.linalg.norm(value[0], 2)
    promised = 1e-10 if precision == torch.float64 or decay > 1e-3 else 2 * 120 * 2**-23
    assert np.linalg.norm((dense - attention[0]) @ value[0], axis=1).max() < promised * size
    assert np.linalg.norm(dense, axis=1).max() <= np.linalg.norm(attention[0], axis=1).max() * (1 + 1e-6)


def test_regimes_of_prefixes():
    generator = torch.Generator().manual_seed(0)
    value = torch.randn(1, 60, 6, generator=generator)
    value[0, 4] = value[0, 0] + value[0, 1]
    points = coordinates(value, projection_factor(torch.randn(1, 6, 90, generator=generator)))
    assert wide_prefixes(points, slice(0, 1)) == [4]
    assert tall_prefixes(points, slice(0, 1)) == [7]
    flat = coordinates(value * torch.tensor([1.0, 1, 1, 1, 1, 0]), projection_factor(torch.eye(6, 90)[None]))
    assert tall_prefixes(flat, slice(0, 1)) == [61]


def test_minimum_norm_says_so_when_there_is_no_such_row():
    """A target outside the cone of the basis: no non-negative row has it, and the residual is that far."""
    generator = np.random.default_rng(2)
    basis = orthonormal(generator, 20, 4)
    inside = basis.mean(0, keepdim=True)
    outside = inside + 10 * torch.eye(4, dtype=torch.float64)[1:2]
    found = minimum_norm_rows(basis, torch.cat([inside, outside]))
    assert float(found.residual[0]) < 1e-12
    assert float(found.residual[1]) > 0.1


def test_maximum_entropy_is_a_softmax_and_beats_other_rows():
    generator = np.random.default_rng(3)
    basis = orthonormal(generator, 25, 5)[:, 1:]
    mask = torch.from_numpy(reference.allowed_matrix("causal", 25, 25))
    rows = torch.from_numpy(reference.softmax_rows(generator, 1, mask.numpy(), 2.0)[0]) * 0.8
    found = maximum_entropy_rows(basis, rows @ basis, rows.sum(1), mask)
    assert float(found.residual.max()) < 1e-9
    assert bool((found.rows[~mask] == 0).all())
    assert float((found.rows.sum(1) - 0.8).abs().max()) < 1e-12
    entropy = -torch.special.xlogy(found.rows, found.rows).sum(1)
    raw = -torch.special.xlogy(rows, rows).sum(1)
    assert bool((entropy >= raw - 1e-9).all())
    assert float((entropy - raw).max()) > 0.1


def test_best_row_is_exact_and_never_worse_than_the_row():
    generator = np.random.default_rng(4)
    basis = orthonormal(generator, 50, 8).numpy()
    for scale in (1.0, 1e-6):
        row = scale * reference.softmax_rows(generator, 1, np.ones((1, 50), dtype=bool), 3.0)[0, 0]
        programs = RowPrograms(basis, row)
        for _ in range(10):
            cost = generator.standard_normal(50)
            found = programs.best(cost)
            assert found.min() >= 0
            assert np.abs((found - row) @ basis).max() < 1e-13 * scale
            assert cost @ found <= cost @ row
            assert (found > 0).sum() <= 8
            # The same cost as from a fresh start, whatever was asked before.
            assert cost @ found == pytest.approx(cost @ RowPrograms(basis, row).best(cost), abs=1e-13 * scale)
    assert RowPrograms(np.eye(3), np.array([0.5, 0.5, 0.0])).best(np.ones(3)).tolist() == [0.5, 0.5, 0.0]


def test_a_program_that_cannot_be_solved_says_so():
    programs = HighsPrograms(orthonormal(np.random.default_rng(11), 6, 3).numpy(), np.full(6, 1 / 6))
    programs._solver.setOptionValue("simplex_iteration_limit", 0)
    with pytest.raises(MathError, match=r"6 keys and 3 constraints failed: Iteration limit.*; check that the row"):
        programs.best(np.eye(6)[0])


def test_constraints_that_no_row_meets_leave_the_row_alone():
    """A row with a negative weight: its output is not one of attention."""
    row = np.array([5.0, -4.0, 0, 0, 0, 0])
    programs = RowPrograms(orthonormal(np.random.default_rng(12), 6, 4).numpy(), row)
    assert programs.best(np.ones(6)).tolist() == row.tolist()


def test_a_vertex_is_solved_from_its_free_weights():
    generator = np.random.default_rng(6)
    basis = orthonormal(generator, 30, 5).numpy()
    expected = np.zeros(30)
    expected[[2, 7, 11, 20]] = [0.4, 0.3, 0.2, 0.1]
    free = expected > 0
    free[25] = True  # free, and zero all the same
    inside = expected + 0.1 * (lambda change: change - basis @ (basis.T @ change))(generator.standard_normal(30))
    found = vertex(basis, inside, free)
    assert np.abs(found - expected).max() < 1e-15
    assert ((found > 0) == (expected > 0)).all()


@given(
    seed=st.integers(0, 2**32 - 1),
    sharpness=st.sampled_from([1.0, 10.0, 30.0, 60.0, 200.0]),
    keys=st.integers(10, 60),
    repeated=st.booleans(),
)
def test_rows_that_are_nearly_one_hot_keep_their_output(seed: int, sharpness: float, keys: int, repeated: bool):
    """Literally: what the weights sum to, and what the values they weigh sum to, in exactly summed float64."""
    generator = np.random.default_rng(seed)
    points = generator.standard_normal((keys, 6))
    if repeated:
        points[keys // 2 :] = points[: keys - keys // 2]
    logits = sharpness * generator.standard_normal(keys)
    row = np.exp(logits - logits.max())
    row /= row.sum()
    basis = np.linalg.qr(np.column_stack([points, np.ones(keys)]))[0]
    programs = RowPrograms(basis, row)
    for _ in range(3):
        cost = generator.choice([-1.0, 0.0, 1.0], keys)
        found = programs.best(cost)
        assert found.min() >= 0
        assert cost @ found <= cost @ row
        assert abs(math.fsum(found) - math.fsum(row)) <= 1e-14
        for channel in range(6):
            change = math.fsum((found - row) * points[:, channel])
            assert abs(change) <= 1e-14 * np.abs(points[:, channel]).max() * keys**0.5


def test_a_small_change_of_a_nearly_one_hot_row_is_found_in_its_own_units():
    """Three equal keys share what the first does not have, which is less than any solver's tolerance."""
    points = np.array([[5.0], [1.0], [1.0], [1.0]])
    row = np.array([1 - 3e-11, 1e-11, 1e-11, 1e-11])
    basis = np.linalg.qr(np.column_stack([points, np.ones(4)]))[0]
    found = RowPrograms(basis, row).best(np.array([0.0, -1.0, 0.0, 0.0]))
    assert found[1] == pytest.approx(3e-11, rel=1e-4)
    assert found[2] == found[3] == 0


def test_certificate_sees_every_kind_of_breach():
    points = torch.tensor([[1.0, 0.0], [0.0, 2.0]]).double()
    rows = torch.tensor([[0.5, 0.5]]).double()
    moved = certify(points, rows, torch.tensor([[1.1, -0.2]]).double())
    assert moved.least_weight == pytest.approx(-0.2)
    assert moved.row_sum_error == pytest.approx(0.1)
    assert moved.output_error == pytest.approx(np.hypot(0.6, 1.4))
    assert moved.output_error_relative == pytest.approx(np.hypot(0.6, 1.4) / np.hypot(0.5, 1.0))
    same = certify(points, rows, rows)
    assert (same.row_sum_error, same.output_error) == (0, 0)


def test_minimum_norm_of_very_peaked_rows():
    """Rows whose Newton path crosses hundreds of pieces."""
    generator = np.random.default_rng(7)
    basis = orthonormal(generator, 128, 33)
    logits = 12 * generator.standard_normal((60, 128))
    rows = np.exp(logits - logits.max(1, keepdims=True))
    rows = torch.from_numpy(rows / rows.sum(1, keepdims=True))
    found = minimum_norm_rows(basis, rows @ basis)
    assert float(found.residual.max()) < 1e-10
    answer = (found.dual @ basis.mT).clamp(min=0)
    assert bool((answer.norm(dim=1) <= rows.norm(dim=1) + 1e-9).all())


@pytest.mark.parametrize("kind", ["all", "causal", "sliding"])
def test_minimum_norm_of_one_hot_rows(kind):
    """Fewer positive weights than directions: the piece of the dual is singular, and many duals give the row."""
    generator = np.random.default_rng(9)
    basis = orthonormal(generator, 128, 33)
    inside = torch.from_numpy(reference.allowed_matrix(kind, 128, 128, window=40))
    found = minimum_norm_rows(basis, basis, inside)
    assert float(found.residual.max()) < 1e-12
    answer = (found.dual @ basis.mT).clamp(min=0) * inside
    # With no more allowed keys than directions there is one row only.
    alone = inside.sum(1) <= 33
    assert bool(alone.any()) == (kind != "all")
    assert float((answer - torch.eye(128))[alone].abs().sum()) < 1e-9


@pytest.mark.parametrize("spacing", [1e-2, 1e-3, 1e-4])
def test_minimum_norm_of_peaked_rows_on_nearly_equal_keys(spacing):
    """Pieces that differ by the difference of two keys: Newton's method circles there, an interior point does not."""
    generator = np.random.default_rng(13)
    points = generator.standard_normal((64, 32))
    points = np.concatenate([points, points + spacing * generator.standard_normal((64, 32))])
    basis = torch.from_numpy(np.linalg.qr(np.concatenate([np.ones((128, 1)), points], 1))[0])
    logits = 10 * generator.standard_normal((64, 128))
    rows = np.exp(logits - logits.max(1, keepdims=True))
    rows = torch.from_numpy(rows / rows.sum(1, keepdims=True))
    found = minimum_norm_rows(basis, rows @ basis)
    assert float(found.residual.max()) < 1e-10
    # Shorter than what an independent solver finds, up to how well it keeps the constraints.
    for row in (0, 17, 40):
        other = reference.minimum_norm(rows[row].numpy(), points, relative=1e-12)
        answer = (basis @ found.dual[row]).clamp(min=0)
        assert float(answer.norm()) <= np.linalg.norm(other) + 1e-6


def test_minimum_norm_of_rows_that_are_not_numbers():
    """They come back with a residual that is no number, and leave the others alone."""
    generator = np.random.default_rng(10)
    basis = orthonormal(generator, 20, 4)
    rows = torch.from_numpy(reference.softmax_rows(generator, 1, np.ones((3, 20), dtype=bool))[0])
    target = rows @ basis
    expected = minimum_norm_rows(basis, target)
    target[1] = torch.nan
    found = minimum_norm_rows(basis, target)
    assert found.residual.isnan().tolist() == [False, True, False]
    assert bool((found.dual == expected.dual)[[0, 2]].all())


def test_minimum_norm_where_compiled_code_cannot_be_kept(tmp_path):
    """A read-only installation without a home folder: compiled anew, with the same answer."""
    place = tmp_path / "file"
    place.touch()
    code = """
import torch
from identiscope.linalg.simplex.minimum_norm import minimum_norm_rows
print(minimum_norm_rows(torch.full((4, 1), 0.5).double(), torch.tensor([[0.5]]).double()).dual.item())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "NUMBA_CACHE_DIR": str(place / "below")},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert float(done.stdout) == 0.5
    assert done.stderr == ""


def test_distances():
    generator = np.random.default_rng(5)
    first, second = (
        torch.from_numpy(reference.softmax_rows(generator, 1, np.ones((4, 9), dtype=bool))[0]) for _ in "ab"
    )
    assert float((total_variation(first, second) - 0.5 * (first - second).abs().sum(1)).abs().max()) < 1e-16
    middle = 0.5 * (first + second)
    expected = 0.5 * ((first * (first / middle).log()).sum(1) + (second * (second / middle).log()).sum(1))
    assert float((jensen_shannon(first, second) - expected).abs().max()) < 1e-15
    assert float(jensen_shannon(first, first).max()) == 0
    direction = second - first
    steps = [reference.largest_step(row, way) for row, way in zip(first.tolist(), direction.tolist(), strict=True)]
    assert largest_step(first, direction).tolist() == pytest.approx(steps, rel=1e-15)
    assert largest_step(first, torch.ones(9).double()).tolist() == [torch.inf] * 4


def test_maximum_entropy_of_peaked_rows_does_not_overshoot():
    """Rows with up to 0.999 on one key: a full Newton step would saturate the softmax and stay there."""
    generator = np.random.default_rng(8)
    basis = orthonormal(generator, 128, 33)[:, 1:]
    logits = np.geomspace(1, 8, 60)[:, None] * generator.standard_normal((60, 128))
    rows = np.exp(logits - logits.max(1, keepdims=True))
    rows = torch.from_numpy(rows / rows.sum(1, keepdims=True))
    found = maximum_entropy_rows(basis, rows @ basis, rows.sum(1))
    assert float(found.residual.max()) < 1e-10
