"""Texts whose T has full rank in every head, proven for many texts and heads at once by a bound, without a spectrum.

With G = VᵀV and R the head's triangle, tr(R⁻ᵀ·G⁻¹·R⁻¹)^(-1/2) is at most the smallest singular value of T, and
tr(R·G·Rᵀ)^(1/2) at least the largest: where even these clear the cutoff, the rank is full. Where they do not, nothing
is said.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.linalg.rank.projection_factor import ProjectionFactor
from identiscope.linalg.tolerance import ENLARGED_ROUNDING, GRAM_FLOOR, relative_cutoff


@dataclass(frozen=True, eq=False)
class HeadProducts:
    """What the bounds need of the output projection, once per model: RᵀR and R⁻¹R⁻ᵀ, both [head, channel, channel]."""

    factor: ProjectionFactor
    product: Tensor
    inverse: Tensor
    invertible: Tensor


def head_products(factor: ProjectionFactor) -> HeadProducts:
    """The products of the triangles of a layer's heads."""
    inverse, singular = torch.linalg.inv_ex(factor.triangle)
    return HeadProducts(factor, factor.triangle.mT @ factor.triangle, inverse @ inverse.mT, singular == 0)


@dataclass(frozen=True, eq=False)
class FullRank:
    """proven [text, head]: T has full column rank and no large condition, and [T,1] the rank simplex_rank [text, head].

    root [text, kv_head, channel, channel] is L⁻¹ with L·Lᵀ = G: the columns of V·L⁻ᵀ are an orthonormal basis of
    col(V) = col(T).
    """

    proven: Tensor
    simplex_rank: Tensor
    root: Tensor

    def of_text(self, number: int) -> "FullRank":
        """That of one text, with the axis of texts kept."""
        one = slice(number, number + 1)
        return FullRank(self.proven[one], self.simplex_rank[one], self.root[one])

    @property
    def inverse(self) -> Tensor:
        """G⁻¹ [text, kv_head, channel, channel]: V·G⁻¹·Vᵀ projects on col(V)."""
        return self.root.mT @ self.root


def full_column_rank(
    gram: Tensor, sums: Tensor, lengths: Tensor, heads: HeadProducts, precision: torch.dtype
) -> FullRank:
    """From G = VᵀV [text, kv_head, channel, channel] and 1ᵀV [text, kv_head, channel] of texts of `lengths` keys.

    >>> from identiscope.linalg.rank.projection_factor import projection_factor
    >>> value = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
    >>> heads = head_products(projection_factor(torch.eye(2)[None]))
    >>> gram, sums = (value.mT @ value)[None, None], value.sum(0)[None, None]
    >>> found = full_column_rank(gram, sums, torch.tensor([3]), heads, torch.float32)
    >>> found.proven, found.simplex_rank
    (tensor([[True]]), tensor([[3]]))
    """
    channels, group = gram.shape[-1], len(heads.product) // gram.shape[1]

    def of_head(tensor: Tensor) -> Tensor:
        return tensor if group == 1 else tensor.repeat_interleave(group, 1)

    lower, failed = torch.linalg.cholesky_ex(gram)
    root = _inverse(lower, failed)
    inverse = root.mT @ root
    trace, inverse_trace = (matrix.diagonal(dim1=-2, dim2=-1).sum(-1) for matrix in (gram, inverse))
    # An inverse of a Gram matrix loses the square of its condition.
    solvable = (failed == 0) & (trace * inverse_trace * GRAM_FLOOR**2 < 1)
    least = (of_head(inverse) * heads.inverse).sum((-2, -1))
    squares = (of_head(gram) * heads.product).sum((-2, -1))
    cutoff = _cutoffs(lengths, channels, heads.factor.model, precision).square()
    proven = of_head(solvable) & heads.invertible & (cutoff * squares * least < 1)
    # [T,1]: one more column, scaled as in `coordinates`; what of it lies outside col(V) is the one more direction.
    keys = lengths.double()[:, None]
    along = (inverse @ sums[..., None])[..., 0]
    outside = of_head((1 - (along * sums).sum(-1) / keys).clamp(min=0))
    # squares/(keys·channels) is the square of the entries of the added column, which has `keys` of them.
    bent = ((of_head(along)[..., None, :] @ heads.inverse)[..., 0, :] * of_head(along)).sum(-1)
    extended = least + (bent / keys + channels / squares) / outside
    # A square T that has full rank has independent rows, with ones or without.
    square = (lengths == channels)[:, None]
    simplex = square | (cutoff * squares * (1 + 1 / channels) * extended < 1)
    # What is nearly singular would show the rounding of the context enlarged: better taken from weights in float64.
    well = squares * torch.where(square, least, extended) < ENLARGED_ROUNDING**2
    rank = torch.full_like(proven, channels, dtype=torch.long) + (~square).long()
    return FullRank(proven & simplex & well, rank, root)


