"""Bounds of many small triangular factors at once. Everything here is plain loops over arrays (`compiling.py`)."""

import numpy as np
from numpy.typing import NDArray

from identiscope.linalg.compiling import Numbers, compiled

#: Matrices that are worked on side by side, so that the innermost loops run on vectors.
LANES = 8


@compiled
def inverse_squares(rows: Numbers, lengths: NDArray[np.int64], traces: Numbers, squares: Numbers) -> None:
    """Of T·Tᵀ with T [matrix, row, column] zero behind its `lengths` [matrix] rows: the trace, and that of the inverse.

    The inverse is of T·Tᵀ with a row like the others on average, orthogonal to all, for each row behind the end, which
    a bound survives; its trace is infinite where T·Tᵀ is not positive definite in float64.
    """
    matrices, size, columns = rows.shape
    block, factor = np.empty((size, columns, LANES)), np.empty((size, size, LANES))
    inverse, added, total = np.empty((size, LANES)), np.empty(LANES), np.empty(LANES)
    for first in range(0, matrices, LANES):
        used = min(LANES, matrices - first)
        for lane in range(LANES):
            # What is left over of the last block repeats its first matrix.
            one = rows[first + lane if lane < used else first]
            for i in range(size):
                for column in range(columns):
                    block[i, column, lane] = one[i, column]
        for i in range(size):
            for j in range(i + 1):
                added[:] = 0.0
                for column in range(columns):
                    for lane in range(LANES):
                        added[lane] += block[i, column, lane] * block[j, column, lane]
                for lane in range(LANES):
                    factor[i, j, lane] = added[lane]
        added[:] = 0.0
        for i in range(size):
            for lane in range(LANES):
                added[lane] += factor[i, i, lane]
        for lane in range(used):
            traces[first + lane] = added[lane]
        for lane in range(LANES):
            length = lengths[first + lane if lane < used else first]
            for i in range(length, size):
                factor[i, i, lane] += added[lane] / length
        # Cholesky's factor L below the diagonal, and the inverses of its diagonal on it; NaN where there is no root.
        for j in range(size):
            for i in range(j, size):
                for lane in range(LANES):
                    added[lane] = factor[i, j, lane]
                for k in range(j):
                    for lane in range(LANES):
                        added[lane] -= factor[i, k, lane] * factor[j, k, lane]
                for lane in range(LANES):
                    factor[i, j, lane] = added[lane]
            for lane in range(LANES):
                pivot = factor[j, j, lane]
                factor[j, j, lane] = 1 / np.sqrt(pivot) if pivot > 0 else np.nan
            for i in range(j + 1, size):
                for lane in range(LANES):
                    factor[i, j, lane] *= factor[j, j, lane]
        total[:] = 0.0
        for column in range(size):
            for i in range(column, size):
                for lane in range(LANES):
                    added[lane] = 1.0 if i == column else 0.0
                for k in range(column, i):
                    for lane in range(LANES):
                        added[lane] -= factor[i, k, lane] * inverse[k, lane]
                for lane in range(LANES):
                    entry = added[lane] * factor[i, i, lane]
                    inverse[i, lane] = entry
                    total[lane] += entry * entry
        for lane in range(used):
            squares[first + lane] = total[lane] if total[lane] == total[lane] else np.inf
