"""How many times larger one of two paired effects is, and how sure that is."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from identiscope.errors import InputError


@dataclass(frozen=True)
class PairedRatio:
    """Geometric mean of first / second over pairs, bounds at a confidence, and how often the first is larger."""

    ratio: float
    low: float
    high: float
    larger: float


def paired_ratio(
    first: Sequence[np.ndarray],
    second: Sequence[np.ndarray],
    *,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> PairedRatio:
    """Compare paired effects of groups (texts), each [pair]; the bootstrap draws groups, and pairs within each.

    Pairs of which one is zero have no ratio and count only in `larger`, where a tie counts half.

    >>> paired_ratio([np.array([2.0, 8.0])], [np.array([1.0, 4.0])]).ratio
    2.0
    """
    if not len(first) or [one.shape for one in first] != [one.shape for one in second] or first[0].ndim != 1:
        raise InputError("two lists of groups [pair] of the same shapes were expected, with at least one group.")
    larger = np.mean([np.mean((1 + np.sign(one - other)) / 2) for one, other in zip(first, second, strict=True)])
    logs = []
    for one, other in zip(first, second, strict=True):
        known = (one > 0) & (other > 0)
        if known.any():
            logs.append(np.log(one[known] / other[known]))
    if not logs:
        return PairedRatio(float("nan"), float("nan"), float("nan"), float(larger))
    generator = np.random.default_rng(seed)
    drawn = []
    for _ in range(resamples):
        chosen = generator.integers(len(logs), size=len(logs))
        drawn.append(np.mean([generator.choice(logs[place], len(logs[place])).mean() for place in chosen]))
    tail = (1 - confidence) / 2
    low, high = np.exp(np.quantile(drawn, [tail, 1 - tail]))
    return PairedRatio(float(np.exp(np.mean([one.mean() for one in logs]))), float(low), float(high), float(larger))
