"""How far the strongest weight of a row may go, by itself and with its copies: what freedom by ε is told in."""

from dataclasses import dataclass

import numpy as np

from identiscope.linalg.simplex.polytope import RowPolytope


@dataclass(frozen=True)
class RowWidths:
    """Most − least of a row's strongest weight, and of its strongest token with all copies; the share of that token's
    weight that every row keeps; and by how much both widths together may be too small at most."""

    width: float
    merged_width: float
    merged_kept: float
    gap: float


def row_widths(polytope: RowPolytope, groups: np.ndarray) -> RowWidths:
    """Of all rows in a polytope; groups: the number of the token of each key [key]. A row that cannot be another has no
    width."""
    row, own = polytope.row, groups[polytope.allowed]
    if polytope.fixed or row.sum() <= 0:
        return RowWidths(0.0, 0.0, 1.0, 0.0)
    token = (own == int(np.argmax(np.bincount(own, weights=row)))).astype(np.float64)
    key = np.zeros_like(row)
    key[int(np.argmax(row))] = 1.0
    least, most, gap = _ends(polytope, key)
    merged_least, merged_most, merged_gap = _ends(polytope, token)
    return RowWidths(most - least, merged_most - merged_least, merged_least / float(token @ row), gap + merged_gap)


def _ends(polytope: RowPolytope, cost: np.ndarray) -> tuple[float, float, float]:
    """The least and the most that some keys weigh together, and by how much these may be off together."""
    least, gap_of_least = polytope.best_with_gap(cost)
    most, gap_of_most = polytope.best_with_gap(-cost)
    return float(cost @ least), float(cost @ most), gap_of_least + gap_of_most
