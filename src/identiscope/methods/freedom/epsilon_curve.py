"""How the freedom of a head grows with how much its output may move."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.allowed import Allowed
from identiscope.linalg.copies import spread_rows
from identiscope.methods.equal_keys import Equal
from identiscope.methods.freedom.alternatives import alternative_farthest
from identiscope.methods.freedom.polytopes import head_rows, output_radii
from identiscope.methods.freedom.strongest import row_widths
from identiscope.methods.maps.factored import RawRows
from identiscope.progress import Progress


@dataclass(frozen=True, eq=False)
class EpsilonCurve:
    """[epsilon, row]: how far rows may go, and how wide the interval of their strongest weight is; the largest gap."""

    epsilons: list[float]
    places: list[int]
    numbers: dict[str, Tensor]

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Tensor]]:
        """By name, with their axes; `place` says which query each row is."""
        arrays = {name: (("epsilon", "row"), values) for name, values in self.numbers.items()}
        return arrays | {"place": (("row",), torch.tensor(self.places))}

    def labels(self) -> dict[str, Sequence[float]]:
        """What was asked for."""
        return {"epsilon": self.epsilons}


def epsilon_curve(
    value: Tensor,
    projection: Tensor,
    raw: RawRows,
    queries: int,
    output_size: Tensor,
    allowed: Allowed = None,
    precision: torch.dtype | None = None,
    copies: Tensor | None = None,
    *,
    epsilons: Sequence[float] = (0.0, 0.001, 0.01, 0.05, 0.1),
    most_rows: int = 12,
    starts: int = 1,
    seed: int = 0,
    equal: Equal = "tokens",
    progress: Progress | None = None,
) -> EpsilonCurve:
    """How far rows of a head may go, and between which bounds their strongest weight, against ε: axes epsilon and row.

    Rows a' count with ‖(a' − a)·T‖ ≤ ε·‖o‖, o being the row of the attention block's output, b_O included; ε = 0 is the
    same output. `width` is most − least of the strongest weight, `merged_width` of the strongest token with its copies,
    `reach` the total variation of the farthest row that was found, a lower bound, and `merged_reach` the same with
    copies added up. `gap` is by how much a width may be too small at most.

    epsilons: shares of the attention block's output. most_rows: of longer texts so many rows, spread evenly. starts:
    how many searches for the farthest row are made beside the first. seed: of these. equal: which keys are copies:
    those of one token (`tokens`), or those whose rows of T are equal at the precision of the pass (`values`).

    >>> from identiscope.methods.maps.factored import rows_of
    >>> rows, value = rows_of(torch.tensor([[[0.75, 0.25]]])), torch.tensor([[[0.0], [1.0]]])
    >>> found = epsilon_curve(value, torch.ones(1, 1, 1), rows, 1, torch.ones(1), epsilons=(0.0, 0.1))
    >>> found.numbers["reach"].round(decimals=6).tolist()
    [[0.0], [0.1]]
    """
    if not len(epsilons) or most_rows < 1:
        raise InputError(f"epsilons={list(epsilons)} and most_rows={most_rows} were given; expected at least one each.")
    places = spread_rows(queries, most_rows).tolist()
    numbers = np.zeros((5, len(epsilons), len(places)))
    for at, epsilon in enumerate(epsilons):
        radii = output_radii(epsilon, output_size)
        rows = head_rows(value, projection, raw, 0, queries, allowed, precision, radii)
        groups = rows.groups(equal, copies)
        for place, query in enumerate(places):
            if progress is not None:
                progress(at * len(places) + place, len(epsilons) * len(places))
            polytope = rows.polytope(query)
            if polytope.fixed:
                continue
            widths = row_widths(polytope, groups.numpy())
            far = [
                alternative_farthest(rows, query=query, starts=starts, seed=seed, groups=merged).row.numpy()
                for merged in (None, groups)
            ]
            change, merged_change = (other[polytope.allowed] - polytope.row for other in far)
            merged_change = np.bincount(groups.numpy()[polytope.allowed], weights=merged_change)
            reach, merged_reach = 0.5 * np.abs(change).sum(), 0.5 * np.abs(merged_change).sum()
            numbers[:, at, place] = widths.width, widths.merged_width, reach, merged_reach, widths.gap
    names = ("width", "merged_width", "reach", "merged_reach", "gap")
    return EpsilonCurve(
        [float(one) for one in epsilons], places, dict(zip(names, torch.from_numpy(numbers), strict=True))
    )
