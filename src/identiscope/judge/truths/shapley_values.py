"""Exact Shapley values of a game that is known on every set of its players."""

from math import comb

import numpy as np

from identiscope.judge.truths.orderings import Numbers, Values, every_set


def shapley_values(worth: Values, players: int) -> Numbers:
    """φ_i = Σ_S |S|!·(n − |S| − 1)!/n! · (v(S ∪ i) − v(S)) over sets without i (Shapley 1953).

    >>> shapley_values(lambda kept: kept @ np.array([2.0, 3.0]), 2)
    array([2., 3.])
    """
    sets = every_set(players)
    values = worth(sets)
    sizes = sets.sum(1)
    weights = np.array([1 / (players * comb(players - 1, size)) for size in range(players)])
    shares = np.zeros(players)
    for player in range(players):
        without = np.flatnonzero(~sets[:, player])
        shares[player] = np.sum(weights[sizes[without]] * (values[without + 2**player] - values[without]))
    return shares
