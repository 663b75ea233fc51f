"""The structure W that attention maps share: their mean, cut at a threshold, rows normalised."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.devices import on_cpu
from identiscope.methods.structure.layout import FORBIDDEN

#: h of Cut_l: what a weight below the threshold becomes, 0 ≤ h(x) < x.
Penalty = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class ClassMeans:
    """Sums of attention [head, class] over the cells of each class, and how many cells [class] there were.

    Immutable; `add` maps one by one, `merge` those of other shards. `codes` [class] are sorted. Maps of any device are
    summed there, and the sums kept on the CPU.
    """

    codes: Tensor
    sums: Tensor
    counts: Tensor

    @property
    def means(self) -> Tensor:
        """Mean weight of a cell of each class, [head, class]."""
        return self.sums / self.counts

    def add(self, attention: Tensor, classes: Tensor) -> "ClassMeans":
        """With one more text: maps [head, query, key] and the class of each cell [query, key]."""
        if attention.shape != (len(self.sums), *classes.shape):
            raise InputError(
                f"maps of shape {list(attention.shape)} and classes of shape {list(classes.shape)} were given, expected"
                f" [head={len(self.sums)}, query, key] and [query, key]"
            )
        classes = classes.to(attention.device)
        inside = classes != FORBIDDEN
        codes, place = torch.unique(classes[inside], return_inverse=True)
        counts = torch.bincount(place, minlength=len(codes)).double()
        sums = torch.zeros(len(attention), len(codes), dtype=torch.float64, device=attention.device)
        sums.index_add_(1, place, attention.double()[:, inside])
        return self.merge(ClassMeans(on_cpu(codes), on_cpu(sums), on_cpu(counts)))

    def merge(self, other: "ClassMeans") -> "ClassMeans":
        """Of the texts of both."""
        codes = torch.unique(torch.cat([self.codes, other.codes]))
        sums = torch.zeros(len(self.sums), len(codes), dtype=torch.float64)
        counts = torch.zeros(len(codes), dtype=torch.float64)
        for one in (self, other):
            place = torch.searchsorted(codes, one.codes)
            sums.index_add_(1, place, one.sums)
            counts.index_add_(0, place, one.counts)
        return ClassMeans(codes, sums, counts)


def no_maps(heads: int) -> ClassMeans:
    """No texts yet, of so many heads."""
    return ClassMeans(
        torch.zeros(0, dtype=torch.long), torch.zeros(heads, 0, dtype=torch.float64), torch.zeros(0).double()
    )


def spread(codes: Tensor, values: Tensor, classes: Tensor) -> Tensor:
    """Values [..., class] as a map [..., query, key] by the class of each cell; zero where a class was never seen.

    >>> spread(torch.tensor([3, 7]), torch.tensor([0.5, 1.0]), torch.tensor([[7, 3], [-1, 7]]))
    tensor([[1.0000, 0.5000],
            [0.0000, 1.0000]])
    """
    if not len(codes):
        raise InputError("no maps have been added, so no class has a value")
    place = torch.searchsorted(codes, classes).clamp(max=len(codes) - 1)
    return values[..., place] * (codes[place] == classes)


def cut(attention: Tensor, threshold: float, penalty: Penalty | None = None) -> Tensor:
    """Cut_l (eq. 8): weights of at least l stay, smaller ones become h(x), by default zero.

    >>> cut(torch.tensor([0.1, 0.4, 0.5]), 0.4)
    tensor([0.0000, 0.4000, 0.5000])
    """
    if not threshold >= 0:
        raise InputError(f"a threshold of {threshold} was given, expected l ≥ 0")
    small = torch.zeros_like(attention) if penalty is None else penalty(attention)
    below = attention < threshold
    # h(x) < x leaves nothing for x = 0, where h can only be 0.
    fine = (small >= 0) & ((small < attention) | ((attention == 0) & (small == 0)))
    if not bool(fine[below].all()):
        raise InputError("the penalty h must give 0 ≤ h(x) < x for weights below the threshold (eq. 8)")
    return torch.where(below, small, attention)


def normalised_rows(weights: Tensor) -> Tensor:
    """Rows [..., query, key] divided by their sums; a row of zeros stays."""
    total = weights.sum(-1, keepdim=True)
    return weights / torch.where(total > 0, total, 1.0)


def structure_extraction(attention: Sequence[Tensor], threshold: float, penalty: Penalty | None = None) -> Tensor:
    """W = Norm(Cut_l(mean of the maps)) (section III-B1 of the structure-aware draft), for maps of one size.

    `attention` maps [query, key]. The draft sums them; a threshold such as its l = 0.4 means something on the mean.
    For texts of different lengths add maps to `no_maps` under a layout, and `spread` the means.

    >>> structure_extraction([torch.tensor([[0.8, 0.2]]), torch.tensor([[0.6, 0.4]])], 0.4)
    tensor([[1., 0.]], dtype=torch.float64)
    """
    if not len(attention) or any(one.ndim != 2 or one.shape != attention[0].shape for one in attention):
        raise InputError(
            f"maps of shapes {[list(one.shape) for one in attention]} were given, expected at least one, all [query,"
            " key] of one size; for texts of different lengths extract by relative position or by roles"
        )
    mean = torch.stack([one.double() for one in attention]).mean(0)
    return normalised_rows(cut(mean, threshold, penalty))
