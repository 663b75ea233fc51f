"""What heads look at: mean weights on the previous token, special tokens, copies and others; raw, and what is real."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.linalg.allowed import Allowed, describe_allowed
from identiscope.methods.heads.attended import ATTENDED, AttendedCells, attended_cells
from identiscope.methods.heads.both_maps import both_maps


@dataclass(frozen=True, eq=False)
class HeadAttends:
    """Mean weights [statistic, head] of raw attention, and of the map that no rewriting of the model changes."""

    raw: Tensor
    simplex: Tensor

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Tensor]]:
        """By name, with their axes."""
        both = (("raw", self.raw), ("simplex", self.simplex))
        return {f"{kind}_to_{name}": (("head",), rows[i]) for kind, rows in both for i, name in enumerate(ATTENDED)}


def head_attends(
    attention: Tensor,
    value: Tensor,
    projection: Tensor,
    special: Tensor,
    key_tokens: Sequence[str],
    query_tokens: Sequence[str],
    allowed: Allowed = None,
    precision: torch.dtype | None = None,
    row_sum: Tensor | None = None,
) -> HeadAttends:
    """Mean weight of a query on keys of a kind (Clark et al. 2019, §3), over the queries that may see such a key.

    The next token is key − query = +1, the previous one −1. `cls` is a special token that opens the text, `sep` one
    anywhere else. `duplicate` and `induction` are scores of circuits: weight on earlier copies of the token, and on
    what followed these. `simplex_` is the same of effective_simplex_span, whose weights may be negative.

    >>> attention, value, projection = torch.eye(2)[None].flip(1), torch.eye(2)[None], torch.eye(2)[None]
    >>> found = head_attends(attention, value, projection, torch.zeros(2, dtype=torch.bool), "ab", "ab").arrays()
    >>> float(found["raw_to_next"][1]), float(found["raw_to_self"][1])
    (1.0, 0.0)
    """
    described = describe_allowed(allowed, attention.shape[1], attention.shape[2], attention.device)
    same = list(key_tokens) == list(query_tokens)
    cells = attended_cells(key_tokens, special.to(attention.device), described, same=same)
    return attends_of(both_maps(attention, value, projection, described, precision, row_sum), cells)


def attends_of(both: Tensor, cells: AttendedCells) -> HeadAttends:
    """The same of raw maps and those that no rewriting changes, [2·head, query, key]."""
    raw, simplex = cells.mean(both).chunk(2, -1)
    return HeadAttends(raw, simplex)
