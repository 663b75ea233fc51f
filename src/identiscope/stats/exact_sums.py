"""Sums of floating-point numbers that do not depend on their order: exact merges, to the bit.

A number becomes a whole number of units of 2⁻⁹⁶, rounded down once; whole numbers add without rounding. They are kept
in limbs of 32 bits inside 64-bit integers, so that arrays of sums are added with NumPy.
"""

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

#: Units below one: numbers down to 2⁻⁴³ keep all 53 bits, and smaller ones an absolute error below 2⁻⁹⁶.
FRACTION_BITS = 96
LIMBS = 6
_LIMB = 32
#: The largest number that may be added, so that 2³¹ of them still fit.
LARGEST = 2.0 ** (_LIMB * (LIMBS - 1) - FRACTION_BITS)

Limbs = NDArray[np.int64]


def exact_sum(values: NDArray[np.float64]) -> Limbs:
    """The sum over the first axis [number, …] as limbs […, limb]; numbers that are not finite must not be given.

    >>> float(rounded(exact_sum(np.array([1e16, 1.0, -1e16]))))
    1.0
    """
    if not np.isfinite(values).all() or (np.abs(values) >= LARGEST).any():
        raise ValueError("only finite numbers below 2**64 are summed exactly")
    mantissa, exponent = np.frexp(values.astype(np.float64))
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    # value = whole · 2^(exponent − 53) = whole · 2^shift units
    shift = exponent.astype(np.int64) - 53 + FRACTION_BITS
    # Below one unit: rounded down, as >> does.
    whole = whole >> np.clip(-shift, 0, 63)
    shift = np.maximum(shift, 0)
    first, within = shift // _LIMB, shift % _LIMB
    # whole·2^within takes up to 53 + 31 bits: its lower and upper half are placed apart, the upper one signed.
    low, high = (whole & 0xFFFFFFFF) << within, (whole >> _LIMB) << within
    pieces = (low & 0xFFFFFFFF, (low >> _LIMB) + (high & 0xFFFFFFFF), high >> _LIMB)
    sums = np.zeros((*values.shape[1:], LIMBS), np.int64)
    for place in range(LIMBS):
        for offset, piece in enumerate(pieces):
            sums[..., place] += np.where(first + offset == place, piece, 0).sum(0)
    return carried(sums)


def carried(sums: Limbs) -> Limbs:
    """The same number with every limb but the last below 2³²: one number, one form."""
    out = sums.copy()
    for place in range(LIMBS - 1):
        over = out[..., place] >> _LIMB
        out[..., place] &= 0xFFFFFFFF
        out[..., place + 1] += over
    return out


def merged(one: Limbs, other: Limbs) -> Limbs:
    """The sum of two sums."""
    return carried(one + other)


def fractions(sums: Limbs) -> NDArray[np.object_]:
    """Each sum as an exact fraction."""
    flat = sums.reshape(-1, LIMBS)
    out = np.empty(len(flat), object)
    for index, limbs in enumerate(flat.tolist()):
        units = sum(limb << (_LIMB * place) for place, limb in enumerate(limbs))
        out[index] = Fraction(units, 1 << FRACTION_BITS)
    return out.reshape(sums.shape[:-1])


def rounded(sums: Limbs) -> NDArray[np.float64]:
    """Each sum as the nearest floating-point number."""
    return fractions(sums).astype(np.float64)
