"""The roles that heads are given by their raw maps: how sure they are of one key, where that is, how broad they are."""

import math

import torch
from torch import Tensor

from identiscope.linalg.allowed import Allowed, describe_allowed
from identiscope.methods.heads.numbers import HeadNumbers

#: Where the strongest key of a row is looked for: name → key − query.
OFFSETS = {"two_before": -2, "previous": -1, "self": 0, "next": 1, "two_after": 2}
#: A head is positional if its strongest key is at one offset in so many of the rows (Voita et al. 2019, §5.1).
POSITIONAL = 0.9


def head_role(attention: Tensor, special: Tensor, allowed: Allowed = None) -> HeadNumbers:
    """Entropy (Clark et al. 2019, §3.3) and confidence (Voita et al. 2019, §4) of rows, and where their maximum is.

    `entropy`: mean over rows, in bits; `entropy_first`: of the row of a special token that opens the text ([CLS]), NaN
    where there is none. `confidence`: the mean of the largest weight of a row, special tokens left out as queries and
    as keys. `peak_…`: the share of rows of ordinary tokens, with more than one key and one at this offset, whose
    largest weight is there; a head with 0.9 at one offset is called positional.

    >>> found = head_role(torch.eye(4)[None], torch.zeros(4, dtype=torch.bool)).numbers
    >>> float(found["confidence"]), float(found["peak_self"]), float(found["peak_next"])
    (1.0, 1.0, 0.0)
    """
    queries, keys = attention.shape[1:]
    described = describe_allowed(allowed, queries, keys, attention.device)
    special = special.to(attention.device)
    same = queries == keys
    # Of no weight: the logarithm of the least number there is, times zero.
    logarithms = attention.clamp(min=torch.finfo(attention.dtype).tiny).log_()
    bits = -logarithms.mul_(attention).sum(-1).double() / math.log(2.0)
    rows = ~special if same else torch.ones(queries, dtype=torch.bool, device=attention.device)
    nothing = bits.new_full((len(attention),), torch.nan)
    some = bool(rows.any()) and not bool(special.all())
    sure = (attention * ~special).amax(-1)[:, rows].double().mean(-1) if some else nothing
    numbers = {
        "entropy": bits.mean(-1),
        "entropy_first": bits[:, 0] if same and bool(special[0]) else nothing,
        "confidence": sure,
    }
    strongest = attention.argmax(-1)
    place = torch.arange(queries, device=attention.device)
    wide = rows & (described.count() > 1)
    for name, offset in OFFSETS.items():
        numbers[f"peak_{name}"] = nothing
        if same and abs(offset) < keys:
            at = place[max(-offset, 0) : queries - max(offset, 0)]
            there = wide[at] & described.whole.diagonal(offset)
            if bool(there.any()):
                numbers[f"peak_{name}"] = ((strongest[:, at] == at + offset) & there).sum(-1).double() / there.sum()
    return HeadNumbers(numbers)
