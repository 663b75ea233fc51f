"""Causal rows all at once: each row projected on the T of its own prefix, in blocks instead of row by row."""

import torch
from torch import Tensor

from identiscope.linalg.rank.coordinates import Coordinates
from identiscope.linalg.tolerance import GRAM_FLOOR

#: Prefixes per block: long enough for matrix products, short enough for the triangles inside to stay cheap.
BLOCK = 64


def tall_prefixes(points: Coordinates, heads: slice) -> list[int]:
    """For each head that shares one value head, the shortest prefix from which on T has full column rank.

    From there on the Gram matrices of T and of V may be trusted, too; keys + 1 if there is no such prefix.
    Adding a key never lowers an eigenvalue of the Gram matrix, so one search answers for all prefixes: the
    smallest eigenvalue of a prefix is compared with the largest of the whole.
    """
    plain = points.points[heads.start // points.group]
    keys, columns = plain.shape

    def search(rows: Tensor, threshold: float, first: int) -> int:
        def trusted(length: int) -> bool:
            prefix = rows[:length]
            return float(torch.linalg.eigvalsh(prefix.mT @ prefix)[0]) > threshold**2

        if first > keys or not trusted(keys):
            return keys + 1
        # Mostly the first or second length will do: double the distance before halving the interval.
        low, high, distance = first, first, 1
        while not trusted(high):
            low, high, distance = high + 1, min(high + distance, keys), 2 * distance
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if trusted(middle) else (middle + 1, high)
        return high

    own = search(plain, GRAM_FLOOR * float(torch.linalg.matrix_norm(plain, 2)), columns)
    lengths = []
    for head in range(heads.start, heads.stop):
        rows = plain @ points.triangle[head].mT
        produced = max(float(torch.linalg.matrix_norm(rows, 2)), float(points.bias_norm[head]) * keys**0.5)
        lengths.append(search(rows, max(points.cutoff(keys), GRAM_FLOOR) * produced, own))
    return lengths


def wide_prefixes(points: Coordinates, heads: slice) -> list[int]:
    """For each head that shares one value head, the longest prefix up to which the rows of T are independent.

    Up to there A⊥ = A; 0 if not even the first row is. Adding a row to a wide matrix never raises its
    smallest singular value, so a search answers again.
    """
    plain = points.points[heads.start // points.group]

    def search(rows: Tensor, relative: float | None, bias_norm: float, last: int) -> int:
        def independent(length: int) -> bool:
            values = torch.linalg.svdvals(rows[:length])
            cutoff = max(points.cutoff(length), GRAM_FLOOR) if relative is None else relative
            return bool(values[-1] > cutoff * max(float(values[0]), bias_norm * length**0.5))

        low, high, distance = last, last, 1
        while low > 0 and not independent(low):
            low, high, distance = max(low - distance, 0), low - 1, 2 * distance
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if independent(middle) else (low, middle - 1)
        return low

    own = search(plain, GRAM_FLOOR, 0.0, min(plain.shape))
    return [
        search(plain @ points.triangle[head].mT, None, float(points.bias_norm[head]), own)
        for head in range(heads.start, heads.stop)
    ]


def solve_wide(points: Tensor, target: Tensor, lengths: Tensor) -> Tensor:
    """Left factors [head, row, column] of rows whose prefixes have independent points.

    With Xᵀ = Q·R over the longest prefix, each shorter one is a leading block of R, and the inverse of a
    leading block of a triangle is the leading block of its inverse: one triangle serves all rows.
    """
    basis, triangle = torch.linalg.qr(points[: int(lengths.max())].mT)
    identity = torch.eye(len(triangle), dtype=triangle.dtype, device=triangle.device)
    inverse = torch.linalg.solve_triangular(triangle, identity, upper=True)
    inside = torch.arange(len(triangle), device=lengths.device) < lengths[:, None]
    weights = (target @ basis * inside) @ inverse.mT
    left: Tensor = (weights @ inverse * inside) @ basis.mT
    return left


def solve_tall(points: Tensor, target: Tensor, lengths: Tensor) -> Tensor:
    """Left factors G_i⁻¹·target [head, row, column] of rows whose prefix Gram matrices G_i are well conditioned.

    `lengths` are consecutive. Within a block that starts after s keys, G_i = L·(I + Z_i·Z_iᵀ)·Lᵀ with
    L·Lᵀ = G_s and Z_i the first columns of Z = L⁻¹·Xᵀ. Woodbury turns its inverse into that of a leading
    block of I + ZᵀZ, whose Cholesky factor is again a leading block: no factorisation per row.
    """
    solved = torch.empty_like(target)
    first, count = int(lengths[0]), len(lengths)
    gram = points[:first].mT @ points[:first]
    for begin in range(0, count, BLOCK):
        rows = slice(begin, min(begin + BLOCK, count))
        block = points[first + begin : first + rows.stop]
        solved[:, rows] = _solve_block(gram, block, target[:, rows])
        gram = gram + block.mT @ block
    return solved


def _solve_block(gram: Tensor, block: Tensor, target: Tensor) -> Tensor:
    heads, size, columns = target.shape
    identity = torch.eye(len(block), dtype=gram.dtype, device=gram.device)
    lower = torch.linalg.cholesky(gram)
    fresh = torch.linalg.solve_triangular(lower, block.mT, upper=False)
    small = torch.linalg.cholesky(identity + fresh.mT @ fresh)
    inverse = torch.linalg.solve_triangular(small, identity, upper=False)
    # Row t of the block has t keys of the block before it: key k only if k < t.
    row = torch.arange(max(len(block), size), device=gram.device)
    inside = (row[: len(block), None] < row[:size]).double().repeat(1, heads)

    def solve(right: Tensor) -> Tensor:
        turned = torch.linalg.solve_triangular(lower, right, upper=False)
        part = inverse @ (fresh.mT @ turned * inside) * inside
        solved: Tensor = torch.linalg.solve_triangular(lower.mT, turned - fresh @ (inverse.mT @ part), upper=True)
        return solved

    right = target.reshape(-1, columns).mT
    solution = solve(right)
    # One refinement: where the prefix is barely long enough, Woodbury alone loses the square of its condition.
    missing = right - gram @ solution - block.mT @ (block @ solution * inside)
    return (solution + solve(missing)).mT.reshape(heads, size, columns)
