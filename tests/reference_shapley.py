"""Shapley values by all orders, and games of tokens: a worth for every set of them."""

from collections.abc import Callable
from itertools import permutations

import numpy as np
import torch
from torch import Tensor


def values_of(worth: Callable[[set[int]], float], count: int) -> np.ndarray:
    """The mean gain of each player over all orders (Shapley 1953)."""
    orders = list(permutations(range(count)))
    found = np.zeros(count)
    for order in orders:
        there: set[int] = set()
        for player in order:
            before = worth(there)
            there = there | {player}
            found[player] += (worth(there) - before) / len(orders)
    return found


def game(worth: np.ndarray, count: int, idle: int = 0) -> tuple[Callable[[Tensor], Tensor], Tensor, Tensor, list[int]]:
    """A game as methods are given it: embeddings are one where a player is there, and its baseline zero; the worth of a
    set is that of its bits. idle: further tokens that the baseline leaves as they are. And how many texts were asked.
    """
    asked: list[int] = []

    def answer(texts: Tensor) -> Tensor:
        asked.append(len(texts))
        there = texts.reshape(len(texts), -1)[:, :count].long()
        return torch.from_numpy(worth)[(there << torch.arange(count)).sum(1)]

    baseline = torch.zeros(count + idle, 1, dtype=torch.float64)
    baseline[count:] = 0.5
    x = baseline.clone()
    x[:count] = 1
    return answer, x, baseline, asked
