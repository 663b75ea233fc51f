"""Arrays as few bytes: rounded to a step, split into byte planes, compressed; and what the rounding cost.

A chunk is a gzip stream over the arrays one after the other. Whole numbers are zigzag-coded (0, -1, 1, -2, …) to 16
bits; all low bytes come first, then all high bytes, so that each plane has one narrow distribution.
`static/decode.js` reads it.
"""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from identiscope.views.page.shapes import Described

Array = np.ndarray[Any, Any]

#: The largest magnitude that zigzag coding to 16 bits holds.
LARGEST = 32767

#: Numbers that are coded at once: all cells of a layer of many heads would take hundreds of MB several times over.
_AT_ONCE = 2**20


class Chunk:
    """A growing sequence of arrays, described one by one, compressed at the end."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def whole(self, values: Array) -> Described:
        """Add whole numbers of at most LARGEST in magnitude; the description says where they are."""
        flat = np.ravel(values)
        coded = np.empty((flat.size, 2), np.uint8)
        for begin in range(0, flat.size, _AT_ONCE):
            wide = flat[begin : begin + _AT_ONCE].astype(np.int32)
            zigzag = ((wide << 1) ^ (wide >> 31)).astype("<u2")
            coded[begin : begin + _AT_ONCE] = zigzag.view(np.uint8).reshape(-1, 2)
        return self._add("zigzag", values.shape, coded.T.tobytes())

    def numbers(self, values: Array) -> Described:
        """Add numbers as float32."""
        return self._add("float32", values.shape, np.ascontiguousarray(values, "<f4").tobytes())

    def places(self, values: Array) -> Described:
        """Add positions as uint32."""
        return self._add("uint32", values.shape, np.ascontiguousarray(values, "<u4").tobytes())

    def flags(self, values: Array) -> Described:
        """Add booleans as bits, the first in the highest bit of the first byte."""
        return self._add("bits", values.shape, np.packbits(values).tobytes())

    def _add(
        self, kind: Literal["zigzag", "float32", "uint32", "bits"], shape: Sequence[int], data: bytes
    ) -> Described:
        padding = -len(data) % 4  # a Float32Array must begin at a multiple of four
        described: Described = {"kind": kind, "offset": self._size, "shape": list(shape)}
        self._parts.append(data + bytes(padding))
        self._size += len(data) + padding
        return described

    def compressed(self) -> bytes:
        """The gzip stream. Rounded numbers repeat nothing but zeros: runs and frequencies are coded."""
        packer = zlib.compressobj(6, zlib.DEFLATED, 31, 9, zlib.Z_RLE)
        return b"".join([packer.compress(part) for part in self._parts] + [packer.flush()])


def balanced(query: Array, key: Array, centre: bool) -> tuple[Array, Array]:
    """Factors with the same product whose columns carry as little as can be, so that they round to few digits.

    query [row, channel], key [key, channel]. centre: keys may lose their mean, a softmax does not see it.
    """
    if centre:
        key = key - key.mean(0)
    query_basis, query_small = np.linalg.qr(query)
    key_basis, key_small = np.linalg.qr(key)
    turn, sizes, back = np.linalg.svd(query_small @ key_small.T, full_matrices=False)
    root = np.sqrt(sizes)
    return query_basis @ turn * root, key_basis @ back.T * root


def levels_for(error: float) -> int:
    """How many levels of a square-root scale from 0 to 1 keep every value within an error."""
    return min(LARGEST, math.ceil(1 / error) + 1)


def to_levels(cells: Array, levels: int) -> Array:
    """Values from -1 to 1 on a signed square-root scale, which keeps small weights apart."""
    return np.asarray(np.rint(np.copysign(np.sqrt(np.abs(cells)), cells) * levels), dtype=np.int32)


def from_levels(codes: Array, levels: int) -> Array:
    """The values that `to_levels` stands for."""
    root = codes.astype(np.float64) / levels
    return np.asarray(root * np.abs(root))


@dataclass(frozen=True)
class Rounding:
    """Cells [row, column] from -1 to 1 as whole numbers: how far each row may be off, and on which scale.

    even: the same step for all cells of a row, so that what is less than the error becomes zero; otherwise on a root
    scale for all rows.
    """

    error: Array
    even: bool

    @property
    def steps(self) -> Array:
        """The step of each row on the even scale, as it is stored."""
        steps: Array = np.maximum(2 * self.error, 1 / LARGEST).astype(np.float32)
        return steps

    @property
    def levels(self) -> int:
        """The levels of the root scale."""
        return levels_for(float(self.error.min()))

    def codes(self, cells: Array, rows: Array | slice = slice(None)) -> Array:
        """Whole numbers for some of the rows, or all."""
        if not self.even:
            return to_levels(cells, self.levels)
        return np.asarray(np.rint(cells / self.steps[rows, None].astype(np.float64)), dtype=np.int32)

    def cells(self, codes: Array, rows: Array | slice = slice(None)) -> Array:
        """What such whole numbers stand for."""
        numbers: Array = codes * self.steps[rows, None].astype(np.float64)
        return numbers if self.even else from_levels(codes, self.levels)
