"""The span of the columns of many matrices, grown one matrix at a time, that remembers when each direction came."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from identiscope.linalg.tolerance import CLEAR_GAP


@dataclass(frozen=True, eq=False)
class SharedSpan:
    """An orthonormal basis [head, key, direction], in the order in which its directions were first seen.

    Columns beyond a head's dimension are zero. `origin` [head, direction] is the number of the matrix, from 1,
    that brought the direction (0: none yet), `strength` the size of what was new there, relative to that matrix,
    and `gap` [head] the least of these over the cutoff: below 3 the dimension is uncertain.
    """

    basis: Tensor
    origin: Tensor
    strength: Tensor
    gap: Tensor

    @property
    def dimension(self) -> Tensor:
        """Number of directions, [head]."""
        return (self.origin > 0).sum(1)

    @property
    def full(self) -> Tensor:
        """Whether a head's span is the whole space, [head]."""
        return self.dimension == self.basis.shape[1]

    @property
    def filled_at(self) -> Tensor:
        """Number of the matrix with which the span became the whole space, [head]; 0 where it has not."""
        return torch.where(self.full, self.origin.amax(1), 0)

    @property
    def uncertain(self) -> Tensor:
        """Whether another cutoff might have given another dimension, [head]."""
        return self.gap < CLEAR_GAP

    def of_head(self, head: int) -> Tensor:
        """The basis of one head without its zeros, [key, direction]."""
        return self.basis[head, :, : int(self.dimension[head])]


def no_span(heads: int, keys: int) -> SharedSpan:
    """Nothing yet, for so many heads in a space of so many keys."""
    zeros = torch.zeros(heads, keys, keys, dtype=torch.float64)
    return SharedSpan(
        zeros, torch.zeros(heads, keys, dtype=torch.long), zeros[:, 0], torch.full((heads,), torch.inf).double()
    )


def extend_span(span: SharedSpan, columns: Tensor, cutoff: Tensor, number: int) -> SharedSpan:
    """The span with the columns [head, key, column] of matrix `number` too.

    A direction is new if what is left of the columns outside the span has a singular value above the cutoff
    [head]. Give columns in units of the matrix's largest singular value, and the cutoff relative to it, so that
    rounding in a weak direction is not taken for a new one.

    >>> found = extend_span(no_span(1, 3), torch.eye(3, 2)[None].double(), torch.tensor([1e-9]), 1)
    >>> found.dimension, found.origin
    (tensor([2]), tensor([[1, 1, 0]]))
    """
    basis, origin, strength, gap = (part.clone() for part in (span.basis, span.origin, span.strength, span.gap))
    for head in (~span.full).nonzero()[:, 0].tolist():
        known = span.of_head(head)
        left, values, _ = torch.linalg.svd(_outside(known, columns[head]), full_matrices=False)
        # No more directions than there is room for: the rest can only be rounding.
        new = int((values > cutoff[head]).sum().clamp(max=basis.shape[1] - known.shape[1]))
        if not new:
            continue
        place = slice(known.shape[1], known.shape[1] + new)
        # Dividing by a small singular value magnified what was left of the span: take it out once more.
        basis[head, :, place] = _orthonormal(_outside(known, left[:, :new]))
        origin[head, place], strength[head, place] = number, values[:new]
        gap[head] = torch.minimum(gap[head], values[new - 1] / cutoff[head])
    return SharedSpan(basis, origin, strength, gap)


def merge_spans(first: SharedSpan, second: SharedSpan, numbered: int, cutoff: Tensor) -> SharedSpan:
    """The span of both, as if the matrices of the second had come after the `numbered` matrices of the first.

    The directions that the first matrices of the second brought span the same as those matrices do, so taking
    them in order finds the very matrix that brought each direction.
    """
    merged = first
    for number in range(1, int(second.origin.max()) + 1 if second.origin.numel() else 1):
        here = second.origin == number
        if bool((here & ~merged.full[:, None]).any()):
            columns = second.basis * (second.strength * here)[:, None]
            merged = extend_span(merged, columns, cutoff, numbered + number)
    return replace(merged, gap=torch.minimum(merged.gap, torch.where(first.full, torch.inf, second.gap)))


def _outside(basis: Tensor, columns: Tensor) -> Tensor:
    """Columns minus their part in the span; twice, since once leaves rounding of the size of the columns."""
    for _ in range(2):
        columns = columns - basis @ (basis.mT @ columns)
    return columns


def _orthonormal(columns: Tensor) -> Tensor:
    """Nearly orthonormal columns made so, each with its largest entry positive, so that its sign is no accident."""
    turned: Tensor = torch.linalg.qr(columns).Q
    largest = turned.gather(0, turned.abs().argmax(0, keepdim=True))
    return turned * torch.where(largest < 0, -1.0, 1.0)
