"""The spectrum of all heads of a layer stacked, from one small matrix per head."""

import torch
from torch import Tensor

from identiscope.linalg.rank.column_space import Spectrum, spectrum
from identiscope.linalg.rank.coordinates import Coordinates
from identiscope.linalg.tolerance import GRAM_FLOOR, relative_cutoff, stacked_margin

#: Steps of Lanczos' method after which its matrix is factorised instead, and the residual at which it has converged:
#: the error of the eigenvalue is the square of that.
_STEPS, _CONVERGED = 80, 1e-9


def stacked_ranks(plain: Coordinates, ones: Coordinates, projection: Tensor) -> tuple[int, int]:
    """Ranks of the stacked T and [T,1], as `stacked_spectrum` has them, without a spectrum where that is certain.

    An eigenvalue of M = S·Sᵀ exceeds the square of the cutoff τ where one of M − τ² exceeds zero, and a factorisation
    L·D·Lᵀ has as many positive pivots as the matrix has positive eigenvalues.
    """
    heads, keys, channels = len(plain.triangle), plain.points.shape[1], plain.channels
    relative = relative_cutoff(heads * keys, heads * channels, plain.model, plain.precision)
    counts: list[int | None] = [None, None]
    if relative >= GRAM_FLOOR and plain.bias is None:
        small = ones.of_head(torch.linalg.qr(ones.points, mode="r").R)
        # The triangle of [V,1] begins with that of V: one more row and column a head, and all else is the same.
        rows = min(keys, channels)
        flat = (small[:, :rows, :channels] @ projection.double()).flatten(0, 1)
        gram = flat @ flat.mT
        extended = gram.new_zeros(heads, small.shape[1], heads, small.shape[1])
        extended[:, :rows, :, :rows] = gram.view(heads, rows, heads, rows)
        added = small[:, :, channels] * ones.triangle[:, channels, channels, None]
        for head in range(heads):
            extended[head, :, head] += added[head, :, None] * added[head]
        counts = [_count(gram, relative), _count(extended.flatten(2).flatten(0, 1), relative)]
    first, second = (
        int(stacked_spectrum(points, projection)[1].rank) if count is None else count
        for points, count in zip((plain, ones), counts, strict=True)
    )
    return first, second


def _count(gram: Tensor, relative: float) -> int | None:
    """Number of eigenvalues above relative² of the largest; None if one is so near to it that rounding may decide."""
    threshold = relative**2 * _largest_eigenvalue(gram)
    margin = stacked_margin(len(gram), relative)
    counts = {_above(gram, threshold * (1 + sign * margin)) for sign in (-1, 1)}
    return counts.pop() if len(counts) == 1 else None


def _above(gram: Tensor, threshold: float) -> int:
    """Number of eigenvalues above a threshold."""
    shifted = gram.clone()
    shifted.diagonal().sub_(threshold)
    factor, pivots = torch.linalg.ldl_factor(shifted)
    # Pivots of two rows have one positive and one negative eigenvalue.
    single = pivots > 0
    return int((factor.diagonal()[single] > 0).sum()) + int((~single).sum()) // 2


def _largest_eigenvalue(matrix: Tensor) -> float:
    """By Lanczos' method, from a start that no matrix knows of."""
    generator = torch.Generator().manual_seed(0)
    vector = torch.randn(len(matrix), dtype=matrix.dtype, generator=generator).to(matrix.device)
    basis = [vector / vector.norm()]
    steps = min(_STEPS, len(matrix))
    small = torch.zeros(steps, steps, dtype=matrix.dtype)
    for step in range(steps):
        moved = matrix @ basis[step]
        known = torch.stack(basis)
        along = known @ moved
        small[step, : step + 1] = small[: step + 1, step] = along.cpu()
        moved -= along @ known
        # Once more, since what was subtracted was rounded.
        moved -= known @ moved @ known
        length = float(moved.norm())
        values, vectors = torch.linalg.eigh(small[: step + 1, : step + 1])
        if length * abs(float(vectors[-1, -1])) <= _CONVERGED * float(values[-1]):
            return max(float(values[-1]), 0.0)
        basis.append(moved / length)
    return max(float(torch.linalg.eigvalsh(matrix)[-1]), 0.0)


def stacked_spectrum(points: Coordinates, projection: Tensor) -> tuple[Tensor, Spectrum]:
    """Ranks of the heads alone [head], and the spectrum [1, column] of their T stacked (head·key × model).

    With V = Q·S per value head, the stacked T is an orthonormal matrix times the stacked S·H: a matrix of
    head·channel rows, whatever the number of keys. With ones, each head has its own column of ones, since
    each head keeps its own row sums.
    """
    heads = len(points.triangle)
    keys, channels, model = points.points.shape[1], points.channels, points.model
    small = points.of_head(torch.linalg.qr(points.points).R)
    extra = heads if points.unit is not None else 0
    stacked = small.new_zeros(heads, small.shape[1], model + extra)
    stacked[:, :, :model] = small[..., :channels] @ projection.double()
    for head in range(extra):
        stacked[head, :, model + head] = small[head, :, channels] * points.triangle[head, channels, channels]
    flat = stacked.flatten(0, 1)
    values = torch.linalg.svdvals(flat)
    # The stacked matrix has head·key rows and its heads rarely align, so its largest singular value is that
    # of the strongest head: the cutoff grows with the shape as for any matrix.
    relative = relative_cutoff(heads * keys, heads * channels, model, points.precision)
    produced = float((points.bias_norm.square().sum() * keys).sqrt())
    together = spectrum(values[None], relative * values[:1].clamp(min=produced))
    alone_values = torch.linalg.svdvals(small @ points.triangle.mT)
    alone = spectrum(alone_values, points.cutoff(keys) * points.reference(alone_values[:, 0], keys))
    return alone.rank, together
