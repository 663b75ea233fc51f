"""The five classes of attention maps, by a rule that can be read: no classifier has to be trained for it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from identiscope.linalg.allowed import Allowed, AllowedKeys, describe_allowed
from identiscope.linalg.devices import as_numpy
from identiscope.methods.heads.both_maps import apart, both_maps
from identiscope.methods.heads.head_sink import received

CLASSES = ("vertical", "diagonal", "vertical_diagonal", "block", "heterogeneous")
#: What a map may show.
PARTS = ("vertical", "diagonal", "block")
#: From this share above chance on, a map shows a part.
SHOWN = 0.25
#: A column is vertical if its mean weight is at least this, and this many times that of even attention.
_COLUMN, _TIMES = 0.1, 3.0


@dataclass(frozen=True, eq=False)
class HeadClass:
    """The class of every head, and how much of each part its map shows: `scores` [part, 2·head] of vertical, diagonal,
    block, of raw maps and then of those that no rewriting changes; `number` [2·head] of the class."""

    scores: Tensor
    number: Tensor

    def numbers(self) -> dict[str, Tensor]:
        """By name, [head]: the class as a one among five, so that texts can be counted, and scores."""
        flags = {name: (self.number == place).double() for place, name in enumerate(CLASSES)}
        return apart({**flags, **{f"{name}_score": self.scores[place] for place, name in enumerate(PARTS)}})

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Any]]:
        """By name, with their axes; the classes by their names too."""
        words = {
            name: np.array([CLASSES[int(place)] for place in as_numpy(number)], dtype=object)
            for name, number in apart({"class": self.number}).items()
        }
        return {name: (("head",), values) for name, values in {**self.numbers(), **words}.items()}


def head_class(
    attention: Tensor,
    value: Tensor,
    projection: Tensor,
    special: Tensor,
    allowed: Allowed = None,
    precision: torch.dtype | None = None,
    row_sum: Tensor | None = None,
) -> HeadClass:
    """Vertical, diagonal, vertical + diagonal, block or heterogeneous (Kovaleva et al. 2019, §4.1), by a rule.

    A *vertical* column has a mean weight of at least 0.1, and three times that of even attention. The *diagonal* is
    what lies at most one token away and in no such column. *Blocks* are the parts of a text that special tokens divide;
    their cells are those in neither. Each is scored by its weight above that of even attention, as a share of what is
    possible. A map with 0.25 or more of the first two is vertical + diagonal, else it is of the first of the three that
    has as much, and heterogeneous without. `simplex_`: the same of effective_simplex_span.

    >>> eye = torch.eye(12)[None]
    >>> head_class(eye, eye, eye, torch.zeros(12, dtype=torch.bool)).arrays()["class"][1].tolist()
    ['diagonal']
    """
    described = describe_allowed(allowed, attention.shape[1], attention.shape[2], attention.device)
    return classes_of(both_maps(attention, value, projection, described, precision, row_sum), special, described)


def classes_of(maps: Tensor, special: Tensor, described: AllowedKeys) -> HeadClass:
    """The same of raw maps and those that no rewriting changes, [2·head, query, key]."""
    queries, keys = maps.shape[1:]
    even = described.whole.to(maps) / described.count()[:, None]
    columns, usual = (received(one, described).nan_to_num(nan=0.0) for one in (maps, even[None]))
    vertical = ((columns >= _COLUMN) & (columns >= _TIMES * usual)).to(maps)
    parts = _parts(special.to(maps.device)) if queries == keys else None
    weight, chance = _sums(maps, vertical, parts), _sums(even[None], vertical, parts)
    rows = torch.full_like(weight[0], queries)
    left, even_left = rows - weight[:2].sum(0), rows - chance[:2].sum(0)
    # Blocks are told among what is in no column and not near the diagonal; where that is little, so is what it says.
    block = _above(weight[2], chance[2] * left / _or_one(even_left), left) * left / rows
    scores = torch.stack([*(_above(weight[part], chance[part], rows) for part in range(2)), block.clamp(0, 1)])
    shown = scores >= SHOWN
    number = torch.where(shown[2], CLASSES.index("block"), CLASSES.index("heterogeneous"))
    number = torch.where(shown[1], CLASSES.index("diagonal"), number)
    number = torch.where(shown[0], CLASSES.index("vertical"), number)
    number = torch.where(shown[0] & shown[1], CLASSES.index("vertical_diagonal"), number)
    return HeadClass(scores, number)


def _parts(special: Tensor) -> Tensor:
    """The part of the text that each key is in, from 0: a special token after the first ends one."""
    ends = special.clone()
    ends[0] = False
    return ends.long().cumsum(0) - ends.long()


def _sums(maps: Tensor, vertical: Tensor, parts: Tensor | None) -> Tensor:
    """Weight in vertical columns, [head, key] of zeros and ones; elsewhere at most one token away; and elsewhere within
    a part of the text: [3, head], each of maps [head or 1, query, key]."""
    in_columns = (maps.sum(1) * vertical).sum(-1).double()
    if parts is None:
        return torch.stack([in_columns, torch.zeros_like(in_columns), torch.zeros_like(in_columns)])
    count, other = len(parts), 1 - vertical
    diagonals = {offset: maps.diagonal(offset, 1, 2) for offset in range(-1, 2) if abs(offset) < count}
    near = [cells * other[:, max(offset, 0) :][:, : cells.shape[1]] for offset, cells in diagonals.items()]
    within = torch.zeros_like(in_columns)
    if int(parts[-1]) > 0:
        own = torch.nn.functional.one_hot(parts).to(maps)
        # [head, part of the query, key] → the part of the key being the same.
        within = ((own.mT @ maps) * (own.mT * other[:, None])).sum((1, 2)).double()
        beside = {offset: parts[max(-offset, 0) : count - max(offset, 0)] for offset in diagonals}
        keys = {offset: parts[max(offset, 0) :][: len(rows)] for offset, rows in beside.items()}
        for cells, offset in zip(near, diagonals, strict=True):
            within = within - (cells * (beside[offset] == keys[offset])).sum(-1).double()
    return torch.stack([in_columns, torch.stack([cells.sum(-1).double() for cells in near]).sum(0), within])


def _above(weight: Tensor, chance: Tensor, most: Tensor) -> Tensor:
    """Weight above chance, as a share of what could be; 0 without room."""
    room = most - chance
    return torch.where(room > 0, (weight - chance) / _or_one(room), 0.0).clamp(0, 1)


def _or_one(numbers: Tensor) -> Tensor:
    return torch.where(numbers > 0, numbers, 1.0)
