"""The walk of corners: its bounds are those of a solver that shares nothing with it, and are attained."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import identiscope
from identiscope.linalg.simplex import corner_walk_compiled as walk
from identiscope.linalg.simplex.ratio import ratio_bounds
from identiscope.linalg.simplex.row_bounds import row_bounds, row_extremes
from identiscope.linalg.simplex.row_programs import RowPrograms
from identiscope.methods.fields import layer_fields
from identiscope.methods.freedom.polytopes import head_rows


def least(cost: np.ndarray, basis: np.ndarray, row: np.ndarray) -> float:
    """By HiGHS, through SciPy."""
    tight = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    found = linprog(cost, A_eq=basis.T, b_eq=basis.T @ row, bounds=(0, None), method="highs", options=tight)
    assert found.status == 0
    return float(found.fun)


def drawn(seed: int, keys: int, channels: int, kind: str, sharpness: float) -> tuple[np.ndarray, np.ndarray]:
    """An orthonormal basis of some [T,1], and a row of attention."""
    generator = np.random.default_rng(seed)
    points = generator.standard_normal((keys, channels))
    if kind == "copies":
        points[keys // 2 :] = points[: keys - keys // 2]
    elif kind == "lattice":
        points = np.round(points)
    elif kind == "falling":
        points *= np.geomspace(1, 1e-6, channels)
    left, sizes, _ = np.linalg.svd(np.column_stack([np.ones(keys), points]), full_matrices=False)
    logits = sharpness * generator.standard_normal(keys)
    row = np.exp(logits - logits.max())
    if kind == "zeros":
        row[generator.integers(keys, size=keys // 3)] = 0
        row[0] = 1.0
    return np.ascontiguousarray(left[:, sizes > 1e-10 * sizes[0]]), row / row.sum()


@given(
    st.integers(0, 10**6),
    st.integers(4, 40),
    st.integers(1, 12),
    st.sampled_from(["plain", "copies", "lattice", "falling", "zeros"]),
    st.sampled_from([0.1, 1.0, 10.0, 100.0]),
)
@settings(max_examples=60, deadline=None)
def test_bounds_are_those_of_another_solver(seed: int, keys: int, channels: int, kind: str, sharpness: float) -> None:
    basis, row = drawn(seed, keys, channels, kind, sharpness)
    generator = np.random.default_rng(seed + 1)
    groups = np.unique(generator.integers(0, keys, size=keys), return_inverse=True)[1]
    alone, together = row_bounds(basis, row[None]), row_bounds(basis, row[None], groups)
    for found, members in ((alone, np.arange(keys)), (together, groups)):
        for number in generator.choice(members.max() + 1, size=min(3, members.max() + 1), replace=False):
            cost = (members == number).astype(float)
            assert found.weight[0, number] == pytest.approx(cost @ row, abs=1e-15)
            assert found.lower[0, number] == pytest.approx(least(cost, basis, row), abs=3e-9)
            assert found.upper[0, number] == pytest.approx(-least(-cost, basis, row), abs=3e-9)
    cost = generator.standard_normal(keys)
    ends = row_extremes(basis, row[None], cost[None])
    assert ends.lower[0] == pytest.approx(least(cost, basis, row), abs=1e-8)
    assert ends.upper[0] == pytest.approx(-least(-cost, basis, row), abs=1e-8)


def test_bounds_of_trained_rows_are_attained(minilm: identiscope.Model) -> None:
    """Every bound of four rows of six trained heads: reached by a row that keeps the output, to the last digits."""
    trace = identiscope.trace(minilm, identiscope.PASSAGE)
    for layer, head in ((0, 4), (1, 0), (2, 5), (3, 1), (4, 8), (5, 7)):
        fields = layer_fields(trace.site(layer)).of_head(head)
        rows = head_rows(fields.value, fields.projection, fields.raw, 0, fields.queries, None, fields.precision)
        for query in (0, 40, 90, 137):
            polytope = rows.polytope(query)
            found = row_bounds(polytope.basis, polytope.row[None])
            programs = RowPrograms(polytope.basis, polytope.row)
            for key in range(0, 138, 23):
                cost = np.eye(138)[key]
                for bound, sign in ((found.lower, 1), (found.upper, -1)):
                    corner = programs.best(sign * cost)
                    assert corner[key] == pytest.approx(bound[0, key], abs=1e-12)
                    assert corner.min() >= 0 and np.abs((corner - polytope.row) @ polytope.basis).max() < 1e-14
                    assert sign * bound[0, key] == pytest.approx(
                        least(sign * cost, polytope.basis, polytope.row), abs=1e-9
                    )
            assert programs.lost == 0


def test_a_row_that_is_lost_is_solved_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    basis, row = drawn(0, 20, 4, "plain", 1.0)
    expected, costs = row_bounds(basis, row[None]), np.random.default_rng(1).standard_normal((1, 20))
    ends, best = row_extremes(basis, row[None], costs), RowPrograms(basis, row).best(costs[0])

    def lost(*_: Any) -> int:
        return -1

    monkeypatch.setattr(walk, "walk", lost)
    programs = RowPrograms(basis, row)
    np.testing.assert_allclose(programs.best(costs[0]), best, atol=1e-12)
    assert programs.lost == 1

    def nothing(*_: Any) -> None:
        return None

    monkeypatch.setattr(walk, "bounds", nothing)
    monkeypatch.setattr(walk, "extremes", nothing)
    again, others = row_bounds(basis, row[None]), row_extremes(basis, row[None], costs)
    for one, other in ((again, expected), (others, ends)):
        np.testing.assert_allclose(one.lower, other.lower, atol=1e-12)
        np.testing.assert_allclose(one.upper, other.upper, atol=1e-12)


@pytest.mark.parametrize("period", [1, 3, 10**6])
def test_solving_anew_changes_nothing_but_rounding(period: int) -> None:
    basis, row = drawn(3, 30, 6, "plain", 2.0)
    expected = row_bounds(basis, row[None])
    lower, upper = np.full((2, 1, 30), np.nan)
    walk.bounds(basis, row[None], np.arange(30), np.arange(30), period, lower, upper)
    np.testing.assert_allclose(lower, expected.lower, atol=1e-13)
    np.testing.assert_allclose(upper, expected.upper, atol=1e-13)


def test_rows_without_freedom_or_weight_keep_what_they_have() -> None:
    basis, row = drawn(0, 5, 2, "plain", 1.0)
    found = row_bounds(basis, np.stack([row, np.zeros(5)]))
    assert found.lower[1].tolist() == found.upper[1].tolist() == [0.0] * 5
    whole = row_bounds(np.eye(5), row[None])
    assert whole.lower.tolist() == whole.upper.tolist() == row[None].tolist()
    assert row_extremes(np.eye(5), row[None], np.ones((1, 5))).upper.tolist() == pytest.approx([1.0])
    assert row_extremes(basis, row[None], np.zeros((1, 5))).upper.tolist() == [0.0]


@given(st.integers(0, 10**6), st.sampled_from(["plain", "copies", "zeros"]), st.sampled_from([0.5, 3.0]))
@settings(max_examples=30, deadline=None)
def test_a_quotient_is_that_of_charnes_and_cooper(seed: int, kind: str, sharpness: float) -> None:
    """y = t·a, t = 1/(under·a): a linear program in (y, t)."""
    basis, row = drawn(seed, 15, 3, kind, sharpness)
    generator = np.random.default_rng(seed)
    over, under = (generator.random(15) < 0.4).astype(float), (generator.random(15) < 0.8).astype(float)
    found = ratio_bounds(RowPrograms(basis, row), over, under)
    if least(under, basis, row) <= 1e-12:
        assert found is None or under.sum() == 0
        return
    assert found is not None
    equations = np.zeros((basis.shape[1] + 1, 16))
    equations[:-1, :15], equations[:-1, 15] = basis.T, -(basis.T @ row)
    equations[-1, :15] = under
    goal = np.append(np.zeros(basis.shape[1]), 1.0)
    for bound, sign in zip(found, (1, -1), strict=True):
        result = linprog(sign * np.append(over, 0), A_eq=equations, b_eq=goal, bounds=(0, None), method="highs")
        assert bound == pytest.approx(sign * result.fun, abs=1e-6)
