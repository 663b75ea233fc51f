"""The roles that heads are given by their maps: how sure they are of one key, where that is, how broad they are."""

import math
from itertools import pairwise

import torch
from torch import Tensor

from identiscope.linalg.allowed import Allowed, AllowedKeys, describe_allowed
from identiscope.methods.heads.both_maps import apart, both_maps
from identiscope.methods.heads.numbers import HeadNumbers

#: Where the strongest key of a row is looked for: name → key − query.
OFFSETS = {"two_before": -2, "previous": -1, "self": 0, "next": 1, "two_after": 2}
#: A head is positional if its strongest key is at one offset in so many of the rows (Voita et al. 2019, §5.1).
POSITIONAL = 0.9


def head_role(
    attention: Tensor,
    value: Tensor,
    projection: Tensor,
    special: Tensor,
    allowed: Allowed = None,
    precision: torch.dtype | None = None,
    row_sum: Tensor | None = None,
) -> HeadNumbers:
    """Entropy (Clark et al. 2019, §3.3) and confidence (Voita et al. 2019, §4) of rows, and where their maximum is.

    `entropy`: mean over rows, in bits; `entropy_first`: of the row of a special token that opens the text ([CLS]), NaN
    where there is none. `confidence`: the mean of the largest weight of a row, special tokens left out as queries and
    as keys. `peak_…`: the share of rows of ordinary tokens, with more than one key and one at this offset, whose
    largest weight is there; a head with 0.9 at one offset is called positional. `simplex_`: the same of
    effective_simplex_span, whose weights may be negative; there is no entropy of such.

    >>> eye, none = torch.eye(4)[None], torch.zeros(4, dtype=torch.bool)
    >>> found = head_role(eye, eye, eye, none).numbers
    >>> float(found["confidence"]), float(found["peak_self"]), round(float(found["simplex_peak_self"]), 2)
    (1.0, 1.0, 1.0)
    """
    described = describe_allowed(allowed, attention.shape[1], attention.shape[2], attention.device)
    return roles_of(both_maps(attention, value, projection, described, precision, row_sum), special, described)


def roles_of(both: Tensor, special: Tensor, allowed: AllowedKeys) -> HeadNumbers:
    """The same of raw maps and those that no rewriting changes, [2·head, query, key]."""
    attention = both[: len(both) // 2]
    queries, keys = attention.shape[1:]
    special = special.to(attention.device)
    # Of no weight: the logarithm of the least number there is, times zero.
    logarithms = attention.clamp(min=torch.finfo(attention.dtype).tiny).log_()
    bits = -logarithms.mul_(attention).sum(-1).double() / math.log(2.0)
    nothing = bits.new_full((len(attention),), torch.nan)
    numbers = {
        "entropy": bits.mean(-1),
        "entropy_first": bits[:, 0] if queries == keys and bool(special[0]) else nothing,
    }
    return HeadNumbers(numbers | apart(_of_largest(both, special, allowed)))


def _of_largest(maps: Tensor, special: Tensor, allowed: AllowedKeys) -> dict[str, Tensor]:
    """How large the largest weight of a row is, and how often it is at each offset, [head]."""
    queries, keys = maps.shape[1:]
    same = queries == keys
    rows = ~special if same else torch.ones(queries, dtype=torch.bool, device=maps.device)
    nothing = maps.new_full((len(maps),), torch.nan, dtype=torch.float64)
    if not allowed.everything:
        # A row with negative weights may be below what it does not see.
        maps = maps.masked_fill(~allowed.whole, -torch.inf)
    largest = _largest_ordinary(maps, special)
    seen = rows & (allowed.whole & ~special).any(-1)
    numbers = {"confidence": largest[:, seen].double().mean(-1) if bool(seen.any()) else nothing}
    place, offsets = torch.arange(queries, device=maps.device), torch.tensor([*OFFSETS.values()], device=maps.device)
    at = place + offsets[:, None]
    there = (rows & (allowed.count() > 1)) & (at >= 0) & (at < keys)
    there &= allowed.whole.gather(1, at.clamp(0, keys - 1).T).T
    apart = maps.argmax(-1) - place
    hits = ((apart[:, None] == offsets[:, None]) & there).sum(-1).double() / there.sum(-1)
    return numbers | {f"peak_{name}": hits[:, one] if same else nothing for one, name in enumerate(OFFSETS)}


def _largest_ordinary(maps: Tensor, special: Tensor) -> Tensor:
    """The largest weight of each row on a key that is not special, [head, query]; −∞ without such a key."""
    largest = maps.new_full(maps.shape[:2], -torch.inf)
    # Consecutive keys at a time: none is copied.
    ends = [-1, *torch.where(special)[0].tolist(), len(special)]
    for before, after in pairwise(ends):
        if after - before > 1:
            largest = torch.maximum(largest, maps[..., before + 1 : after].amax(-1))
    return largest
