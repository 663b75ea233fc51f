"""Is a mean of differences zero? Signs are turned: where it is, each is as likely as its opposite."""

from itertools import product

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
#: Up to so many differences all signs are tried; above, some are drawn.
_EXACT, _DRAWN = 12, 20_000


def sign_flip_p(differences: Numbers, *, seed: int = 0) -> float:
    """How often a mean at least as far from zero comes of turned signs, of both sides; 1 where all are zero.

    Of n differences no p is smaller than 2¹⁻ⁿ.

    >>> sign_flip_p(np.ones(8))
    0.0078125
    """
    given = np.asarray(differences, np.float64)
    count = len(given)
    if not given.any():
        return 1.0
    if count <= _EXACT:
        signs = np.array(list(product((1.0, -1.0), repeat=count)))
    else:
        drawn = np.random.default_rng(seed).choice([-1.0, 1.0], size=(_DRAWN, count))
        signs = np.concatenate([np.ones((1, count)), drawn])
    sums = np.abs(signs @ given)
    # As far, but for rounding.
    return float(np.mean(sums >= abs(given.sum()) * (1 - 1e-12)))
