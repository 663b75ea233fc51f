"""Few keys with the same output: certified, no more than promised, dropped only where every row can do without."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

import reference
from identiscope.methods.freedom.few_keys import few_keys
from identiscope.methods.maps.factored import rows_of


@pytest.mark.parametrize("kind", ["all", "causal"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_few_keys_do(seed: int, kind: str) -> None:
    generator = np.random.default_rng(seed)
    value, projection = generator.standard_normal((1, 14, 3)), generator.standard_normal((1, 3, 6))
    matrix = reference.allowed_matrix(kind, 14, 14)
    attention = reference.softmax_rows(generator, 1, matrix)
    told: list[tuple[int, int]] = []
    found = few_keys(
        torch.from_numpy(value), torch.from_numpy(projection), rows_of(torch.from_numpy(attention)), 14,
        allowed=torch.from_numpy(matrix), progress=lambda done, total: told.append((done, total)),
    )  # fmt: skip
    assert told == [(done, 14) for done in range(1, 15)]
    transformed = value[0] @ projection[0]
    for rows in (found.few.numpy(), found.common.numpy()):
        assert rows.min() >= 0 and not rows[~matrix].any()
        np.testing.assert_allclose(rows.sum(1), 1, atol=1e-13)
        np.testing.assert_allclose(rows @ transformed, attention[0] @ transformed, atol=1e-12)
    ranks = [np.linalg.matrix_rank(reference.with_ones(transformed[matrix[query]])) for query in range(14)]
    assert found.most.tolist() == ranks and (found.count <= found.most).all()
    assert found.count.tolist() == [int((row > 0).sum()) for row in found.few]
    assert found.raw_count.tolist() == matrix.sum(1).tolist()
    kept = found.kept.numpy()
    assert not found.common.numpy()[:, ~kept].any() and kept.sum() < 14
    # None that is left can be dropped: some row then has no weights over the others that do.
    for key in np.flatnonzero(kept):
        others = kept.copy()
        others[key] = False
        assert any(
            not _feasible(transformed[others & matrix[query]], attention[0, query] @ transformed) for query in range(14)
        )


def _feasible(points: np.ndarray, output: np.ndarray) -> bool:
    from scipy.optimize import linprog

    if not len(points):
        return False
    system = reference.with_ones(points).T
    found = linprog(np.zeros(len(points)), A_eq=system, b_eq=np.append(output, 1), bounds=(0, None), method="highs")
    return bool(found.status == 0)


def test_the_bound_of_dropping_is_the_distance_from_the_hull() -> None:
    generator = np.random.default_rng(3)
    value = generator.standard_normal((1, 8, 2))
    attention = reference.softmax_rows(generator, 1, np.ones((2, 8), dtype=bool))
    found = few_keys(torch.from_numpy(value), torch.eye(2)[None], rows_of(torch.from_numpy(attention)), 2)
    kept = found.kept.numpy()
    hull = value[0][kept]
    assert kept.sum() < 8 and not found.dropping_bound.numpy()[kept].any()
    for key in np.flatnonzero(~kept).tolist():

        def distance(logits: np.ndarray, key: int = key) -> float:
            shares = np.exp(logits) / np.exp(logits).sum()
            return float(np.square(shares @ hull - value[0, key]).sum())

        nearest = min(
            minimize(distance, start, method="BFGS").fun for start in generator.standard_normal((6, len(hull)))
        )
        assert float(found.dropping_bound[key]) == pytest.approx(nearest**0.5, abs=2e-3)
        # What it promises: any row that has weight there has one over the kept keys whose output is that near.
        assert float(found.dropping_bound[key]) >= nearest**0.5 - 1e-4
