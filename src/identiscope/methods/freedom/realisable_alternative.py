"""Another attention map with the same output that some query and key vectors really produce."""

from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.errors import InputError, MathError
from identiscope.linalg.allowed import Allowed, describe_allowed
from identiscope.linalg.distances import jensen_shannon, total_variation
from identiscope.linalg.rank.projection_factor import ProjectionFactor
from identiscope.linalg.simplex.constraints import head_constraints
from identiscope.linalg.simplex.logit_family import move_logits
from identiscope.linalg.simplex.maximum_entropy import maximum_entropy_rows
from identiscope.linalg.simplex.polytope import Certificate, certify
from identiscope.linalg.tolerance import NEWTON_ACCEPTED
from identiscope.methods.maps.effective import as_factor
from identiscope.methods.maps.factored import RawRows, raw_block


@dataclass(frozen=True)
class RealisableAlternative:
    """An attention map [query, key] that is a softmax of `query`·`key`ᵀ over the allowed keys, row by row.

    `query` is [query, rank] and `key` [key, rank], rank ≤ d_k; rows are scaled to the row sums of the raw map.
    `solved` [query] is false where the output could not be met to 1e-10 (a row on the edge of what its keys
    can produce). Distances are [query].
    """

    attention: Tensor
    query: Tensor
    key: Tensor
    certificate: Certificate
    solved: Tensor
    total_variation: Tensor
    jensen_shannon: Tensor


def realisable_alternative(
    value: Tensor,
    projection: Tensor | ProjectionFactor,
    raw: RawRows,
    *,
    head: int,
    key_channels: int,
    queries: int | None = None,
    allowed: Allowed = None,
    precision: torch.dtype | None = None,
    seed: int = 0,
) -> RealisableAlternative:
    """A map A' with A'·[T,1] = A·[T,1] whose logits have rank at most d_k = `key_channels`.

    A' = softmax(Q·Kᵀ) for some Q, K with d_k columns if and only if log A' minus its row means has rank at
    most d_k: the softmax forgets a constant per row, and only that. (The bound is on the row-centred logits;
    A' itself is usually of full rank.)

    Where the centred T has rank ≤ d_k, the map of maximum entropy is one: its logits are linear in the rows
    of T, so T serves as keys. Otherwise queries and keys are moved together from those of A along the
    solutions of the same output, of which there are generically d_k·(2n−1−d_k) − n·rank dimensions.

    >>> from identiscope.methods.maps.factored import rows_of
    >>> attention = torch.tensor([[[0.5, 0.25, 0.25]]])
    >>> values, projection = torch.ones(1, 3, 1), torch.ones(1, 1, 1)
    >>> realisable_alternative(values, projection, rows_of(attention), head=0, key_channels=1, queries=1).attention
    tensor([[0.3333, 0.3333, 0.3333]], dtype=torch.float64)
    """
    factor, keys = as_factor(projection), value.shape[1]
    described = describe_allowed(allowed, keys if queries is None else queries, keys, value.device)
    shape = (len(factor.triangle), described.queries, keys)
    rows = raw_block(raw, slice(0, described.queries), shape)[head]
    if key_channels < 1:
        raise InputError(f"key_channels={key_channels} was given, expected at least 1")
    constraint = head_constraints(value, factor, head, precision)
    total = rows.sum(1)
    inside = None if described.everything else described.block(slice(0, described.queries))
    # The ones are in the span of the basis; what remains without them is the centred T.
    centred = constraint.basis - constraint.basis.mean(0)
    left, sizes, _ = torch.linalg.svd(centred, full_matrices=False)
    basis = left[:, sizes > 0.5]
    if basis.shape[1] <= key_channels:
        solution = maximum_entropy_rows(basis, rows @ basis, total, inside)
        query, key, attention, residual = solution.dual, basis, solution.rows, solution.residual
    else:
        if inside is not None or bool((rows <= 0).any()):
            raise MathError(
                f"the centred T has rank {basis.shape[1]}, more than the {key_channels} key channels, and the rows "
                "are masked or have zero weights; only full positive maps can be moved here"
            )
        query, key, attention, residual = move_logits(basis, rows, key_channels, seed)
    return RealisableAlternative(
        attention,
        query,
        key,
        certify(constraint.rows, rows, attention),
        residual <= NEWTON_ACCEPTED * total,
        total_variation(rows, attention),
        jensen_shannon(rows, attention),
    )
