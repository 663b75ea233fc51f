"""Lengths of what tokens bring to each other, from T_ij written out, in NumPy: what three methods have in common."""

from collections.abc import Callable
from typing import Any

import numpy as np

import identiscope
from plain_families import PRECISION, ran, traced
from plain_models import Ran
from plain_parts import Shape, fields, multiplied, random_run, shares, vectors

ARRAYS = ("mixture", "step", "mixing_ratio")


def norm_mixture(plain: Ran, *, outer: bool, feed_norm: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rolled out, by layer, and the mixing ratio ‖Σ_{j≠i} T_ij‖ / (‖Σ_{j≠i} T_ij‖ + ‖T_ii‖) (Kobayashi et al. 2021)."""
    steps, ratios = [], []
    for layer in plain.layers:
        parts = vectors(layer.attended[0], outer=outer, layer=layer if feed_norm else None)
        count = len(parts)
        sizes = np.array([[np.linalg.norm(parts[i, j]) for j in range(count)] for i in range(count)])
        steps.append(shares(sizes))
        row = []
        for i in range(count):
            others = np.linalg.norm(sum((parts[i, j] for j in range(count) if j != i), np.zeros(parts.shape[2])))
            row.append(others / (others + np.linalg.norm(parts[i, i])))
        ratios.append(row)
    return multiplied(steps), np.stack(steps), np.array(ratios)


def check_random(method: Callable[..., Any], shape: Shape, **which: bool) -> None:
    """A method on random layers."""
    plain = random_run(shape)
    found = method(*fields(plain, shape.group)).arrays()
    for array, expected in zip(ARRAYS, norm_mixture(plain, **which), strict=True):
        # Lengths are roots of sums that may cancel.
        np.testing.assert_allclose(found[array][1].numpy(), expected, atol=1e-7)


def check_family(name: str, family: str, **which: bool) -> None:
    """A method on a tiny model, against its weights."""
    _, plain = ran(family)
    result = identiscope.ask(name, traced(family))
    for array, expected in zip(ARRAYS, norm_mixture(plain, **which), strict=True):
        np.testing.assert_allclose(result[array], expected, atol=PRECISION.get(family, 1e-9))
