"""Rank, spectrum and projector of T over one common set of keys, for all heads at once."""

from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.linalg.rank.coordinates import Coordinates
from identiscope.linalg.tolerance import (
    CLEAR_GAP,
    GRAM_FLOOR,
    GRAM_NOISE_SHARE,
    WELL_CONDITIONED,
    machine_epsilon,
)


@dataclass(frozen=True)
class Spectrum:
    """Singular values of T [head, column], largest first, with the absolute cutoff and the rank it gives.

    `gap` is the last kept over the first dropped singular value (over the cutoff, if none is dropped): the
    rank is `uncertain` where it is below 3, since another cutoff would have given another rank.
    Singular values that come from a Gram matrix are resolved down to about 1e-7 of the largest.
    """

    singular_values: Tensor
    cutoff: Tensor
    rank: Tensor
    gap: Tensor
    uncertain: Tensor


@dataclass(frozen=True)
class ColumnSpace:
    """The projector on col(T) of each head: A⊥ = left(target) · rightᵀ with target = A·X.

    `half` [head, rank, column] carries a target to the coordinates of an orthonormal basis of col(T).
    `right` is that basis [head, key, rank], or, where `shared`, the points [kv_head, key, column].
    """

    spectrum: Spectrum
    half: Tensor
    right: Tensor
    shared: bool

    def left(self, target: Tensor) -> Tensor:
        """Left factor [head, query, …] of the projected rows."""
        turned = target @ self.half.mT
        # One half after the other, never their product: that would square the rounding of the output.
        return turned @ self.half if self.shared else turned


def spectrum(singular_values: Tensor, cutoff: Tensor) -> Spectrum:
    """Rank of each head's singular values [head, column] (largest first) at its cutoff [head]."""
    # `>` and not `>=`: the singular values of a zero matrix equal its cutoff, and its rank is zero.
    rank = (singular_values > cutoff[:, None]).sum(1)
    padded = torch.cat([singular_values, torch.zeros_like(cutoff)[:, None]], 1)
    kept = padded.gather(1, (rank - 1).clamp(min=0)[:, None])[:, 0]
    dropped = padded.gather(1, rank[:, None])[:, 0]
    complete = rank == singular_values.shape[1]
    below = torch.where(complete, cutoff, dropped)
    gap = torch.where(rank > 0, kept / below, torch.full_like(kept, torch.inf))
    return Spectrum(singular_values, cutoff, rank, gap, gap < CLEAR_GAP)


def column_space(points: Coordinates) -> ColumnSpace:
    """Factorise T of every head, from Gram matrices where these are accurate enough, else by QR and SVD.

    >>> from identiscope.linalg.rank.coordinates import coordinates
    >>> from identiscope.linalg.rank.projection_factor import projection_factor
    >>> value = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]])
    >>> column_space(coordinates(value, projection_factor(torch.eye(2)[None]))).spectrum.rank
    tensor([2])
    """
    gram = _gram_spectrum(points)
    return orthogonal_column_space(points) if gram is None else _from_gram(points, *gram)


def spectrum_of(points: Coordinates) -> Spectrum:
    """The spectrum of T of every head alone, as `column_space` has it."""
    gram = _gram_spectrum(points)
    return orthogonal_column_space(points).spectrum if gram is None else gram[0]


def _gram_spectrum(points: Coordinates) -> tuple[Spectrum, Tensor] | None:
    """Spectrum and R·G·Rᵀ from one float64 Gram matrix per value head; None where that is not accurate enough."""
    keys, triangle = points.points.shape[1], points.triangle
    relative = points.cutoff(keys)
    if relative < GRAM_FLOOR:
        return None
    gram = points.of_head(points.points.mT @ points.points)
    projected = triangle @ gram @ triangle.mT
    squares = torch.linalg.eigvalsh(projected)
    # Where R·G·Rᵀ would drown the cutoff in rounding.
    noise = machine_epsilon(torch.float64) * points.norm**2 * gram.diagonal(dim1=1, dim2=2).sum(1)
    if bool((noise > GRAM_NOISE_SHARE * relative**2 * squares[:, -1].clamp(min=0)).any()):
        return None
    values = squares.flip(1).clamp(min=0).sqrt()
    return spectrum(values, relative * points.reference(values[:, 0], keys)), projected


def _from_gram(points: Coordinates, spectrum: Spectrum, projected: Tensor) -> ColumnSpace:
    triangle, values = points.triangle, spectrum.singular_values
    if bool((values[:, -1] > torch.maximum(spectrum.cutoff, WELL_CONDITIONED * values[:, 0])).all()):
        lower = torch.linalg.cholesky(projected)
        half = torch.linalg.solve_triangular(lower, triangle, upper=False)
        return ColumnSpace(spectrum, half, points.points, shared=True)
    squares, vectors = torch.linalg.eigh(projected)
    kept = torch.arange(squares.shape[1], device=squares.device).flip(0) < spectrum.rank[:, None]
    inverse = torch.where(kept, torch.where(kept, squares, 1).rsqrt(), 0)
    return ColumnSpace(spectrum, inverse[..., None] * (vectors.mT @ triangle), points.points, shared=True)


def orthogonal_column_space(points: Coordinates, relative: float | None = None) -> ColumnSpace:
    """The same by thin QR and the SVD of its small triangle, exact to float64 at any cutoff."""
    keys, columns = points.points.shape[1:]
    rows = points.of_head(points.points) @ points.triangle.mT
    basis, small = torch.linalg.qr(rows)
    left, values, right = torch.linalg.svd(small, full_matrices=False)
    relative = points.cutoff(keys) if relative is None else relative
    missing = columns - values.shape[1]
    cutoff = relative * points.reference(values[:, 0], keys)
    inverse = torch.where(values > cutoff[:, None], 1 / values, 0)
    half = inverse[..., None] * (right @ points.triangle)
    if missing:
        values = torch.cat([values, values.new_zeros(len(values), missing)], 1)
    return ColumnSpace(spectrum(values, cutoff), half, basis @ left, shared=False)
