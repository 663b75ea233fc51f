"""Arrays as they are stored and compared: small ones whole, large ones by sums, extremes and some of their entries."""

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).parent / "numbers.json.gz"

#: Arrays of more entries than this are summarised, with about so many of them.
WHOLE, ENTRIES = 160, 50

#: What is stored in single precision was rounded to it last, whatever it was computed in.
SINGLE = 2e-6


@dataclass(frozen=True)
class Tolerance:
    """How far a number may be from the stored one: `relative` to the largest entry of its array, or `absolute`.

    Entries are measured by the largest one because a weight of nearly zero is a difference of larger ones; absolute is
    for whole arrays of rounding errors, such as the null attention of an identifiable head. reason: why it is no
    smaller.
    """

    relative: float
    absolute: float
    reason: str


def entry_of(value: Any) -> dict[str, Any]:
    """What is stored of one value: a number, an array, a text or a list of texts."""
    array = np.asarray(value)
    kind = array.dtype.kind
    if kind in "UO":
        return {"kind": "text", "shape": list(array.shape), "values": [str(one) for one in array.ravel().tolist()]}
    if kind not in "biuf":
        raise TypeError(f"{type(value)} of {array.dtype} is no array of numbers or texts")
    name = "whole" if kind in "biu" else "single" if array.dtype.itemsize < 8 else "double"
    flat = array.ravel().astype(np.int64 if name == "whole" else np.float64)
    entry: dict[str, Any] = {"kind": name, "shape": list(array.shape)}
    if flat.size <= WHOLE:
        return entry | {"values": flat.tolist()}
    finite = flat[np.isfinite(flat)]
    places = np.unique(np.linspace(0, flat.size - 1, ENTRIES).round().astype(int))
    return entry | {
        "not_a_number": int(np.isnan(flat).sum()),
        "infinite": int(np.isinf(flat).sum()),
        "sum": float(finite.sum()),
        "squares": float((finite.astype(np.float64) ** 2).sum()),
        "least": float(min(finite, default=0)),
        "most": float(max(finite, default=0)),
        "values": flat[places].tolist(),
    }


def differences(name: str, stored: Mapping[str, Any], found: Mapping[str, Any], tolerance: Tolerance) -> Iterator[str]:
    """In words, whatever of an array is not as it was stored."""
    for part in ("kind", "shape", "not_a_number", "infinite"):
        if stored.get(part) != found.get(part):
            yield f"{name}: {part} was {stored.get(part)}, is {found.get(part)}"
            return
    if stored["kind"] in ("text", "whole"):
        exact = [("entry", stored["values"], found["values"])]
        exact += [(part, [stored[part]], [found[part]]) for part in ("sum", "least", "most") if part in stored]
        for part, then, now in exact:
            wrong = [place for place, pair in enumerate(zip(then, now, strict=True)) if pair[0] != pair[1]]
            if wrong:
                yield f"{name}: {_said(part, wrong, then, now)}"
        return
    relative = max(tolerance.relative, SINGLE if stored["kind"] == "single" else 0)
    then, now = (np.array(entry["values"], dtype=np.float64) for entry in (stored, found))
    largest = max(float(np.abs(then[np.isfinite(then)]).max(initial=0)), abs(stored.get("least", 0)),
                  abs(stored.get("most", 0)))  # fmt: skip
    allowed, count = max(relative * largest, tolerance.absolute), int(np.prod(stored["shape"]))
    wrong = np.flatnonzero(~np.isclose(now, then, rtol=0, atol=allowed, equal_nan=True)).tolist()
    if wrong:
        yield f"{name}: {_said('entry', wrong, then.tolist(), now.tolist())}; allowed {allowed:.1e}"
    bounds = {"least": allowed, "most": allowed, "sum": count * allowed, "squares": 2 * count * largest * allowed}
    for part, bound in bounds.items():
        if part in stored and not abs(stored[part] - found[part]) <= max(bound, count * tolerance.absolute**2):
            yield f"{name}: {part} was {stored[part]!r}, is {found[part]!r}; allowed {bound:.1e}"


def _said(part: str, wrong: list[int], then: list[Any], now: list[Any]) -> str:
    place = wrong[0]
    if isinstance(then[place], float):
        place = max(wrong, key=lambda one: abs(then[one] - now[one]) if then[one] == then[one] else np.inf)
    return f"{part} {place} was {then[place]!r}, is {now[place]!r} ({len(wrong)} of {len(then)} differ)"


def write(cases: Mapping[str, Mapping[str, Any]]) -> None:
    """The same numbers give the same bytes."""
    text = json.dumps(cases, indent=0, sort_keys=True, ensure_ascii=False)
    FILE.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))


def read() -> dict[str, dict[str, Any]]:
    cases: dict[str, dict[str, Any]] = json.loads(gzip.decompress(FILE.read_bytes()))
    return cases
