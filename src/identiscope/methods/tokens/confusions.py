"""Which tokens are lost, and what they are taken for: a rate alone explains nothing."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.methods.tokens.identification import Identified

#: What a lost token can be taken for, the first that applies.
REASONS = ("same type elsewhere", "special token", "previous token", "next token", "2 or 3 away", "further away")


@dataclass(frozen=True)
class GroupRate:
    """The rate of one group of tokens."""

    group: str
    tokens: int
    identified: int

    @property
    def rate(self) -> float:
        """The share identified."""
        return self.identified / self.tokens


def rates_by_group(looked_up: Identified, groups: Sequence[str | None]) -> list[GroupRate]:
    """The rate of each group, the largest group first. groups: a name for every token of the corpus; None for none.

    >>> rows, right = torch.tensor([0, 1]), torch.tensor([True, False])
    >>> rates_by_group(Identified(rows, rows, right, ~right), ["DT", "DT"])
    [GroupRate(group='DT', tokens=2, identified=1)]
    """
    tokens: Counter[str] = Counter()
    identified: Counter[str] = Counter()
    for row, right in zip(looked_up.rows.tolist(), looked_up.identified.tolist(), strict=True):
        group = groups[row]
        if group is not None:
            tokens[group] += 1
            identified[group] += right
    return [GroupRate(group, count, identified[group]) for group, count in tokens.most_common()]


def frequency_groups(types: Sequence[str]) -> list[str]:
    """How often each token's type occurs among the tokens: once, 2–3, 4–7, … (powers of two).

    >>> frequency_groups(["a", "b", "a"])
    ['2–3', '1', '2–3']
    """
    counts = Counter(types)
    names = {}
    for kind, count in counts.items():
        low = 1 << (count.bit_length() - 1)
        names[kind] = "1" if low == 1 else f"{low}–{2 * low - 1}"
    return [names[kind] for kind in types]


def position_groups(positions: Tensor, width: int = 8) -> list[str]:
    """The place of each token in its sentence, in steps of `width`.

    >>> position_groups(torch.tensor([0, 9]))
    ['0–7', '8–15']
    """
    if width < 1:
        raise InputError(f"positions in steps of {width} were asked for; expected at least 1.")
    return [f"{place - place % width}–{place - place % width + width - 1}" for place in positions.tolist()]


def reasons(looked_up: Identified, types: Sequence[str], special: Tensor) -> dict[str, int]:
    """How many lost tokens were taken for a token of each kind of REASONS."""
    counts = dict.fromkeys(REASONS, 0)
    lost = ~looked_up.identified
    for row, taken in zip(looked_up.rows[lost].tolist(), looked_up.nearest[lost].tolist(), strict=True):
        away = taken - row
        if types[taken] == types[row]:
            counts["same type elsewhere"] += 1
        elif special[taken]:
            counts["special token"] += 1
        elif abs(away) == 1:
            counts["next token" if away == 1 else "previous token"] += 1
        else:
            counts["2 or 3 away" if abs(away) <= 3 else "further away"] += 1
    return counts


def confusions(looked_up: Identified, types: Sequence[str], most: int = 20) -> list[tuple[str, str, int]]:
    """The commonest pairs (token, what it was taken for, how often), of different types."""
    lost = ~looked_up.identified
    pairs = Counter(
        (types[row], types[taken])
        for row, taken in zip(looked_up.rows[lost].tolist(), looked_up.nearest[lost].tolist(), strict=True)
        if types[row] != types[taken]
    )
    return [(one, other, count) for (one, other), count in pairs.most_common(most)]


@dataclass(frozen=True, eq=False)
class AgainstContribution:
    """Identifiability against self contribution: bins of equal size, from little contribution to much.

    auc: how often an identified token has the larger self contribution, of all pairs of an identified and a lost
    one (a tie counts half); 0.5 means that contribution says nothing. NaN if none or all are lost.
    """

    low: Tensor
    high: Tensor
    rate: Tensor
    tokens: Tensor
    auc: float


def against_contribution(looked_up: Identified, contribution: Tensor, *, bins: int = 10) -> AgainstContribution:
    """Relate identification to how much of a token is still its own: the open question of the paper's section 7.

    contribution: self contribution c_jj of every token of the corpus, from Hidden Token Attribution at the layer.
    """
    if bins < 1 or contribution.dim() != 1 or len(contribution) <= int(looked_up.rows.max()):
        raise InputError(
            f"contributions of shape {tuple(contribution.shape)} and {bins} bins were given; expected one contribution"
            " for each token of the corpus, and at least one bin."
        )
    own = contribution[looked_up.rows].double()
    order = torch.argsort(own, stable=True)
    parts = [part for part in torch.tensor_split(order, bins) if len(part)]
    right = looked_up.identified.double()
    return AgainstContribution(
        torch.stack([own[part].min() for part in parts]),
        torch.stack([own[part].max() for part in parts]),
        torch.stack([right[part].mean() for part in parts]),
        torch.tensor([len(part) for part in parts]),
        _auc(own, looked_up.identified),
    )


def _auc(values: Tensor, positive: Tensor) -> float:
    """From ranks (Mann–Whitney), equal values sharing their mean rank."""
    above, below = int(positive.sum()), int((~positive).sum())
    if not above or not below:
        return float("nan")
    _, which, counts = torch.unique(values, return_inverse=True, return_counts=True)
    ranks = (counts.cumsum(0) - (counts - 1) / 2).double()[which]
    return float((ranks[positive].sum() - above * (above + 1) / 2) / (above * below))
