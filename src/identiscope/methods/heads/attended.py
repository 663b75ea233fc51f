"""The cells of a map that published statistics of heads add up: the token before, special tokens, copies and others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.linalg.allowed import AllowedKeys
from identiscope.methods.selections import RELATIVE
from identiscope.methods.tokens.types import types_by_text

#: What a query may look at → in words. Each is a linear statistic of a row, and so has an interval.
ATTENDED: Mapping[str, str] = {
    **{name: f"the {name} token" for name in ("previous", "next")},
    "self": "the token itself",
    "first": "the first token of the text",
    "special": "special tokens",
    "cls": "a special token that opens the text ([CLS])",
    "sep": "special tokens elsewhere ([SEP])",
    "punctuation": "punctuation",
    "point": "full stops and commas",
    "other": "tokens that are neither special nor punctuation",
    "duplicate": "earlier copies of the token",
    "induction": "tokens that followed an earlier copy of it",
}


@dataclass(frozen=True, eq=False)
class AttendedCells:
    """Which cells count for each statistic of `ATTENDED`: cells [statistic, query, key] of zeros and ones in float32,
    and how many rows have any, rows [statistic]."""

    cells: Tensor
    rows: Tensor

    def mean(self, maps: Tensor) -> Tensor:
        """The mean weight on the cells of each statistic over the rows that have such, [statistic, head]; NaN without
        any. maps [head, query, key]."""
        sums = (self.cells.to(maps).flatten(1) @ maps.flatten(1).mT).double()
        return torch.where(self.rows > 0, 1.0, torch.nan)[:, None] * sums / self.rows.clamp(min=1)[:, None]


def attended_cells(tokens: Sequence[str], special: Tensor, allowed: AllowedKeys, *, same: bool) -> AttendedCells:
    """The cells of a text, where its special tokens [key] are.

    same: whether queries and keys are of one text; else what is said of a query's place has no cell. A duplicate of
    token i is j < i with the same token; what followed an earlier copy of it is k ≤ i with token k − 1 a duplicate of i
    (Olsson et al. 2022; Wang et al. 2023). Special tokens have no duplicates.

    >>> from identiscope.linalg.allowed import causal
    >>> found = attended_cells("aba", torch.zeros(3, dtype=torch.bool), causal(3, 3), same=True)
    >>> found.cells[list(ATTENDED).index("induction")].int().tolist()
    [[0, 0, 0], [0, 0, 0], [0, 1, 0]]
    """
    device, special = special.device, special.cpu()
    keys = len(tokens)
    place = torch.arange(keys)
    of_keys = {name: torch.tensor(flags) for name, flags in types_by_text(tokens, special.tolist()).items()}
    of_keys |= {"first": place == 0, "cls": special & (place == 0), "sep": special & (place > 0)}
    cells = torch.zeros(len(ATTENDED), allowed.queries, keys, dtype=torch.bool)
    for number, name in enumerate(ATTENDED):
        if name in of_keys:
            cells[number] = of_keys[name]
        elif same and name in RELATIVE:
            cells[number] = place == place[:, None] + RELATIVE[name]
        elif same:
            cells[number] = _copies(tokens, special, followed=name == "induction")
    cells &= allowed.whole.cpu()
    return AttendedCells(cells.float().to(device), cells.any(-1).sum(-1).double().to(device))


def _copies(tokens: Sequence[str], special: Tensor, *, followed: bool) -> Tensor:
    """[query, key]: earlier copies of a token, or what followed them."""
    groups: dict[str, int] = {}
    numbers = torch.tensor([groups.setdefault(token, len(groups)) for token in tokens])
    earlier = ((numbers == numbers[:, None]) & ~special).tril(-1)
    if not followed:
        return earlier
    after = torch.zeros_like(earlier)
    after[:, 1:] = earlier[:, :-1]
    return after
