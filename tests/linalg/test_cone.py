"""Rows whose output may move a little, against cutting planes, Clarabel, and what must hold for any of them."""

import importlib.util
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from identiscope.linalg.simplex.cone import ConePrograms, box_bounds, cone_rows, lean_points
from identiscope.linalg.simplex.row_bounds import cone_bounds, row_bounds
from reference_cone import best_row

Case = tuple[np.ndarray, np.ndarray, np.ndarray]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Points, a row and a cost: few keys, rows from even to nearly one-hot, points of any size."""
    generator = np.random.default_rng(draw(st.integers(0, 2**20)))
    keys, channels = draw(st.integers(2, 9)), draw(st.integers(1, 3))
    points = generator.standard_normal((keys, channels)) * 10.0 ** draw(st.integers(-2, 2))
    logits = generator.standard_normal(keys) * draw(st.sampled_from([0.3, 2.0, 8.0]))
    row = np.exp(logits - logits.max())
    cost = generator.standard_normal(keys) if draw(st.booleans()) else np.eye(keys)[int(generator.integers(keys))]
    return points, row / row.sum(), cost


def size_of(points: np.ndarray) -> float:
    return float(np.abs(points - points.mean(0)).max())


@settings(max_examples=25)
@given(cases(), st.sampled_from([0.003, 0.03, 0.3]))
def test_it_is_what_cutting_planes_find(case: Case, share: float) -> None:
    points, row, cost = case
    radius = share * size_of(points)
    found = cone_rows(points, row[None], np.array([radius]), cost[None])
    expected = float(cost @ best_row(points, row, radius, cost))
    assert abs(float(cost @ found.rows[0]) - expected) <= 4e-6 * max(1.0, np.abs(cost).max())
    # The bound of the dual holds: nothing feasible costs less than the row found, less its gap.
    assert expected >= float(cost @ found.rows[0]) - float(found.gap[0]) - 4e-6


@settings(max_examples=50)
@given(cases(), st.sampled_from([1e-9, 1e-4, 0.03, 0.3, 10.0]))
def test_rows_are_feasible_and_gaps_small(case: Case, share: float) -> None:
    points, row, cost = case
    radius = share * size_of(points)
    found = cone_rows(points, row[None], np.array([radius]), cost[None])
    new, gap = found.rows[0], float(found.gap[0])
    assert new.min() >= 0 and abs(new.sum() - 1) <= 1e-12
    # Weights are rounded to 1e-16 each, and up to nine products are added, whatever the points' common place.
    assert np.linalg.norm((new - row) @ points) <= radius * (1 + 1e-9) + 4e-15 * np.linalg.norm(points)
    assert cost @ new <= cost @ row + 1e-15
    assert gap >= 0
    if share >= 1e-4:  # of less room rounding may leave a gap, which is said
        assert gap <= 2e-6 * np.abs(cost).max()


@settings(max_examples=12)
@given(cases())
def test_more_room_is_never_worse_and_boxes_hold_it(case: Case) -> None:
    points, row, cost = case
    known = float(cost @ row)
    for share in (0.01, 0.1, 1.0):
        radius = share * size_of(points)
        value = float(cost @ cone_rows(points, row[None], np.array([radius]), cost[None]).rows[0])
        assert value <= known + 1e-6 * np.abs(cost).max()
        known = value
        (outer, _), (inner, _) = box_bounds(points, row, radius, cost)
        slack = 2e-6 * np.abs(cost).max()
        assert outer - slack <= value <= inner + slack


def test_without_room_it_becomes_the_exact_answer() -> None:
    generator = np.random.default_rng(0)
    points = generator.standard_normal((12, 3))
    row = generator.random(12)
    row /= row.sum()
    basis = np.linalg.svd(np.column_stack([points, np.ones(12)]), full_matrices=False)[0]
    exact = row_bounds(np.ascontiguousarray(basis), row[None])
    errors = []
    for radius in (1e-2, 1e-4, 1e-6):
        near = cone_bounds(points, row[None], np.array([radius]))
        assert (near.lower <= exact.lower + 1e-6).all() and (near.upper >= exact.upper - 1e-6).all()
        errors.append(max(np.abs(near.lower - exact.lower).max(), np.abs(near.upper - exact.upper).max()))
    assert errors[0] > errors[1] > errors[2] and errors[2] < 1e-4


def test_a_row_sum_below_one_is_kept() -> None:
    points = np.array([[0.0], [1.0], [3.0]])
    row = np.array([0.25, 0.125, 0.125])
    found = cone_rows(points, row[None], np.array([0.1]), np.array([[0.0, 0.0, 1.0]])).rows[0]
    assert abs(found.sum() - 0.5) < 1e-12
    np.testing.assert_allclose(
        found @ np.array([0.0, 0.0, 1.0]), best_row(points, row, 0.1, np.eye(3)[2])[2], atol=1e-6
    )


def test_what_cannot_move_does_not() -> None:
    points = np.ones((1, 3))
    assert cone_rows(points, np.ones((1, 1)), np.ones(1), np.ones((1, 1))).rows.tolist() == [[1.0]]
    row = np.array([[0.0, 0.0]])
    assert cone_rows(np.ones((2, 1)), row, np.ones(1), np.ones((1, 2))).rows.tolist() == [[0.0, 0.0]]
    row = np.array([[0.5, 0.5]])
    assert cone_rows(np.ones((2, 1)), row, np.ones(1), np.zeros((1, 2))).rows.tolist() == [[0.5, 0.5]]
    # Points that are all the same see nothing: everything is free.
    np.testing.assert_allclose(
        cone_rows(np.ones((2, 1)), row, np.ones(1), np.array([[1.0, 0.0]])).rows, [[0, 1]], atol=1e-7
    )


def test_lean_points_keep_lengths() -> None:
    generator = np.random.default_rng(1)
    points = generator.standard_normal((4, 9))
    lean = lean_points(points)
    assert lean.shape == (4, 3)
    change = generator.standard_normal(4)
    change -= change.mean()
    assert abs(np.linalg.norm(change @ points) - np.linalg.norm(change @ lean)) < 1e-12


def test_a_wide_gap_falls_back_on_the_exact_programs() -> None:
    points = np.array([[0.0], [1.0], [2.0]])
    row = np.array([0.25, 0.5, 0.25])
    basis = np.linalg.svd(np.column_stack([points, np.ones(3)]), full_matrices=False)[0]
    programs = ConePrograms(points, row, 1e-300, np.ascontiguousarray(basis))
    found, gap = programs.best_with_gap(np.array([0.0, 1.0, 0.0]))
    # With the same output the middle can be given up wholly, whatever becomes of so small a radius.
    assert found[1] <= 1e-6 + gap


@pytest.mark.skipif(
    importlib.util.find_spec("clarabel") is None, reason="clarabel, an extra of benchmarks, is not here"
)
def test_it_is_what_clarabel_finds() -> None:
    clarabel: Any = importlib.import_module("clarabel")
    from scipy import sparse

    generator = np.random.default_rng(2)
    points, radius = generator.standard_normal((40, 8)), 0.2
    for _ in range(10):
        row = generator.dirichlet(np.full(40, 0.3))
        cost = np.eye(40)[int(row.argmax())] * generator.choice([-1.0, 1.0])
        constraints = np.vstack([np.ones((1, 40)), -np.eye(40), np.zeros((1, 40)), -points.T / radius])
        right = np.concatenate([[1.0], np.zeros(40), [1.0], -(points.T @ row) / radius])
        cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(40), clarabel.SecondOrderConeT(9)]
        settings_ = clarabel.DefaultSettings()
        settings_.verbose = False
        solver = clarabel.DefaultSolver(
            sparse.csc_matrix((40, 40)), cost, sparse.csc_matrix(constraints), right, cones, settings_
        )
        found = cone_rows(points, row[None], np.array([radius]), cost[None]).rows[0]
        assert abs(float(cost @ found) - solver.solve().obj_val) < 1e-6


def test_the_last_digits_come_of_the_support() -> None:
    """Steps of the interior point alone leave 1e-9 in the median and more than a tenth for small radii; what is
    certain, the gap, says what the linear systems on the support add."""
    generator = np.random.default_rng(3)
    gaps = []
    for share in (1e-6, 1e-4, 0.03, 0.3):
        for _ in range(50):
            points, row = generator.standard_normal((20, 5)), generator.dirichlet(np.full(20, 0.5))
            cost = np.eye(20)[int(row.argmax())] * generator.choice([-1.0, 1.0])
            gaps.append(cone_rows(points, row[None], np.array([share * size_of(points)]), cost[None]).gap[0])
    assert np.median(gaps) <= 1e-12 and np.quantile(gaps, 0.95) <= 1e-9 and max(gaps) <= 1e-6
