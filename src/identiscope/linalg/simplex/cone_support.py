"""The last digits of a cone program, once it is known which weights of the best row are above zero: compiled.

Where the length that the output may move is used up, with S the keys of those weights, r one of them, B = P_S − p_r,
d = cost_S − cost_r and g = a·P − p_r, the dual of the program is

    the least of cost_r + g·y + ‖y‖ over B·y = d.

Its solution is y = y₀ − g_N·‖y₀‖/√(1 − ‖g_N‖²), where y₀ is the shortest solution of B·y = d and g_N the part of g that
is orthogonal to the rows of B; and the best row solves Bᵀ·x = g + y/‖y‖. Steps towards a boundary lose half of all
digits there; these are linear systems that lose none.
"""

import numpy as np

from identiscope.linalg.compiling import Numbers, compiled

#: How often a key may be taken out or let in.
_CHANGES = 20


@compiled
def on_support(points: Numbers, own: Numbers, cost: Numbers, x: Numbers, z: Numbers, y: Numbers) -> bool:
    """Put the row and the dual vector of the keys where x outweighs z, of both parts, into x and y; false if there is
    none."""
    channels = points.shape[1]
    likely = x * (cost.max() - cost.min()) / z
    inside = likely > 1.0
    for _ in range(_CHANGES):
        chosen = np.nonzero(inside)[0]
        first = chosen[np.argmax(x[chosen])] if len(chosen) else 0
        others = chosen[chosen != first]
        if len(chosen) == 0:
            return False
        if (cost[others] == cost[first]).all():
            # All that is left is worth the same: what the output may move is not used up, and y is zero.
            x[~inside] = 0.0
            x /= x.sum()
            y[:] = 0.0
            return True
        if len(others) > channels:
            return False
        apart = np.empty((channels, len(others)))
        asked = np.empty(len(others))
        for place, key in enumerate(others):
            apart[:, place] = points[key] - points[first]
            asked[place] = cost[key] - cost[first]
        orthogonal, upper = np.linalg.qr(apart)
        orthogonal, upper = np.ascontiguousarray(orthogonal), np.ascontiguousarray(upper)
        turned_back = np.ascontiguousarray(orthogonal.T)
        diagonal = np.abs(np.diag(upper))
        if diagonal.min() <= 1e-12 * diagonal.max():
            # Its values are those of the others together: one of them is enough.
            inside[others[np.argmin(diagonal)]] = False
            continue
        shortest = orthogonal @ np.linalg.solve(np.ascontiguousarray(upper.T), asked)
        way = own - points[first]
        beside = way - orthogonal @ (turned_back @ way)
        free, length = beside @ beside, np.sqrt(shortest @ shortest)
        if free >= 1.0:
            # These keys alone cannot give an output that is near enough: the likeliest of the others is let in.
            nearest = np.argmax(np.where(inside, -1.0, likely))
            if inside[nearest]:
                return False
            inside[nearest] = True
            continue
        y[:] = shortest - beside * (length / np.sqrt(1.0 - free))
        weights = np.linalg.solve(upper, turned_back @ (way + y / np.sqrt(y @ y)))
        x[:] = 0.0
        x[others] = weights
        x[first] = 1.0 - weights.sum()
        if x.min() < 0.0:
            inside[np.argmin(x)] = False
            continue
        # A key outside that is worth more than those inside belongs to them.
        worth = cost - points @ y
        outside = worth - worth[first]
        outside[chosen] = 0.0
        if outside.max() <= 1e-14 * (cost.max() - cost.min()):
            return True
        inside[np.argmax(outside)] = True
    return False