def independent_rows(values: Tensor, lengths: Tensor, heads: HeadProducts, precision: torch.dtype) -> Tensor:
    """Whether the rows of T of texts with fewer keys than channels are proven independent, [text, head].

    values [text, kv_head, key, channel] in float64, zero behind each text's length.

    >>> from identiscope.linalg.rank.projection_factor import projection_factor
    >>> values = torch.tensor([[[[1.0, 0.0]]], [[[0.0, 0.0]]]], dtype=torch.float64)
    >>> heads = head_products(projection_factor(torch.eye(2)[None]))
    >>> independent_rows(values, torch.tensor([1, 1]), heads, torch.float32)
    tensor([[ True],
            [False]])
    """
    group = len(heads.product) // values.shape[1]
    spread = values if group == 1 else values.repeat_interleave(group, 1)
    trace, least = _traces(spread @ heads.factor.triangle.mT, lengths)
    cutoff = _cutoffs(lengths, values.shape[-1], heads.factor.model, precision).square()
    proven: Tensor = cutoff * trace * least < 1
    return proven


def _traces(rows: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Of G = T·Tᵀ the trace, and that of its inverse, infinite where there is none; T [text, head, key, channel]."""
    texts, heads, keys, _ = rows.shape
    if rows.device.type == "cpu":
        from identiscope.linalg.rank.full_rank_compiled import inverse_squares

        found = rows.new_empty(2, texts * heads)
        of_heads = lengths.repeat_interleave(heads)
        inverse_squares(rows.flatten(0, 1).contiguous().numpy(), of_heads.numpy(), *found.numpy())
        return found[0].view(texts, heads), found[1].view(texts, heads)
    gram = rows @ rows.mT
    trace = gram.diagonal(dim1=-2, dim2=-1).sum(-1)
    # Behind a text's end: a row like the others on average, orthogonal to them, which the bound survives.
    beyond = (torch.arange(keys, device=rows.device) >= lengths[:, None]).double()
    gram = gram + torch.diag_embed(beyond[:, None] * (trace / lengths[:, None])[..., None])
    lower, failed = torch.linalg.cholesky_ex(gram)
    return trace, torch.where(failed == 0, _inverse(lower, failed).square().sum((-2, -1)), torch.inf)


def _inverse(lower: Tensor, failed: Tensor) -> Tensor:
    """L⁻¹ of Cholesky factors; one of those that failed."""
    identity = torch.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device)
    safe = torch.where((failed == 0)[..., None, None], lower, identity)
    inverse: Tensor = torch.linalg.solve_triangular(safe, identity, upper=False)
    return inverse


def _cutoffs(lengths: Tensor, channels: int, model: int, precision: torch.dtype) -> Tensor:
    """Relative cutoff [text, 1], no lower than what a Gram matrix resolves."""
    cutoffs = [max(relative_cutoff(length, channels, model, precision), GRAM_FLOOR) for length in lengths.tolist()]
    return torch.tensor(cutoffs, dtype=torch.float64, device=lengths.device)[:, None]
