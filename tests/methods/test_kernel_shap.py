"""Shapley values by regression, against the weighted least squares of the paper and all orders of tokens."""

from math import comb

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import identiscope
from families import TEXT
from identiscope.errors import InputError
from identiscope.methods.scores.kernel_shap import kernel_shap
from plain_families import model_of, ran
from reference_outcome import read, value
from reference_shapley import game, values_of


def least_squares(subsets: np.ndarray, weights: np.ndarray, gains: np.ndarray, whole: float) -> np.ndarray:
    """argmin_φ Σ w·(gain − Σ_{i ∈ S} φ_i)² with Σ φ = whole, by its normal equations and Lagrange's multiplier."""
    count = subsets.shape[1]
    system = np.zeros((count + 1, count + 1))
    right = np.zeros(count + 1)
    for subset, weight, gain in zip(subsets, weights, gains, strict=True):
        system[:count, :count] += weight * np.outer(subset, subset)
        right[:count] += weight * gain * subset
    system[count, :count] = system[:count, count] = 1
    right[count] = whole
    return np.linalg.solve(system, right)[:count]


def by_the_kernel(worth: np.ndarray, count: int) -> np.ndarray:
    """All subsets with the weights of theorem 2: (n − 1) / (C(n, k)·k·(n − k))."""
    numbers = list(range(1, 2**count - 1))
    subsets = np.array([[number >> one & 1 for one in range(count)] for number in numbers], float)
    sizes = subsets.sum(1).astype(int).tolist()
    weights = np.array([(count - 1) / (comb(count, size) * size * (count - size)) for size in sizes])
    return least_squares(subsets, weights, worth[numbers] - worth[0], worth[-1] - worth[0])


@given(seed=st.integers(0, 2**20), count=st.integers(1, 5), idle=st.integers(0, 2))
def test_all_subsets_give_shapley_values(seed: int, count: int, idle: int) -> None:
    worth = np.random.default_rng(seed).standard_normal(2**count)
    answer, x, baseline, asked = game(worth, count, idle)
    found = kernel_shap(answer, x, baseline)
    expected = values_of(lambda players: worth[sum(1 << player for player in players)], count)
    if count > 1:
        np.testing.assert_allclose(by_the_kernel(worth, count), expected, atol=1e-10)
    np.testing.assert_allclose(found.score[:count], expected, atol=1e-10)
    assert not found.score[count:].any() and found.error is not None and not found.error.any()
    assert sum(asked) == 2**count and abs(found.facts["residual"]) < 1e-10


def test_drawn_subsets_are_fitted_by_least_squares_and_come_with_their_complements() -> None:
    count = 6
    worth = np.random.default_rng(1).standard_normal(2**count)
    answer, x, baseline, _ = game(worth, count)
    seen: list[Tensor] = []

    def noted(texts: Tensor) -> Tensor:
        seen.append(texts[:, :, 0])
        return answer(texts)

    found = kernel_shap(noted, x, baseline, budget=50, seed=3)
    texts = torch.cat(seen).numpy()
    assert len(texts) <= 50 and found.facts["sampled"]
    subsets = texts[2:]
    half = len(subsets) // 2
    np.testing.assert_array_equal(subsets[:half], 1 - subsets[half:])
    gains = np.array([worth[int(sum(1 << i for i in np.flatnonzero(row)))] for row in subsets]) - worth[0]
    whole = worth[-1] - worth[0]
    np.testing.assert_allclose(found.score, least_squares(subsets, np.ones(len(subsets)), gains, whole), atol=1e-10)
    # Jackknife: without every eighth pair, eight times.
    fits = []
    for part in range(8):
        kept = np.tile(np.arange(half) % 8 != part, 2)
        fits.append(least_squares(subsets[kept], np.ones(kept.sum()), gains[kept], whole))
    error = np.sqrt(7 / 8 * np.square(np.array(fits) - np.mean(fits, 0)).sum(0))
    assert found.error is not None
    np.testing.assert_allclose(found.error, error, atol=1e-10)


def test_drawn_subsets_come_near_and_the_error_says_how_near() -> None:
    count, draws = 8, 60
    worth = np.random.default_rng(4).standard_normal(2**count)
    expected = values_of_sets(worth, count)
    answer, x, baseline, _ = game(worth, count)
    off, said = [], []
    for seed in range(draws):
        found = kernel_shap(answer, x, baseline, budget=200, seed=seed)
        assert found.error is not None and abs(found.facts["residual"]) < 1e-10
        off.append(found.score.numpy() - expected)
        said.append(found.error.numpy())
    deviation = np.std(off, 0)
    assert (np.abs(np.mean(off, 0)) < 4 * deviation / draws**0.5 + 0.02).all()
    # A jackknife of eight parts errs on the safe side, if at all.
    ratio = np.sqrt(np.square(said).mean(0)) / deviation
    assert ratio.min() > 0.8 and ratio.max() < 2
    assert (np.abs(off) < 3 * np.array(said)).mean() > 0.95


def values_of_sets(worth: np.ndarray, count: int) -> np.ndarray:
    """Σ_S (|S|!·(n − |S| − 1)!/n!)·(worth with i − worth without), set by set."""
    found = np.zeros(count)
    for player in range(count):
        for number in range(2**count):
            if not number >> player & 1:
                gain = worth[number | 1 << player] - worth[number]
                found[player] += gain / (count * comb(count - 1, number.bit_count()))
    return found


def test_of_a_model_it_is_that_of_its_embeddings() -> None:
    text = TEXT[:4]
    x = ran("GPT-2", tuple(text))[1].embeddings
    baseline = x.mean(0)

    def worth(players: set[int]) -> float:
        return value("GPT-2", torch.stack([x[i] if i in players else baseline for i in range(len(x))]))

    result = identiscope.kernel_shap(identiscope.trace(model_of("GPT-2"), text), outcome=read, baseline="mean")
    np.testing.assert_allclose(result["score"], values_of(worth, len(x)), atol=1e-9)
    assert result.attrs["passes"] == 16


def test_a_budget_that_cannot_tell_tokens_apart_is_refused() -> None:
    answer, x, baseline, _ = game(np.zeros(2**9), 9)
    with pytest.raises(InputError, match="budget=20 was given; 9 tokens need at least 36 passes"):
        kernel_shap(answer, x, baseline, budget=20)
    assert not kernel_shap(answer, x, baseline, budget=36).score.any()
