"""Every prefix of a text on its own, by a whole SVD, in NumPy float64; shares no code with the library."""

from dataclasses import dataclass

import numpy as np

EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "bfloat16": 2.0**-7}


def relative_cutoff(keys: int, model: int, precision: str) -> float:
    """max(shape)·eps of the precision that produced T; in half precision, which is rounded once, eps/√3."""
    epsilon = EPSILON[precision]
    return epsilon / 3**0.5 if precision == "bfloat16" else max(keys, model) * epsilon


@dataclass(frozen=True)
class Prefixes:
    """Each by row: the rank, whether rounding in float64 cannot decide it, A⊥ [row, key], and its own rounding."""

    rank: np.ndarray
    undecided: np.ndarray
    effective: np.ndarray
    rounding: np.ndarray


def prefixes(
    value: np.ndarray,
    projection: np.ndarray,
    attention: np.ndarray,
    precision: str,
    bias: np.ndarray | None = None,
    ones: float | None = None,
) -> Prefixes:
    """Rows of attention [row, key] on their prefixes of T = (value − bias)·projection, with a column of `ones`."""
    keys, model = len(value), projection.shape[1]
    produced = 0.0 if bias is None else float(np.linalg.norm(bias @ projection))
    transformed = (value if bias is None else value - bias) @ projection
    size = np.linalg.norm(value, 2) * np.linalg.norm(projection, 2)
    if ones is not None:
        transformed = np.concatenate([transformed, np.full((keys, 1), ones)], 1)
    rank, undecided, effective, rounding = [], [], np.zeros((len(attention), keys)), []
    for row, weights in enumerate(attention):
        length = row + 1 + keys - len(attention)
        left, values, _ = np.linalg.svd(transformed[:length], full_matrices=False)
        # The others are zero, whatever their rounding.
        values = values[: min(length, value.shape[1] + (ones is not None))]
        cutoff = relative_cutoff(length, model, precision) * max(values[0], produced * length**0.5)
        kept = int((values > cutoff).sum())
        noise = 10 * EPSILON["float64"] * max(size, values[0])
        undecided.append(bool((np.abs(values - cutoff) <= 1e-9 * cutoff + noise).any()))
        basis = left[:, :kept]
        effective[row, :length] = weights[:length] @ basis @ basis.T
        dropped = values[kept] if kept < len(values) else 0.0
        # A singular subspace turns by the rounding of its matrix over the gap to the next.
        rounding.append(10 * noise / (values[kept - 1] - dropped) if kept else 0.0)
        rank.append(kept)
    return Prefixes(np.array(rank), np.array(undecided), effective, np.array(rounding))


def scale_of_ones(value: np.ndarray, projection: np.ndarray) -> float:
    """The entries of the column of ones: such that the column is as long as a column of T on average."""
    norm = float(np.linalg.norm(value @ projection))
    return norm / (len(value) * min(value.shape)) ** 0.5 if norm > 0 else 1.0
