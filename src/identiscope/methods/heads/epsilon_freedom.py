"""How far the strongest weight of each row may go, the output moving by no more than a share of the layer's."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.allowed import Allowed
from identiscope.linalg.copies import spread_rows
from identiscope.methods.equal_keys import Equal
from identiscope.methods.fields import LayerFields
from identiscope.methods.freedom.polytopes import head_rows, output_radii
from identiscope.methods.freedom.strongest import row_widths
from identiscope.methods.heads.numbers import HeadNumbers
from identiscope.methods.maps.factored import RawRows


def epsilon_freedom(
    value: Tensor,
    projection: Tensor,
    raw: RawRows,
    queries: int,
    output_size: Tensor,
    allowed: Allowed = None,
    precision: torch.dtype | None = None,
    copies: Tensor | None = None,
    *,
    epsilon: float = 0.01,
    most_rows: int = 12,
    equal: Equal = "tokens",
) -> HeadNumbers:
    """How far the strongest weight of a row may go, with the same output and with one that moved a little: [head].

    `exact_width` is the mean over rows of most − least that the strongest weight may be with the same output (two
    linear programs), `width` the same with ‖(a' − a)·T‖ ≤ ε·‖o‖, o being the row of the attention block's output, b_O
    included (two cone programs). `merged_exact_width` and `merged_width` are of the strongest token, its copies
    included, and `merged_kept` is the share of its weight that every such row keeps. `gap` is by how much a width may
    be too small at most. Rows that see one key alone have no width, and count.

    epsilon: the share of the attention block's output that the head may move it by. most_rows: of longer texts so many
    rows, spread evenly, stand for all. equal: which keys are copies: those of one token (`tokens`), or those whose rows
    of T are equal at the precision of the pass (`values`).

    >>> from identiscope.methods.maps.factored import rows_of
    >>> rows, value = rows_of(torch.tensor([[[0.75, 0.25]]])), torch.tensor([[[0.0], [1.0]]])
    >>> found = epsilon_freedom(value, torch.ones(1, 1, 1), rows, 1, torch.ones(1), epsilon=0.1)
    >>> round(float(found.numbers["width"]), 6)
    0.2
    """
    if epsilon == 0:
        raise InputError("epsilon=0 was given; expected a share above 0. What is exactly free is `exact_width`.")
    widths = epsilon_widths(
        value, projection, raw, queries, output_size, allowed, precision, copies,
        epsilons=[epsilon], most_rows=most_rows, equal=equal,
    )  # fmt: skip
    return HeadNumbers({name: numbers[0] for name, numbers in widths.items()})


def epsilon_widths(
    value: Tensor,
    projection: Tensor,
    raw: RawRows,
    queries: int,
    output_size: Tensor,
    allowed: Allowed = None,
    precision: torch.dtype | None = None,
    copies: Tensor | None = None,
    *,
    epsilons: Sequence[float],
    most_rows: int = 12,
    equal: Equal = "tokens",
) -> dict[str, Tensor]:
    """The numbers of `epsilon_freedom` for several ε, which share what is known of a row: by name [epsilon, head]."""
    radii = [output_radii(epsilon, output_size) for epsilon in epsilons]
    if most_rows < 1:
        raise InputError(f"most_rows={most_rows} was given; expected at least 1.")
    places = spread_rows(queries, most_rows).tolist()
    found = np.zeros((len(_NAMES), len(epsilons), len(projection)))
    for head in range(len(projection)):
        rows = head_rows(value, projection, raw, head, queries, allowed, precision)
        groups = rows.groups(equal, copies).numpy()
        for query in places:
            polytope = rows.polytope(query)
            exact = row_widths(polytope, groups)
            for place, sizes in enumerate(radii):
                radius = 0.0 if sizes is None else float(sizes[query])
                near = row_widths(replace(polytope, radius=radius), groups)
                known = (near.width, near.merged_width, exact.width, exact.merged_width, near.merged_kept, near.gap)
                found[:, place, head] += np.array(known) / len(places)
    return dict(zip(_NAMES, torch.from_numpy(found).to(value.device), strict=True))


def layer_widths(fields: LayerFields, epsilons: Sequence[float], most_rows: int) -> dict[str, Tensor]:
    """The same of a layer's chosen heads."""
    return epsilon_widths(
        fields.value, fields.projection, fields.raw, fields.queries, fields.output_size, fields.allowed,
        fields.precision, fields.copies, epsilons=epsilons, most_rows=most_rows,
    )  # fmt: skip


_NAMES = ("width", "merged_width", "exact_width", "merged_exact_width", "merged_kept", "gap")
