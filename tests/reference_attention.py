"""One attention block, literally, in NumPy float64; shares no code with the library."""

from typing import Any

import numpy as np


def _array(tensor: Any) -> np.ndarray:
    return tensor.detach().double().numpy()


def attention(site: Any, head: int) -> np.ndarray:
    """softmax(scale·q·k, soft-capped, + bias, masked), one row and one cell at a time; a sink adds to the divisor."""
    query = _array(site.query)[head]
    key = _array(site.key)[site.key_value_heads[head]]
    rows, columns = len(query), len(key)
    result = np.zeros((rows, columns))
    for i in range(rows):
        logits = np.full(columns, -np.inf)
        for j in range(columns):
            if site.bias.causal and j > i:
                continue
            if site.bias.allowed is not None and not _cell(site.bias.allowed, head, i, j):
                continue
            logits[j] = site.scale * float(query[i] @ key[j])
            if site.softcap is not None:
                logits[j] = site.softcap * np.tanh(logits[j] / site.softcap)
            if site.bias.position is not None:
                logits[j] += float(_cell(site.bias.position, head, i, j))
        top = max(logits.max(), -np.inf if site.sinks is None else float(site.sinks[head]))
        weights = np.exp(logits - top)
        total = weights.sum() + (0.0 if site.sinks is None else np.exp(float(site.sinks[head]) - top))
        result[i] = weights / total
    return result


def _cell(tensor: Any, head: int, i: int, j: int) -> Any:
    plane = tensor[head if tensor.shape[0] > 1 else 0]
    return plane[i if plane.shape[0] > 1 else 0, j]


def sum_over_heads(site: Any, maps: list[np.ndarray]) -> np.ndarray:
    """Σ_h A_h·V_h·H_h + b_O."""
    total = np.zeros((site.queries, site.projection.shape[-1]))
    for head, weights in enumerate(maps):
        value = _array(site.value)[site.key_value_heads[head]]
        total += weights @ value @ _array(site.projection)[head]
    if site.projection_bias is not None:
        total += _array(site.projection_bias)
    return total


def block(site: Any) -> tuple[list[np.ndarray], np.ndarray]:
    """The maps of all heads and what the block returns."""
    maps = [attention(site, head) for head in range(site.head_count)]
    return maps, sum_over_heads(site, maps)
