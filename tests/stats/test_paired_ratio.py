"""Ratios of paired effects."""

import numpy as np
import pytest

from identiscope.errors import InputError
from identiscope.stats.paired_ratio import paired_ratio


def test_a_known_ratio_lies_between_its_bounds() -> None:
    generator = np.random.default_rng(0)
    second = [np.exp(generator.standard_normal(30)) for _ in range(5)]
    first = [3 * one * np.exp(0.5 * generator.standard_normal(30)) for one in second]
    found = paired_ratio(first, second)
    assert found.low < 3 < found.high and found.low < found.ratio < found.high and found.high / found.low < 1.6
    logs = [
        np.mean([np.log(a) - np.log(b) for a, b in zip(*pair, strict=True)]) for pair in zip(first, second, strict=True)
    ]
    assert found.ratio == pytest.approx(np.exp(np.mean(logs)), rel=1e-12)
    assert found.larger == np.mean([np.mean(a > b) for a, b in zip(first, second, strict=True)])
    assert paired_ratio(second, first).ratio == pytest.approx(1 / found.ratio, rel=1e-12)


def test_zeros_and_ties() -> None:
    found = paired_ratio([np.array([0.0, 2.0, 1.0])], [np.array([1.0, 1.0, 1.0])])
    assert found.ratio == pytest.approx(2**0.5) and found.larger == pytest.approx(0.5)
    nothing = paired_ratio([np.zeros(2)], [np.zeros(2)])
    assert np.isnan(nothing.ratio) and nothing.larger == 0.5
    with pytest.raises(InputError, match="same shapes"):
        paired_ratio([np.ones(2)], [np.ones(3)])
