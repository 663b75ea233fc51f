"""Softmax over rows of logits together with the sums that statistics need, in two readings of each row.

Everything here is plain loops over arrays (`compiling.py`).
"""

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import NDArray

from identiscope.linalg.compiling import OPTIONS, Numbers, compiled

#: Below this the exponential has no exponent left in its format, and is zero.
LOWEST = {np.dtype(np.float32): np.float32(-87.0), np.dtype(np.float64): np.float64(-708.0)}


#: Numbers of a row compared at a time, so that its largest is found on vectors.
_LANES = 32


@compiled
def softmax_rows(
    logits: NDArray[Any],
    lengths: NDArray[np.int64],
    sinks: NDArray[Any],
    lowest: Any,
    sums: Numbers,
    received: Numbers,
) -> None:
    """Turn logits [head, row, key] into weights, each row over its first keys, and add up what they say.

    `lengths` [head, row] are how many keys a row sees; what is behind them becomes zero. `sinks` [head] are logits that
    take weight and are no key, minus infinity for none; `lowest` is of `LOWEST`. Written are `sums` [5, head, row]: Σa,
    Σa², the entropy in nats, the last weight, and Σ(a − ā)² with ā the mean of the row's weights. A row that sees
    nothing has sums of zero. To `received` [head, key] each row adds its weights, unless it has no keys.
    """
    heads, rows, width = logits.shape
    kind, one = logits.dtype.type, np.uintp(1)
    lanes, largest = np.uintp(_LANES), np.zeros(_LANES, logits.dtype)
    for head in range(heads):
        sink = sinks[head]
        for place in range(rows):
            # An unsigned index cannot count from the end, and a loop that may not do so runs on vectors.
            row, count = logits[head, place], np.uintp(lengths[head, place])
            if count == 0:
                row[:] = kind(0)
                sums[:, head, place] = 0.0
                continue
            largest[:] = sink
            whole = count - count % lanes
            for begin in range(np.uintp(0), whole, lanes):
                for j in range(lanes):
                    largest[j] = row[begin + j] if row[begin + j] > largest[j] else largest[j]
            top = largest.max()
            for j in range(whole, count):
                top = row[j] if row[j] > top else top
            total, squares, weighted = kind(0), kind(0), kind(0)
            for j in range(count):
                # Written so that NaN stays NaN.
                below = row[j] - top
                below = lowest if below < lowest else below
                weight = kind(0) if below <= lowest else _exponential(below)
                row[j] = weight
                total += weight
                squares += weight * weight
                weighted += weight * below
            everything = total
            if sink > -np.inf:
                everything += _exponential(max(sink - top, lowest))
            scale = kind(1) / everything
            mean, spread = total * scale / kind(count), kind(0)
            for j in range(count):
                weight = row[j] * scale
                row[j] = weight
                spread += (weight - mean) * (weight - mean)
            if received.shape[1]:
                for j in range(count):
                    received[head, j] += row[j]
            for j in range(count, np.uintp(width)):
                row[j] = kind(0)
            sums[0, head, place] = total * scale
            sums[1, head, place] = squares * scale * scale
            sums[2, head, place] = (total * np.log(everything) - weighted) * scale
            sums[3, head, place] = row[count - one]
            sums[4, head, place] = spread


def _exponential(_number: Any) -> Any:
    """exp of a number between the lowest and zero, to about one rounding.

    x = k·ln 2 + f with |f| ≤ ln 2 / 2; exp f by its series, which at the last term is below a rounding, times 2^k,
    which is written into the exponent of a float. ln 2 is split so that k times its first part is exact.
    """


def _exponential_of(_number: Any) -> Any:
    if _number == types.float32:
        single = np.float32

        def in_single(_number: Any) -> Any:
            whole = np.rint(_number * single(1.4426950408889634))
            f = (_number - whole * single(0.693359375)) + whole * single(2.12194440e-4)
            series = single(1 / 5040)
            series = series * f + single(1 / 720)
            series = series * f + single(1 / 120)
            series = series * f + single(1 / 24)
            series = series * f + single(1 / 6)
            series = series * f + single(1 / 2)
            series = series * f + single(1)
            series = series * f + single(1)
            return series * np.int32((np.int32(whole) + 127) << 23).view(np.float32)

        return in_single

    def in_double(_number: Any) -> Any:
        whole = np.rint(_number * 1.4426950408889634)
        f = (_number - whole * 6.93145751953125e-1) - whole * 1.42860682030941723212e-6
        series = 1 / 479001600
        series = series * f + 1 / 39916800
        series = series * f + 1 / 3628800
        series = series * f + 1 / 362880
        series = series * f + 1 / 40320
        series = series * f + 1 / 5040
        series = series * f + 1 / 720
        series = series * f + 1 / 120
        series = series * f + 1 / 24
        series = series * f + 1 / 6
        series = series * f + 1 / 2
        series = series * f + 1
        series = series * f + 1
        return series * np.int64((np.int64(whole) + 1023) << 52).view(np.float64)

    return in_double


overload(_exponential, jit_options=OPTIONS)(_exponential_of)
