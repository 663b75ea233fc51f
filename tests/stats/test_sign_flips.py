"""Turned signs against every one of them, and how often a p is small where nothing is there."""

from itertools import product

import numpy as np
import pytest

from identiscope.stats.sign_flips import sign_flip_p


@pytest.mark.parametrize("seed", range(5))
def test_p_is_the_share_of_all_signs_that_are_as_far(seed: int) -> None:
    differences = np.random.default_rng(seed).normal(0.4, 1.0, 7)
    as_far = sum(
        abs(sum(sign * one for sign, one in zip(signs, differences, strict=True))) >= abs(sum(differences)) - 1e-9
        for signs in product((1, -1), repeat=7)
    )
    assert sign_flip_p(differences) == pytest.approx(as_far / 2**7)


def test_small_p_are_as_rare_as_they_say() -> None:
    generator = np.random.default_rng(0)
    p = np.array([sign_flip_p(generator.uniform(-1, 1, 10)) for _ in range(1000)])
    assert abs((p <= 0.05).mean() - 0.05) < 0.025 and (p <= 0.01).mean() < 0.025


def test_many_are_drawn_and_nothing_is_nothing() -> None:
    assert sign_flip_p(np.ones(30)) < 1e-4 and sign_flip_p(np.zeros(9)) == 1.0
    mixed = np.tile([1.0, -1.0], 10)
    assert sign_flip_p(mixed) == 1.0
