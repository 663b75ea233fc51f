"""Rows with any allowed set: one small factorisation per distinct set, shared by the heads where it may be."""

import torch
from torch import Tensor

from identiscope.linalg.rank.coordinates import Coordinates
from identiscope.linalg.tolerance import GRAM_FLOOR, GRAM_NOISE_SHARE, machine_epsilon

#: Numbers held at once while Gram matrices or padded rows of a chunk are formed (32 MB).
CHUNK_NUMBERS = 2**22

#: Sets taken together: few enough that neighbouring sliding windows leave most keys out.
SETS = 128


def solve_sets(
    points: Coordinates, heads: slice, target: Tensor, masks: Tensor, set_of_row: Tensor
) -> tuple[Tensor, Tensor]:
    """Left factors [head, row, column] and ranks [head, row] of some heads that share one value head.

    `target` is [head, row, column], `masks` boolean [set, key], `set_of_row` the set of each row.
    """
    plain = points.points[heads.start // points.group]
    triangles = points.triangle[heads]
    columns = plain.shape[1]
    left, rank = torch.zeros_like(target), target.new_zeros(target.shape[:2], dtype=torch.long)
    inverses, singular = torch.linalg.inv_ex(triangles)
    size = min(SETS, max(1, CHUNK_NUMBERS // columns**2))
    every = plain
    for begin in range(0, len(masks), size):
        chunk = masks[begin : begin + size]
        used = chunk.any(0)
        plain, chunk = every[used], chunk[:, used]
        member = ((set_of_row >= begin) & (set_of_row < begin + len(chunk))).nonzero()[:, 0]
        local = set_of_row[member] - begin
        gram = _grams(plain, chunk)
        lower, failed = torch.linalg.cholesky_ex(gram)
        identity = torch.eye(columns, dtype=gram.dtype, device=gram.device).expand_as(lower)
        safe = torch.where((failed == 0)[:, None, None], lower, identity)
        inverse = torch.linalg.solve_triangular(safe, identity, upper=False)
        shared = (failed == 0) & (_norm(inverse) * _norm(safe) * GRAM_FLOOR < 1)
        counts = chunk.sum(1)
        cutoff = torch.tensor([points.cutoff(count) for count in counts.tolist()], dtype=gram.dtype, device=gram.device)
        for index, triangle in enumerate(triangles):
            head = heads.start + index
            # ‖(R·L)⁻¹‖_F⁻¹ is at most the smallest singular value of T and ‖R·L‖_F at least the largest:
            # where even these bounds clear the cutoff, T has full column rank and col(T) = col(V).
            smallest = 1 / _norm(inverse @ inverses[index])
            largest = torch.maximum(_norm(triangle @ safe), points.bias_norm[head] * counts.double().sqrt())
            full = shared & (singular[index] == 0) & (smallest > cutoff.clamp(min=GRAM_FLOOR) * largest)
            halves, ranks = inverse.clone(), counts.new_full((len(chunk),), columns)
            rest = (~full).nonzero()[:, 0]
            if len(rest):
                halves[rest], ranks[rest] = _halves(
                    plain, chunk[rest], gram[rest], triangle, cutoff[rest], float(points.bias_norm[head])
                )
            # F then Fᵀ, never the product FᵀF: that would square the rounding of the output once more.
            goal, half = target[index, member], halves[local]
            solution = _apply(half, goal)
            # Refined with what the rows themselves give: a Gram matrix has lost the square of their condition.
            given = ((solution @ plain.mT) * chunk[local]) @ plain
            left[index, member] = solution + _apply(half, goal - given)
            rank[index, member] = ranks[local]
    return left, rank


def _apply(half: Tensor, right: Tensor) -> Tensor:
    turned = half @ right[..., None]
    return (half.mT @ turned)[..., 0]


def _grams(plain: Tensor, masks: Tensor) -> Tensor:
    """Σ over the allowed keys of x·xᵀ: sums of what is allowed, never differences, so nothing cancels."""
    columns = plain.shape[1]
    total = plain.new_zeros(len(masks), columns**2)
    size = max(1, CHUNK_NUMBERS // columns**2)
    for begin in range(0, len(plain), size):
        piece = plain[begin : begin + size]
        outer = (piece[:, :, None] * piece[:, None, :]).flatten(1)
        total += masks[:, begin : begin + size].double() @ outer
    return total.view(-1, columns, columns)


def _halves(
    plain: Tensor, masks: Tensor, gram: Tensor, triangle: Tensor, cutoff: Tensor, bias_norm: float
) -> tuple[Tensor, Tensor]:
    """F with FᵀF = Rᵀ·(R·G·Rᵀ)⁺·R, and the rank, by eigenvalues where these resolve the cutoff, else by SVD."""
    produced = bias_norm * masks.sum(1).double().sqrt()
    squares, vectors = torch.linalg.eigh(triangle @ gram @ triangle.mT)
    largest = torch.maximum(squares[:, -1].clamp(min=0).sqrt(), produced)
    threshold = cutoff * largest
    kept = squares > (threshold**2)[:, None]
    inverse = torch.where(kept, torch.where(kept, squares, 1).rsqrt(), 0)
    halves, ranks = inverse[..., None] * (vectors.mT @ triangle), kept.sum(1)
    bound = torch.linalg.matrix_norm(triangle, 1) * torch.linalg.matrix_norm(triangle, torch.inf)
    noise = machine_epsilon(torch.float64) * bound * torch.linalg.matrix_norm(gram, torch.inf)
    exact = ((cutoff < GRAM_FLOOR) | (noise > GRAM_NOISE_SHARE * threshold**2)).nonzero()[:, 0]
    rows = plain @ triangle.mT
    size = max(1, CHUNK_NUMBERS // rows.numel())
    for begin in range(0, len(exact), size):
        some = exact[begin : begin + size]
        # Zero rows change neither the singular values nor the right singular vectors.
        _, values, right = torch.linalg.svd(rows * masks[some][..., None], full_matrices=False)
        kept = values > (cutoff[some] * torch.maximum(values[:, 0], produced[some]))[:, None]
        inverse = torch.where(kept, 1 / torch.where(kept, values, 1), 0)
        halves[some] = 0
        halves[some, : values.shape[1]] = inverse[..., None] * (right @ triangle)
        ranks[some] = kept.sum(1)
    return halves, ranks


def _norm(matrices: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.matrix_norm(matrices)
    return norm
