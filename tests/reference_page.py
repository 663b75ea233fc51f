"""A page read back in plain NumPy from its written format, sharing no code with what wrote it or with the viewer."""

import gzip
from typing import Any

import numpy as np

LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%()*+-;=?@^_`{|}~.,:"


def from_text(text: str) -> bytes:
    count, _, letters = text.partition(" ")
    found = bytearray()
    for begin in range(0, len(letters), 5):
        number = 0
        for letter in letters[begin : begin + 5]:
            number = number * 85 + LETTERS.index(letter)
        found += number.to_bytes(4, "big")
    return bytes(found[: int(count)])


def array(data: bytes, described: dict[str, Any]) -> np.ndarray:
    shape, offset = described["shape"], described["offset"]
    count = int(np.prod(shape))
    if described["kind"] == "zigzag":
        low, high = data[offset : offset + count], data[offset + count : offset + 2 * count]
        coded = [one + 256 * other for one, other in zip(low, high, strict=True)]
        values = [code // 2 if code % 2 == 0 else -(code + 1) // 2 for code in coded]
        return np.array(values, dtype=np.float64).reshape(shape)
    if described["kind"] == "bits":
        bits = [(data[offset + place // 8] >> (7 - place % 8)) & 1 for place in range(count)]
        return np.array(bits, dtype=bool).reshape(shape)
    kind = {"float32": "<f4", "uint32": "<u4"}[described["kind"]]
    return np.frombuffer(data, kind, count, offset).reshape(shape)


def maps(layer: dict[str, Any], chunk: bytes, place: int) -> dict[str, np.ndarray]:
    """Raw attention, its projection on col([T,1]), what that leaves, and the canonical and effective map of a head."""
    data = gzip.decompress(chunk)
    queries, keys = layer["queries"], layer["keys"]
    inside = np.ones((queries, keys), dtype=bool)
    mask = layer["mask"] or {}
    if "matrix" in mask:
        inside = array(data, mask["matrix"])
    elif mask:
        start, stop = array(data, mask["start"]), array(data, mask["stop"])
        inside = np.array([[start[i] <= j < stop[i] for j in range(keys)] for i in range(queries)])
    found: dict[str, np.ndarray] = {}
    for name in ("raw", "effective_simplex_span", "effective"):
        packed = layer[name]
        if packed is None:
            continue
        cells = np.zeros((queries, keys))
        if packed["factors"]:
            seen = inside if mask else None
            cells = _product(packed["factors"], data, place, len(layer["heads"]), found.get("raw"), seen)
            if name == "raw":
                if packed["softcap"]:
                    cells = np.tanh(cells / packed["softcap"]) * packed["softcap"]
                if packed["position"]:
                    values = array(data, packed["position"]["values"])[place]
                    for i in range(queries):
                        for j in range(keys):
                            far = packed["position"]["by"] == "distance"
                            cells[i, j] += values[j - i + queries - 1 if far else j]
                weights = np.where(inside, np.exp(cells), 0)
                sink = np.exp(packed["sinks"][place]) if packed["sinks"] else 0
                cells = weights / (weights.sum(1, keepdims=True) + sink)
            cells = np.where(inside, cells, 0)
        if packed["cells"]:
            codes = array(data, packed["cells"])
            steps = None if packed["steps"] is None else array(data, packed["steps"]).astype(np.float64)
            if packed["rows"] is None and steps is not None:
                left = iter(codes[place])
                for j in range(keys):
                    for i in range(queries):
                        cells[i, j] = next(left) * steps[i] if inside[i, j] else 0
            elif packed["rows"] is None:
                cells = _levels(codes, packed["levels"]).reshape(-1, queries, keys)[place]
            else:
                for code, row in zip(array(data, packed["rows"]), codes, strict=True):
                    if code >> 20 == place:
                        query = code & (2**20 - 1)
                        cells[query] = _levels(row, packed["levels"]) if steps is None else row * steps[query]
        found[name] = cells
    if "effective_simplex_span" in found:
        found["simplex_null"] = np.zeros((queries, keys))
        for row, flag in enumerate(array(data, layer["null_rows"])[place]):
            if flag:
                found["simplex_null"][row] = found["raw"][row] - found["effective_simplex_span"][row]
    if layer["canonical"] and layer["heads"][place] in layer["canonical"]["heads"]:
        packed = layer["canonical"]
        at = packed["heads"].index(layer["heads"][place])
        found["canonical"] = _levels(array(data, packed["cells"])[at], packed["levels"])
    return found


def output_rows(layer: dict[str, Any], chunk: bytes, place: int) -> np.ndarray:
    """T [key, column] of the place-th head, up to a rotation."""
    data = gzip.decompress(chunk)
    right = array(data, layer["effective_simplex_span"]["factors"]["right"])
    group = place // (len(layer["heads"]) // right.shape[1])
    step = layer["effective_simplex_span"]["factors"]["right_step"][group]
    output = layer["output"]
    return right[:, group].T * step @ (array(data, output["matrix"])[place] * output["step"][place])


def _product(
    factors: dict[str, Any], data: bytes, place: int, heads: int, raw: np.ndarray | None, seen: np.ndarray | None
) -> np.ndarray:
    right = array(data, factors["right"])
    group = place // (heads // right.shape[1])
    rows = right[:, group] * factors["right_step"][group]
    if factors["left"] is None:
        assert raw is not None
        if seen is None:
            return raw @ rows.T @ rows
        found = np.zeros_like(raw)
        for i, keys in enumerate(seen):
            # A little of the identity, as much as one step: least squares with as many rows more.
            known = np.concatenate([rows.T[keys], np.eye(len(rows)) * factors["right_step"][group]])
            weights = np.linalg.lstsq(known.T @ known, rows[:, keys] @ raw[i, keys], rcond=None)[0]
            found[i, keys] = weights @ rows[:, keys]
        return found
    return (array(data, factors["left"])[:, place].T * factors["left_step"][place]) @ rows


def _levels(codes: np.ndarray, levels: int) -> np.ndarray:
    return np.sign(codes) * (codes / levels) ** 2
