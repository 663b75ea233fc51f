"""Slow, literal re-implementations of the structure-aware draft in plain NumPy float64, sharing no code with src."""

from itertools import combinations, pairwise

import numpy as np


def structure_norm(matrix, weights):
    """Eq. 5, cell by cell."""
    total = 0.0
    rows, columns = matrix.shape
    for i in range(rows):
        for j in range(columns):
            total += weights[i, j] * abs(matrix[i, j])
    return total / (rows * columns)


def classical_norms(matrix):
    """Largest column sum, largest row sum, Frobenius and spectral norm, by NumPy's own definitions."""
    return tuple(np.linalg.norm(matrix, order) for order in (1, np.inf, "fro", 2))


def orthonormal_columns(matrix, relative=1e-9):
    """Left singular vectors above a share of the largest singular value."""
    left, values, _ = np.linalg.svd(matrix, full_matrices=False)
    return left[:, values > relative * values[0]] if len(values) and values[0] > 0 else left[:, :0]


def projector(matrix, relative=1e-9):
    """The projector on the columns of a matrix, by the pseudoinverse."""
    return matrix @ np.linalg.pinv(matrix, rcond=relative)


def hard_subspace(samples, relative=1e-9):
    """Eq. 6 literally: the orthogonal complement of the intersection of the kernels of all T_i'."""
    keys = len(samples[0])
    # x is in every kernel iff all T_i' x are zero: the kernel of the T_i' one below the other.
    stacked = np.vstack([sample.T / np.linalg.norm(sample, 2) for sample in samples])
    _, values, right = np.linalg.svd(stacked, full_matrices=True)
    rank = int((values > relative * values[0]).sum())
    kernel = right[rank:].T
    return np.eye(keys) - kernel @ kernel.T


def mean_projector(samples, relative=1e-9):
    """(1/N)·Σ P_i."""
    return sum(projector(sample, relative) for sample in samples) / len(samples)


def cut(matrix, threshold, penalty):
    """Eq. 8, cell by cell."""
    out = np.zeros_like(matrix)
    for place, value in np.ndenumerate(matrix):
        out[place] = value if value >= threshold else penalty(value)
    return out


def normalise_rows(matrix):
    """Rows divided by their sum; rows of zeros stay."""
    out = np.zeros_like(matrix)
    for i, row in enumerate(matrix):
        if row.sum() > 0:
            out[i] = row / row.sum()
    return out


def extraction(maps, threshold):
    """Section III-B1: mean (not sum) of the maps, Cut_l with h = 0, rows normalised."""
    mean = sum(maps) / len(maps)
    return normalise_rows(cut(mean, threshold, lambda value: 0.0))


def relative_extraction(maps):
    """Mean weight at every offset key − query, over all cells of all maps that have it."""
    sums: dict[int, float] = {}
    counts: dict[int, int] = {}
    for matrix in maps:
        for (i, j), value in np.ndenumerate(matrix):
            sums[j - i] = sums.get(j - i, 0.0) + value
            counts[j - i] = counts.get(j - i, 0) + 1
    return {offset: sums[offset] / counts[offset] for offset in sums}


def between_class_variance(values, split):
    """Otsu's criterion over its maximum: share of the variance that two groups explain."""
    low, high = values[values < split], values[values >= split]
    if not len(low) or not len(high) or values.var() == 0:
        return 0.0
    weight = len(low) * len(high) / len(values) ** 2
    return weight * (high.mean() - low.mean()) ** 2 / values.var()


def rank_correlation(first, second):
    """Spearman's: Pearson correlation of mean ranks, written out."""

    def ranks(values):
        return np.array([(values < one).sum() + ((values == one).sum() + 1) / 2 for one in values])

    one, other = ranks(np.asarray(first)), ranks(np.asarray(second))
    one, other = one - one.mean(), other - other.mean()
    return float(one @ other / np.sqrt((one @ one) * (other @ other)))


def pattern_score(matrix, cells):
    """(weight − chance) / (1 − chance) on a set of cells {(i, j)} of a map without a mask, row by row."""
    size = matrix.shape[1]
    above, room = 0.0, 0.0
    for i, row in enumerate(matrix):
        own = [j for (k, j) in cells if k == i]
        if own and row.sum() > 0:
            chance = len(own) / size
            above += sum(row[j] for j in own) / row.sum() - chance
            room += 1 - chance
    return min(max(above / room, 0.0), 1.0) if room > 0 else 0.0


def broad_score(matrix):
    """What rows share with even rows, above what one-hot rows share with them."""
    size = matrix.shape[1]
    shared = [sum(min(value / row.sum(), 1 / size) for value in row) for row in matrix if row.sum() > 0]
    above, room = sum(one - 1 / size for one in shared), len(shared) * (1 - 1 / size)
    return min(max(above / room, 0.0), 1.0) if room > 0 else 0.0


def block_score(matrix):
    """The best cut into 2, 3 and 4 blocks by trying all of them: overlap with even blocks above chance."""
    size, best = len(matrix), 0.0
    rows = matrix / matrix.sum(1, keepdims=True)
    for blocks in (2, 3, 4):
        found = []
        for cuts in combinations(range(2, size - 1), blocks - 1):
            places = [0, *cuts, size]
            spans = list(pairwise(places))
            if any(end - begin < 2 for begin, end in spans):
                continue
            above = room = 0.0
            for begin, end in spans:
                width = end - begin
                for i in range(begin, end):
                    above += sum(min(rows[i, j], 1 / width) for j in range(begin, end)) - width / size
                    room += 1 - width / size
            found.append((above, above / room))
        if found:
            best = max(best, max(found)[1])
    return min(max(best, 0.0), 1.0)
