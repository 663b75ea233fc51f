"""Slow, literal re-implementations from the paper in plain NumPy float64; they share no code with the package.

"The paper" is "On Identifiability in Transformers" (Brunner et al., ICLR 2020), section 3.
"""

from itertools import combinations

import numpy as np
from scipy.optimize import nnls


def allowed_matrix(kind, queries, keys, window=3):
    """Boolean [query, key] of a kind of mask, written out cell by cell."""
    matrix = np.zeros((queries, keys), dtype=bool)
    for i in range(queries):
        for j in range(keys):
            last = i + keys - queries
            if kind == "all":
                matrix[i, j] = True
            elif kind == "causal":
                matrix[i, j] = j <= last
            elif kind == "sliding":
                matrix[i, j] = last - window < j <= last
            elif kind == "blocks":
                matrix[i, j] = i % 2 == j % 2 or j == 0
    return matrix


def softmax_rows(generator, heads, matrix, temperature=1.0, sink=0.0):
    """Random attention [head, query, key] on the allowed cells, rows summing to 1 − sink."""
    logits = temperature * generator.standard_normal((heads, *matrix.shape))
    weights = np.where(matrix, np.exp(logits), 0.0)
    return (1 - sink) * weights / weights.sum(-1, keepdims=True)


def rank_of(matrix, relative):
    """Number of singular values above a share of the largest."""
    values = np.linalg.svd(matrix, compute_uv=False)
    return int((values > relative * values[0]).sum())


def left_null_basis(matrix, relative=1e-9):
    """Orthonormal columns that span LN(T) (eq. 4): the left singular vectors beyond the rank."""
    left, values, _ = np.linalg.svd(matrix, full_matrices=True)
    rank = int((values > relative * values[0]).sum()) if len(values) else 0
    return left[:, rank:]


def with_ones(matrix):
    """[T, 1]."""
    return np.concatenate([matrix, np.ones((len(matrix), 1))], 1)


def effective(attention, transformed, matrix, simplex=False, relative=1e-9):
    """Eq. 9 row by row: a minus its projection on the left null space of T over the row's allowed keys."""
    out = np.zeros_like(attention)
    for i, row in enumerate(attention):
        keys = np.flatnonzero(matrix[i])
        own = with_ones(transformed[keys]) if simplex else transformed[keys]
        null = left_null_basis(own, relative)
        out[i, keys] = row[keys] - null @ (null.T @ row[keys])
    return out


def minimum_norm(row, transformed, relative=1e-9):
    """Shortest a ≥ 0 with a·[T,1] = row·[T,1], by Lawson and Hanson's least-distance program."""
    null = left_null_basis(with_ones(transformed), relative)
    shortest = row - null @ (null.T @ row)
    system = np.vstack([null.T, -shortest[None]])
    goal = np.zeros(len(system))
    goal[-1] = 1.0
    multiplier, _ = nnls(system, goal, maxiter=100 * len(row))
    error = system @ multiplier - goal
    return shortest - null @ (error[:-1] / error[-1])


def vertices(row, transformed):
    """All vertices of {a ≥ 0, a·[T,1] = row·[T,1]}, by trying every set of keys."""
    constraints = with_ones(transformed)
    goal = row @ constraints
    found = []
    size = np.linalg.matrix_rank(constraints)
    for support in combinations(range(len(row)), size):
        part = constraints[list(support)]
        if np.linalg.matrix_rank(part) < size:
            continue
        weights, *_ = np.linalg.lstsq(part.T, goal, rcond=None)
        if weights.min() >= -1e-12 and np.abs(weights @ part - goal).max() < 1e-10:
            vertex = np.zeros(len(row))
            vertex[list(support)] = weights
            found.append(vertex)
    return np.array(found)


def null_share(attention, effective_attention):
    """‖A − A⊥‖² / ‖A‖²."""
    return ((attention - effective_attention) ** 2).sum() / (attention**2).sum()


def pearson(first, second):
    """Pearson correlation of two lists of numbers."""
    return np.corrcoef(first, second)[0, 1]


def largest_step(row, direction):
    """λ_max of §3.3, component by component."""
    return min((-a / d for a, d in zip(row, direction, strict=True) if d < 0), default=np.inf)
