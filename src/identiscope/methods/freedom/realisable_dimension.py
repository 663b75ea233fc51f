"""How much room a small d_k leaves: the dimension of the maps with the same output that a softmax can produce."""

from identiscope.errors import InputError


def realisable_dimension(keys: int, simplex_null_dimension: float, key_channels: int) -> float:
    """Expected dimension of the maps of one head, n×n, with the same output and logits of rank at most d_k.

    A head may change its map by n·k numbers without a trace in the output, k = dim LN([T,1]) for each of n rows, among
    the n·(n − 1) that keep row sums. But it makes its logits as a product over d_k channels, and up to a constant a
    row those have r·(2n − 1 − r) degrees of freedom, r = min(d_k, n − 1) (Bhardwaj et al. 2021; the bound is on the
    logits, row means taken out, and not on the map itself). Two such sets in general position meet in

        max(0, n·k + r·(2n − 1 − r) − n·(n − 1))

    dimensions: 0 means that near this map no other that the head could produce gives the same output. This is counted,
    not measured: it holds for weights in general position. No mask is assumed. k may be a mean over heads or texts.

    >>> realisable_dimension(30, 13, 16), realisable_dimension(30, 13, 2)
    (208, 0)
    """
    if keys < 1 or key_channels < 1 or not 0 <= simplex_null_dimension <= max(keys - 1, 0):
        raise InputError(
            f"{keys} keys, a null space of dimension {simplex_null_dimension} and d_k = {key_channels} were given;"
            " expected at least one key and channel, and a dimension below the number of keys."
        )
    rank = min(key_channels, keys - 1)
    meeting = keys * simplex_null_dimension + rank * (2 * keys - 1 - rank) - keys * (keys - 1)
    return max(0, meeting)
