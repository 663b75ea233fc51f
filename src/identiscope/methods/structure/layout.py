"""Which cells of maps of different texts stand for the same thing: by place, by offset, by role, or by both."""

from typing import Literal, get_args

import torch
from torch import Tensor

from identiscope.errors import InputError

Layout = Literal["absolute", "relative", "roles", "aligned"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)

#: The class of a cell that the query may not see.
FORBIDDEN = -1

_BITS, _MIDDLE = 20, 1 << 19


def token_roles(special: Tensor) -> Tensor:
    """The role of each token: 0 the first; 2k the k-th special token, counted from 0; 2k − 1 a word before it.

    `special` [token] is true for tokens such as [CLS] and [SEP]. A pair of sentences has the roles of
    [CLS] 0, first sentence 1, [SEP] 2, second sentence 3, [SEP] 4. A text whose first token is an ordinary one
    counts it as special: many models rest attention there.

    >>> token_roles(torch.tensor([True, False, False, True, False, True]))
    tensor([0, 1, 1, 2, 3, 4])
    """
    if special.ndim != 1 or special.dtype != torch.bool or not len(special):
        raise InputError(
            f"special flags of shape {list(special.shape)} and dtype {special.dtype} were given, expected booleans"
            " [token]"
        )
    marked = special.clone()
    marked[0] = True
    before = marked.long().cumsum(0)
    return torch.where(marked, 2 * (before - 1), 2 * before - 1)


def cell_classes(
    layout: Layout,
    query_roles: Tensor,
    key_roles: Tensor,
    *,
    allowed: Tensor | None = None,
) -> Tensor:
    """The class of each cell [query, key] under a layout; cells of one class are averaged together.

    `absolute`: each cell alone, for maps of one size. `relative`: by key − query. `roles`: by the roles of query and
    key (`token_roles`). `aligned`: by offset within one sentence, by roles elsewhere. Cells that are not `allowed`
    [query, key] have the class −1.

    >>> roles = torch.tensor([0, 1, 1])
    >>> [class_parts(code) for code in cell_classes("aligned", roles, roles)[1].tolist()]
    [(1, 0, 0), (1, 1, 0), (1, 1, 1)]
    """
    if layout not in LAYOUTS:
        raise InputError(f"layout {layout!r} was given, expected one of {', '.join(LAYOUTS)}")
    queries, keys = len(query_roles), len(key_roles)
    if max(queries, keys) >= _MIDDLE:
        raise InputError(f"a map of {queries} by {keys} was given, expected less than {_MIDDLE} tokens")
    offset = torch.arange(keys) - torch.arange(queries)[:, None]
    nothing = torch.zeros_like(offset)
    rows, columns = query_roles[:, None].expand_as(offset), key_roles.expand_as(offset)
    if layout == "absolute":
        parts = (torch.arange(queries)[:, None].expand_as(offset), torch.arange(keys).expand_as(offset), nothing)
    elif layout == "relative":
        parts = (nothing, nothing, offset)
    elif layout == "roles":
        parts = (rows, columns, nothing)
    else:
        # Odd roles are those of words: within one sentence it is the distance that counts.
        parts = (rows, columns, torch.where((rows == columns) & (rows % 2 == 1), offset, 0))
    codes = (parts[0] << 2 * _BITS) + (parts[1] << _BITS) + parts[2] + _MIDDLE
    return codes if allowed is None else torch.where(allowed, codes, FORBIDDEN)


def class_parts(code: int) -> tuple[int, int, int]:
    """What a class stands for: place or role of the query, of the key, and the offset key − query."""
    if code < 0:
        raise InputError(f"class {code} was given, expected one that is not negative: −1 is that of forbidden cells")
    inside = (1 << _BITS) - 1
    return code >> 2 * _BITS, (code >> _BITS) & inside, (code & inside) - _MIDDLE
