"""Attention as far as a corpus can use it: projection on the shared subspace R instead of one text's own."""

from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.allowed import Allowed, describe_allowed
from identiscope.linalg.rank.subspaces import orthogonal_part, restricted


def effective_structural(attention: Tensor, basis: Tensor, *, allowed: Allowed = None) -> Tensor:
    """proj_R(A) of one head [query, key], R given by an orthonormal `basis` [key, direction].

    The basis is `SharedSubspace.basis(head)`, hard or cut at an eigenvalue. Two maps are structurally equivalent
    iff these projections are equal (section III-B of the structure-aware draft). Where rows have different
    `allowed` keys, each is projected on R restricted to its own keys: for the hard R that is the span of the
    restricted T_i, since restricting is linear.

    >>> effective_structural(torch.tensor([[0.75, 0.25]]), torch.tensor([[1.0], [1.0]]) / 2**0.5)
    tensor([[0.5000, 0.5000]], dtype=torch.float64)
    """
    if attention.ndim != 2 or basis.ndim != 2 or len(basis) != attention.shape[1]:
        raise InputError(
            f"attention of shape {list(attention.shape)} and a basis of shape {list(basis.shape)} were given, expected"
            " [query, key] and [key, direction] of the same keys; texts of another length live in another space"
        )
    rows, directions = attention.double(), basis.double()
    described = describe_allowed(allowed, len(attention), len(basis), attention.device)
    if described.everything:
        return rows @ directions @ directions.mT
    out = torch.zeros_like(rows)
    firsts, set_of_row = described.distinct()
    for number, first in enumerate(firsts.tolist()):
        inside, here = described.row(first), set_of_row == number
        own = restricted(directions, inside)
        out[here.nonzero(), inside.nonzero()[:, 0]] = rows[here][:, inside] @ own @ own.mT
    return out


@dataclass(frozen=True, eq=False)
class Ignored:
    """What one sample ignores of R because of its own embeddings.

    `share` [direction] of each direction of R that lies outside col(T): 0 it is used, 1 wholly ignored.
    `dimension` is that of R ∩ col(T)^⊥, `directions` [key, dimension] an orthonormal basis of it, and
    `attention` the share of the map's squared weight that lies there: it would count for other texts, but not here.
    """

    share: Tensor
    dimension: int
    directions: Tensor
    attention: float


def ignored_directions(attention: Tensor, basis: Tensor, own: Tensor) -> Ignored:
    """R minus ker(T')^⊥ of one sample: the draft's comparison of R with one text, the way round that says something.

    `attention` [query, key], `basis` [key, direction] of R, `own` [key, direction] of col(T), both orthonormal
    (`own` may have columns of zeros). For a sample that R was built from, col(T) ⊂ R, so that the draft's
    ker(T')^⊥ \\ R is empty; what R has beyond col(T) is what this sample ignores.

    >>> found = ignored_directions(torch.eye(3), torch.eye(3), torch.eye(3, 1))
    >>> found.share, found.dimension
    (tensor([0., 1., 1.], dtype=torch.float64), 2)
    """
    shared, used = basis.double(), own.double()
    if len(shared) != len(used) or attention.shape[-1] != len(shared):
        raise InputError(
            f"attention over {attention.shape[-1]} keys, a basis over {len(shared)} and col(T) over {len(used)} were"
            " given, expected the same keys"
        )
    outside = shared - used @ (used.mT @ shared)
    directions = orthogonal_part(shared, used)
    total = float(attention.double().square().sum())
    inside = float((attention.double() @ directions).square().sum())
    return Ignored(
        share=outside.square().sum(0).clamp(0, 1),
        dimension=directions.shape[1],
        directions=directions,
        attention=inside / total if total > 0 else 0.0,
    )
