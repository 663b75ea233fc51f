"""Gradients averaged over noise, against the same noise one draw after the other, and means known by hand."""

import numpy as np
import pytest
import torch
from torch import Tensor

import identiscope
from identiscope.errors import InputError
from identiscope.methods.scores.smooth_gradient import smooth_gradient
from plain_families import ran, traced
from reference_outcome import TOLERANCE, gradient, read


@pytest.mark.parametrize("family", ["BERT", "GPT-2", "Llama"])
def test_of_a_model_it_is_the_mean_over_the_same_noise(family: str) -> None:
    """M̂ = 1/n·Σ M(x + N(0, σ²)), σ a share of x_max − x_min (Smilkov et al. 2017, section 3)."""
    x, samples, spread = ran(family)[1].embeddings, 20, 0.02
    result = identiscope.smooth_gradient(traced(family), outcome=read, samples=samples, spread=spread, seed=4)
    generator = torch.Generator().manual_seed(4)
    # All of a draw's numbers come before those of the next.
    noise = torch.cat([torch.randn(some, *x.shape, generator=generator, dtype=torch.float64) for some in (16, 4)])
    deviation = spread * (float(x.max()) - float(x.min()))
    every = []
    for one in noise:
        slopes = gradient(family, x + deviation * one)
        every.append([float(x[i] @ slopes[i]) for i in range(len(x))])
    tolerance = 20 * TOLERANCE[family]
    np.testing.assert_allclose(result["score"], np.mean(every, 0), atol=tolerance)
    np.testing.assert_allclose(result["score_error"], np.std(every, 0, ddof=1) / samples**0.5, atol=tolerance)
    assert float(result["score_error"].min()) > 10 * tolerance


def test_without_noise_it_is_gradient_times_input() -> None:
    quiet = identiscope.smooth_gradient(traced("GPT-2"), outcome=read, spread=1e-9)
    plain = identiscope.gradient_input(traced("GPT-2"), outcome=read)
    np.testing.assert_allclose(quiet["score"], plain["score"], atol=1e-6)
    assert float(quiet["score_error"].max()) < 1e-6


def test_of_a_cube_the_mean_is_known_and_the_error_covers_it() -> None:
    """F = Σ x³: the mean of 3·(x + ε)² is 3·(x² + σ²)."""
    x = torch.tensor([[1.0, -2.0], [0.5, 3.0]], dtype=torch.float64)
    sigma = 0.2 * 5
    expected = (x * 3 * (x**2 + sigma**2)).sum(-1)

    def slopes(texts: Tensor) -> tuple[Tensor, Tensor]:
        return (texts**3).sum((1, 2)), 3 * texts**2

    off = []
    for seed in range(100):
        found = smooth_gradient(slopes, x, samples=64, spread=0.2, seed=seed)
        assert found.error is not None
        off.append(((found.score - expected) / found.error).numpy())
    # Errors of 64 draws are nearly normal: their mean over 100 seeds is within 0.4 of zero, their variance near one.
    assert np.abs(np.mean(off, 0)).max() < 0.4
    assert (np.var(off, 0) > 0.6).all() and (np.var(off, 0) < 1.6).all()


def test_a_budget_is_kept_to() -> None:
    few = identiscope.smooth_gradient(traced("GPT-2"), outcome=read, budget=10)
    three = identiscope.smooth_gradient(traced("GPT-2"), outcome=read, samples=3)
    np.testing.assert_array_equal(few["score"], three["score"])
    assert few.attrs["passes"] == 9
    with pytest.raises(InputError, match="budget=5 was given; two gradients"):
        identiscope.smooth_gradient(traced("GPT-2"), outcome=read, budget=5)


@pytest.mark.parametrize("options", [{"samples": 1}, {"spread": 0.0}, {"spread": float("nan")}])
def test_no_noise_and_no_samples_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(InputError, match="expected at least 2, and a positive share"):
        identiscope.smooth_gradient(traced("GPT-2"), outcome=read, **options)
