"""What heads look at, their roles, sinks and classes: the definitions once more, as plain loops in NumPy float64."""

import math
import unicodedata
from collections.abc import Sequence

import numpy as np
import torch


def is_sign(token: str) -> bool:
    return bool(token) and all(unicodedata.category(letter)[0] == "P" for letter in token)


def looked_at(name: str, query: int, key: int, tokens: Sequence[str], special: Sequence[bool]) -> bool:
    """Whether a key counts for a statistic, seen from a query."""
    sign = is_sign(tokens[key]) and not special[key]
    copies = [place for place in range(query) if tokens[place] == tokens[query] and not special[place]]
    return {
        "previous": key == query - 1,
        "self": key == query,
        "next": key == query + 1,
        "first": key == 0,
        "special": special[key],
        "cls": special[key] and key == 0,
        "sep": special[key] and key > 0,
        "punctuation": sign,
        "point": tokens[key] in (".", ",") and not special[key],
        "other": not special[key] and not sign,
        "duplicate": key in copies,
        "induction": key - 1 in copies,
    }[name]


def mean_weight(
    name: str, attention: np.ndarray, tokens: Sequence[str], special: Sequence[bool], allowed: np.ndarray
) -> float:
    """Mean over the queries that may see such a key."""
    sums = []
    for query in range(len(attention)):
        keys = [
            key for key in range(len(tokens)) if allowed[query, key] and looked_at(name, query, key, tokens, special)
        ]
        if keys:
            sums.append(sum(attention[query, key] for key in keys))
    return sum(sums) / len(sums) if sums else math.nan


def projected(attention: np.ndarray, value: np.ndarray, projection: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Each row projected on the columns of [T, 1] over the keys that it may see."""
    rows = np.zeros_like(attention)
    for query in range(len(attention)):
        inside = np.flatnonzero(allowed[query])
        span = np.concatenate([(value @ projection)[inside], np.ones((len(inside), 1))], 1)
        rows[query, inside] = span @ np.linalg.pinv(span) @ attention[query, inside]
    return rows


def entropy(row: np.ndarray) -> float:
    return -sum(weight * math.log2(weight) for weight in row if weight > 0)


def peak(attention: np.ndarray, offset: int, special: Sequence[bool], allowed: np.ndarray) -> float:
    """The share of rows whose largest weight is at an offset."""
    hits = []
    for query in range(len(attention)):
        key = query + offset
        if special[query] or allowed[query].sum() < 2 or not 0 <= key < len(attention) or not allowed[query, key]:
            continue
        seen = np.where(allowed[query], attention[query], -np.inf)
        hits.append(float(np.argmax(seen) == key))
    return sum(hits) / len(hits) if hits else math.nan


def made_values(seed: int, count: int, heads: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    """Random values of three channels and their projections: rows of more than four keys are not determined."""
    generator = torch.Generator().manual_seed(seed + 1)
    value = torch.randn(heads, count, 3, generator=generator, dtype=torch.float64)
    return value, torch.randn(heads, 3, 5, generator=generator, dtype=torch.float64)


def confidence(attention: np.ndarray, special: Sequence[bool], allowed: np.ndarray) -> float:
    ordinary = [place for place, flag in enumerate(special) if not flag]
    largest = [max(attention[query, key] for key in ordinary if allowed[query, key]) for query in ordinary]
    return sum(largest) / len(largest) if largest else math.nan


def mean_received(attention: np.ndarray, key: int, allowed: np.ndarray) -> float:
    """α_k: the mean over the queries that may see the key; none if half of another key's are more."""
    rows = [query for query in range(len(attention)) if allowed[query, key]]
    most = max(sum(bool(row[other]) for row in allowed) for other in range(allowed.shape[1]))
    return sum(attention[query, key] for query in rows) / len(rows) if 2 * len(rows) >= most else math.nan


def class_scores(attention: np.ndarray, special: Sequence[bool], allowed: np.ndarray) -> tuple[list[float], str]:
    """How vertical, diagonal and block a map is, and its class."""
    count = len(attention)
    even = allowed / allowed.sum(1, keepdims=True)
    columns = [
        mean_received(attention, key, allowed) >= max(0.1, 3 * mean_received(even, key, allowed))
        for key in range(count)
    ]
    part, parts = 0, []
    for key in range(count):
        parts.append(part)
        part += int(special[key] and key > 0)
    sums = {which: [0.0, 0.0] for which in ("vertical", "diagonal", "block", "rest")}
    for number, cells in enumerate((attention, even)):
        for query in range(count):
            for key in range(count):
                if columns[key]:
                    which = "vertical"
                elif abs(query - key) <= 1:
                    which = "diagonal"
                else:
                    which = "block" if parts[query] == parts[key] else "rest"
                sums[which][number] += cells[query, key]
    scores = []
    for which in ("vertical", "diagonal"):
        weight, chance = sums[which]
        scores.append(min(max((weight - chance) / (count - chance), 0), 1) if count > chance else 0.0)
    (within, even_within), (without, even_without) = sums["block"], sums["rest"]
    left, even_left = within + without, even_within + even_without
    chance = even_within * left / even_left if even_left > 0 else 0.0
    several = len(set(parts)) > 1
    scores.append(max((within - chance) / (left - chance), 0) * left / count if several and left > chance else 0.0)
    shown = [score >= 0.25 for score in scores]
    if shown[0] and shown[1]:
        return scores, "vertical_diagonal"
    named = [name for name, flag in zip(("vertical", "diagonal", "block"), shown, strict=True) if flag]
    return scores, named[0] if named else "heterogeneous"
