"""Noise on an attention map that keeps its structure, breaks it, or does neither on purpose; equal in size."""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from identiscope.errors import InputError

Kind = Literal["keep", "break", "any"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, eq=False)
class Perturbation:
    """A map [query, key] with noise of a kind, its Frobenius distance from the original, and the farthest it can be."""

    attention: Tensor
    kind: Kind
    size: float
    reach: float


def perturbation_target(
    attention: Tensor,
    structure: Tensor,
    kind: Kind,
    *,
    allowed: Tensor | None = None,
    generator: torch.Generator,
) -> Tensor:
    """Where noise of a kind leads: a map [query, key] with the row sums of `attention`, nowhere negative.

    `structure` [query, key] is true on the cells of the structure (where W > 0). `keep`: those cells stay as they are,
    and the weight elsewhere is dealt out anew among the cells elsewhere. `break`: the weight on the structure moves to
    cells elsewhere. `any`: each row is dealt out anew over all `allowed` cells. Every point between the map and its
    target is again not negative and has the same row sums. A row with no cell to move to stays.

    >>> attention = torch.tensor([[0.7, 0.2, 0.1]])
    >>> structure = torch.tensor([[True, False, False]])
    >>> made = perturbation_target(attention, structure, "keep", generator=torch.Generator().manual_seed(0))
    >>> round(float(made[0, 0]), 6), round(float(made.sum()), 6)
    (0.7, 1.0)
    """
    if kind not in KINDS:
        raise InputError(f"kind {kind!r} was given, expected one of {', '.join(KINDS)}")
    if structure.shape != attention.shape or structure.dtype != torch.bool or attention.ndim != 2:
        raise InputError(
            f"attention of shape {list(attention.shape)} and structure of shape {list(structure.shape)} and dtype"
            f" {structure.dtype} were given, expected [query, key] and booleans of the same shape"
        )
    weights = attention.double()
    inside = torch.ones_like(structure) if allowed is None else allowed
    elsewhere = inside & ~structure
    drawn = torch.empty_like(weights).exponential_(generator=generator)
    # A power between even and nearly one-hot: targets near and far, as noise comes.
    drawn = drawn ** float(torch.empty(1).uniform_(0.5, 3.0, generator=generator))
    if kind == "any":
        return _dealt(weights, drawn, inside, weights.sum(1))
    if kind == "keep":
        dealt = _dealt(weights, drawn, elsewhere, (weights * elsewhere).sum(1))
        return torch.where(elsewhere, dealt, weights)
    moved = _dealt(torch.zeros_like(weights), drawn, elsewhere, (weights * structure).sum(1))
    can = elsewhere.any(1, keepdim=True)
    return torch.where(can & structure, 0.0, weights) + moved


def _dealt(weights: Tensor, drawn: Tensor, cells: Tensor, totals: Tensor) -> Tensor:
    """Row totals dealt out over cells in proportion to what was drawn; rows without a cell keep their weights."""
    shares = drawn * cells
    dealt = shares / shares.sum(1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny) * totals[:, None]
    return torch.where(cells.any(1, keepdim=True), dealt, weights)


def perturb(attention: Tensor, target: Tensor, kind: Kind, size: float) -> Perturbation:
    """The map moved towards a target until it is `size` away in Frobenius norm.

    >>> made = perturb(torch.eye(2), torch.eye(2).flip(0), "any", 1.0)
    >>> made.attention, made.reach
    (tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]], dtype=torch.float64), 2.0)
    """
    weights = attention.double()
    direction = target.double() - weights
    reach = float(torch.linalg.matrix_norm(direction))
    if not 0 <= size <= reach:
        raise InputError(
            f"a size of {size:.3g} was asked for; this target is {reach:.3g} away in Frobenius norm, and beyond it"
            " weights would become negative"
        )
    moved = weights + (size / reach if reach > 0 else 0.0) * direction
    return Perturbation(moved, kind, size, reach)


def equal_perturbations(
    attention: Tensor,
    structure: Tensor,
    *,
    share: float = 1.0,
    kinds: tuple[Kind, ...] = KINDS,
    allowed: Tensor | None = None,
    generator: torch.Generator,
) -> tuple[Perturbation, ...] | None:
    """One perturbation of each kind, all of the same Frobenius size: a `share` of what the least of them can reach.

    None where one of them cannot move at all: no weight off the structure, or no cell off it.
    """
    if not 0 < share <= 1:
        raise InputError(f"a share of {share} was given, expected one above 0 and at most 1")
    targets = {
        kind: perturbation_target(attention, structure, kind, allowed=allowed, generator=generator) for kind in kinds
    }
    weights = attention.double()
    size = share * min(float(torch.linalg.matrix_norm(target - weights)) for target in targets.values())
    if not size > 0:
        return None
    return tuple(perturb(weights, target, kind, size) for kind, target in targets.items())
