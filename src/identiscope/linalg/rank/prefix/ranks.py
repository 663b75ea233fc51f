"""The rank of T and of [T,1] over every prefix of a text: proven for most at once, computed for the few others.

Short prefixes have independent rows, long ones full column rank, and either is proven by a bound that never looks at a
spectrum. The singular values of a prefix are computed only where no bound proves its rank.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from identiscope.linalg.rank.coordinates import Coordinates
from identiscope.linalg.rank.full_rank import HeadProducts
from identiscope.linalg.tolerance import GRAM_FLOOR, PROOF_MARGIN, machine_epsilon, relative_cutoff

#: Triangles factorised at once (8 MB of 64×64).
_TRIANGLES = 256


@dataclass(frozen=True, eq=False)
class PrefixRanks:
    """What the points of a text say of its prefixes, before any attention is looked at.

    Row i sees the first `lengths` [query] keys. Prefixes of at least `settled` [head] keys have full column rank. Of
    the shorter ones, those of up to `independent` [head] keys have independent rows, but for keys with the same values:
    `number` [kv_head, key] is which of the distinct keys each is. The `proven` [head, length] have full column rank.
    The others are open: only their singular values say it.
    """

    points: Coordinates
    lengths: Tensor
    settled: Tensor
    independent: Tensor
    number: Tensor
    proven: Tensor

    @property
    def columns(self) -> int:
        """The full column rank."""
        return self.points.points.shape[2]

    def known(self) -> Tensor:
        """Rank of each row [head, query]; −1 where it is open."""
        distinct = torch.cummax(self.number, 1).values[:, self.lengths - 1] + 1
        short = self.lengths <= self.independent[:, None]
        full = self.proven[:, self.lengths] | (self.lengths >= self.settled[:, None])
        return torch.where(short, self.points.of_head(distinct), torch.where(full, self.columns, -1))

    def all(self) -> Tensor:
        """Rank of each row [head, query], with the singular values of the open ones."""
        rank = self.known()
        for heads, rows in pairs((rank < 0).nonzero()):
            rank[heads, rows] = self.spectra(heads, rows, vectors=False)[0]
        return rank

    def spectra(self, heads: Tensor, rows: Tensor, *, vectors: bool = True) -> tuple[Tensor, Tensor]:
        """Ranks [pair] of some rows, and F [pair, column, column] with A⊥ = target·FᵀF·Xᵀ."""
        lengths, points = self.lengths[rows], self.points
        triangle = points.triangle[heads]
        small = _triangles(points, heads // points.group, lengths) @ triangle.mT
        if vectors:
            _, values, right = torch.linalg.svd(small)
        else:
            values, right = torch.linalg.svdvals(small), small
        relative = cutoffs(points)[lengths].sqrt()
        produced = points.bias_norm[heads] * lengths.double().sqrt()
        kept = values > (relative * torch.maximum(values[:, 0], produced))[:, None]
        inverse = torch.where(kept, 1 / values, 0)
        return kept.sum(1), inverse[..., None] * (right @ triangle)


def prefix_ranks(
    plain: Coordinates, ones: Coordinates, products: HeadProducts, queries: int
) -> tuple[PrefixRanks, PrefixRanks]:
    """Of T and of [T,1], from their coordinates and the products of the heads' triangles.

    >>> from identiscope.linalg.rank.coordinates import coordinates
    >>> from identiscope.linalg.rank.full_rank import head_products
    >>> from identiscope.linalg.rank.projection_factor import projection_factor
    >>> factor = projection_factor(torch.eye(2, 6)[None])
    >>> value = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 1.0]]])
    >>> plain, ones = (coordinates(value, factor, with_ones=flag) for flag in (False, True))
    >>> [found.all().tolist() for found in prefix_ranks(plain, ones, head_products(factor), 4)]
    [[[1, 2, 2, 2]], [[1, 2, 2, 3]]]
    """
    channels = plain.channels
    first = _of_points(plain.points, plain.bias_norm, plain, ones, products)
    # With a bias taken out of the values, T has other points than [T,1].
    second = first
    if plain.bias is not None:
        second = _of_points(ones.points[..., :channels], ones.bias_norm, plain, ones, products)
    keys = plain.points.shape[1]
    lengths = torch.arange(keys - queries, keys) + 1
    return (
        PrefixRanks(plain, lengths, first.settled[0], first.independent[0], first.number, first.proven[0]),
        PrefixRanks(ones, lengths, second.settled[1], second.independent[1], second.number, second.proven[1]),
    )


@dataclass(frozen=True, eq=False)
class _Found:
    settled: Tensor
    independent: Tensor
    number: Tensor
    proven: Tensor


def _of_points(
    values: Tensor, bias_norm: Tensor, plain: Coordinates, ones: Coordinates, products: HeadProducts
) -> _Found:
    """Of some points [kv_head, key, channel], each result for T and for [T,1]."""
    from identiscope.linalg.rank.prefix.compiled import distinct_rows, independent_prefixes, settle

    value_heads, keys, channels = values.shape
    heads, group = len(plain.triangle), plain.group
    assert ones.unit is not None
    # The squares of the entries of the column of ones, in the units of T.
    entries = (ones.triangle[:, channels, channels] * ones.of_head(ones.unit)).square().numpy()
    bias, limits = bias_norm.square().numpy(), cutoffs(plain).numpy()
    gram = plain.of_head(values.mT @ values)
    whole = (gram * products.product).sum((1, 2))
    # The terms may cancel: what is lost so is added.
    whole += (
        keys * machine_epsilon(torch.float64) * gram.flatten(1).norm(dim=1) * products.product.flatten(1).norm(dim=1)
    )
    norm = products.product.diagonal(dim1=1, dim2=2).sum(1)
    condition = (norm * products.inverse.diagonal(dim1=1, dim2=2).sum(1)).sqrt()
    # Beyond this an inverted triangle has too few digits for a proof.
    condition[~products.invertible | ~(condition * GRAM_FLOOR**2 < 1)] = torch.inf
    product, inverse = products.product.numpy(), products.inverse.numpy()
    arrays = values.contiguous().numpy()
    settled = np.full((2, heads), keys + 1, dtype=np.int64)
    proven = np.zeros((2, heads, keys + 1), dtype=bool)
    independent = np.zeros((2, heads), dtype=np.int64)
    number = np.full((value_heads, keys), -1, dtype=np.int64)
    for value_head, array in enumerate(arrays):
        own = slice(value_head * group, (value_head + 1) * group)
        settle(
            array, product[own], inverse[own], condition.numpy()[own], whole.numpy()[own], entries[own], limits,
            bias[own], GRAM_FLOOR, PROOF_MARGIN, settled[:, own], proven[:, own],
        )  # fmt: skip
        stop = distinct_rows(array, channels + 1, number[value_head])
        for head in range(own.start, own.stop):
            for kind in (0, 1):
                most = channels + kind
                if proven[kind, head, most : most + 1].any() and number[value_head, most - 1] == most - 1:
                    # As many rows as columns, and full rank: no row depends on others, here or before.
                    independent[kind, head] = most
                    continue
                independent[kind, head] = independent_prefixes(
                    array[:stop], number[value_head, :stop], most, product[head], kind * entries[head], limits,
                    (1 - kind) * bias[head], float(norm[head]), GRAM_FLOOR, PROOF_MARGIN,
                )  # fmt: skip
    return _Found(*(torch.from_numpy(array) for array in (settled, independent, number, proven)))


def cutoffs(points: Coordinates) -> Tensor:
    """Square of the relative cutoff for each number of keys."""
    return _cutoffs(points.points.shape[1], points.channels, points.model, points.precision)


@lru_cache(maxsize=64)
def _cutoffs(keys: int, channels: int, model: int, precision: torch.dtype) -> Tensor:
    squares = [relative_cutoff(length, channels, model, precision) ** 2 for length in range(keys + 1)]
    return torch.tensor(squares, dtype=torch.float64)


def pairs(places: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Heads and rows of places [pair, 2], some at a time."""
    for some in places.split(_TRIANGLES):
        if len(some):
            yield some[:, 0], some[:, 1]


def _triangles(points: Coordinates, value_heads: Tensor, lengths: Tensor) -> Tensor:
    """Triangles [pair, column, column] of the prefixes of given value heads and lengths.

    One rotation after the other rounds by more than one factorisation does, which a cutoff of float64 would notice:
    there each prefix has its own.
    """
    from identiscope.linalg.rank.prefix.compiled import triangles_at

    columns = points.points.shape[2]
    triangles = points.points.new_empty(len(lengths), columns, columns)
    for value_head in value_heads.unique().tolist():
        mine = value_heads == value_head
        own, place = lengths[mine].unique(return_inverse=True)
        different = triangles.new_zeros(len(own), columns, columns)
        keys = points.points[value_head]
        if points.precision == torch.float64:
            for index, length in enumerate(own.tolist()):
                different[index, : min(length, columns)] = torch.linalg.qr(keys[:length], mode="r").R
        else:
            triangles_at(keys.contiguous().numpy(), columns, own.numpy(), different.numpy())
        triangles[mine] = different[place]
    return triangles
