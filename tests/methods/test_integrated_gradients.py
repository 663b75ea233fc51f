"""Integrated gradients, against Simpson's rule on plain layers, integrals known by hand, and Captum."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

import identiscope
from identiscope.errors import InputError
from identiscope.methods.outcome_runs import Gradients, Values
from identiscope.methods.scores.integrated_gradients import integrated_gradients
from plain_families import ran, traced
from reference_outcome import answers, gradient, read, value


def reference(family: str, baseline: Tensor, count: int = 128) -> np.ndarray:
    """(x − b)·∫ ∂F(b + α·(x − b))/∂x dα by Simpson's rule, one point after the other (Sundararajan et al. 2017)."""
    x = ran(family)[1].embeddings
    total = torch.zeros_like(x)
    for place in range(count + 1):
        weight = 1 if place in (0, count) else 4 if place % 2 else 2
        total += weight / (3 * count) * gradient(family, baseline + place / count * (x - baseline))
    return ((x - baseline) * total).sum(-1).numpy()


@pytest.mark.parametrize("family", ["BERT", "GPT-2", "GPT-NeoX"])
def test_of_a_model_it_is_the_integral(family: str) -> None:
    x = ran(family)[1].embeddings
    baseline = x.mean(0).expand_as(x)
    change = value(family, x) - value(family, baseline)
    result = identiscope.integrated_gradients(
        traced(family), outcome=read, baseline="mean", tolerance=1e-6, budget=3000
    )
    score, facts = result["score"].values, result.attrs
    np.testing.assert_allclose(score, reference(family, baseline), atol=1e-5)
    # Completeness (proposition 1).
    assert abs(facts["promised_sum"] - change) < 1e-9
    assert abs(score.sum() - change) <= 1e-6 * abs(change) and abs(change) > 0.1
    assert abs(facts["residual"] - (score.sum() - change)) < 1e-9
    assert abs(facts["residual"]) <= facts["piecewise_residual"] + 1e-12
    assert facts["passes"] <= 3000


def made(function: Callable[[Tensor], Tensor]) -> tuple[Gradients, Values]:
    """Derivative and value of a function of one text [input, 1], of several."""

    def answer(texts: Tensor) -> Tensor:
        return torch.stack([function(one[:, 0]) for one in texts])

    def slopes(texts: Tensor) -> tuple[Tensor, Tensor]:
        x = texts.clone().requires_grad_()
        values = answer(x)
        return values.detach(), torch.autograd.grad(values.sum(), x)[0]

    return slopes, answer


@pytest.mark.parametrize(
    ("function", "at", "expected"),
    [
        # Powers share a product out by their exponents.
        (lambda x: x[0] * x[1], [2.0, 3.0], [3.0, 3.0]),
        (lambda x: x[0] ** 2 * x[1], [2.0, 3.0], [8.0, 4.0]),
        (lambda x: 5 * x[0] - 2 * x[1] + 1, [2.0, 3.0], [10.0, -6.0]),
        # The paper's own example, section 2.1: f(x) = 1 − ReLU(1 − x) from 0 to 2 gains 1, where the gradient is 0.
        (lambda x: 1 - torch.relu(1 - x[0]) + 0 * x[1], [2.0, 0.0], [1.0, 0.0]),
    ],
)
def test_integrals_that_are_known(function: Callable[[Tensor], Tensor], at: list[float], expected: list[float]) -> None:
    slopes, answer = made(function)
    x = torch.tensor(at, dtype=torch.float64)[:, None]
    found = integrated_gradients(slopes, answer, x, torch.zeros_like(x))
    np.testing.assert_allclose(found.score, expected, atol=1e-12)


def test_what_the_budget_does_not_reach_is_said() -> None:
    """A kink at a place where no piece ends: halving comes nearer, by as much as there is budget."""
    slopes, answer = made(lambda x: torch.relu(x[0] - 1 / 3))
    x = torch.ones(1, 1, dtype=torch.float64)
    residuals = []
    for budget in (41, 150, 600):
        asked: list[int] = []

        def counted(texts: Tensor, asked: list[int] = asked) -> tuple[Tensor, Tensor]:
            asked.append(3 * len(texts))
            return slopes(texts)

        def valued(texts: Tensor, asked: list[int] = asked) -> Tensor:
            asked.append(len(texts))
            return answer(texts)

        found = integrated_gradients(counted, valued, x, torch.zeros_like(x), tolerance=1e-9, budget=budget)
        assert sum(asked) <= budget
        assert abs(found.facts["promised_sum"] - 2 / 3) < 1e-12
        assert abs(found.facts["residual"] - (float(found.score[0]) - 2 / 3)) < 1e-12
        residuals.append(found.facts["piecewise_residual"])
    assert residuals[0] > 2 * residuals[1] > 4 * residuals[2] > 0


def test_a_budget_below_the_least_is_refused() -> None:
    with pytest.raises(InputError, match="expected a positive share, and at least 41 passes"):
        identiscope.integrated_gradients(traced("GPT-2"), outcome=read, budget=20)


def test_captum_says_the_same() -> None:
    captum = pytest.importorskip("captum.attr")
    x = ran("GPT-2")[1].embeddings.detach()
    theirs = captum.IntegratedGradients(answers("GPT-2")).attribute(
        x[None], baselines=x.mean(0).expand_as(x)[None], n_steps=100, method="gausslegendre"
    )
    result = identiscope.integrated_gradients(
        traced("GPT-2"), outcome=read, baseline="mean", tolerance=1e-7, budget=3000
    )
    np.testing.assert_allclose(result["score"], theirs[0].sum(-1), atol=1e-6)
