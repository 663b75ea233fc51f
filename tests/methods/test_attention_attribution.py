"""Self-attention attribution, against Simpson's rule and the paper's own sum on plain layers, and its completeness."""

import numpy as np
import pytest
import torch
from torch import Tensor

import identiscope
from families import ALL, TEXT
from identiscope.errors import InputError
from identiscope.methods.maps.attention_attribution import attention_attribution
from plain_families import traced
from reference_outcome import TOLERANCE, with_maps

FAMILIES = ("BERT", "GPT-2", "Llama")


def small(last: Tensor) -> Tensor:
    """A number that bends little, so that few points do."""
    return torch.tanh(last.sum(-1) / 10).sum() + last[0].square().sum() / 20


def read(run: identiscope.Rerun) -> Tensor:
    return small(run.hidden_states[-1])


def scaled(family: str, layer: int, factor: float) -> tuple[float, np.ndarray, np.ndarray]:
    """F(α·A) of one layer, ∂F(α·A)/∂A, and A itself."""
    kept: list[Tensor] = []

    def change(at: int, maps: Tensor) -> Tensor:
        if at != layer:
            return maps
        kept.extend([maps.detach(), (factor * maps.detach()).requires_grad_()])
        return kept[1]

    total = small(with_maps(family, change).last)
    (slope,) = torch.autograd.grad(total, kept[1])
    return float(total.detach()), slope.numpy(), kept[0].numpy()


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("family", FAMILIES)
def test_of_a_model_it_is_the_integral(family: str, layer: int) -> None:
    result = identiscope.attention_attribution(traced(family), outcome=read, points=48)
    count = 128  # Simpson's rule: weights 1, 4, 2, 4, …, 4, 1
    total = np.zeros(())
    for place in range(count + 1):
        weight = 1 if place in (0, count) else 4 if place % 2 else 2
        total = total + weight / (3 * count) * scaled(family, layer, place / count)[1]
    ends = [scaled(family, layer, factor)[0] for factor in (0.0, 1.0)]
    attribution = scaled(family, layer, 1.0)[2] * total
    np.testing.assert_allclose(result["attention_attribution"][layer], attribution, atol=1e-6 + TOLERANCE[family])
    # What the outcome gains is all there is to attribute (the completeness of integrated gradients).
    assert abs(float(result["outcome_change"][layer]) - (ends[1] - ends[0])) < TOLERANCE[family]
    assert abs(float(result["completeness_residual"][layer])) < 1e-6 + TOLERANCE[family]
    assert abs(ends[1] - ends[0]) > 1e-3
    largest = [attribution[head].max() for head in range(4)]
    np.testing.assert_allclose(result["head_importance"][layer], largest, atol=1e-6 + TOLERANCE[family])


def test_the_residual_is_what_is_missing_and_few_points_do_what_many_of_the_paper_s_do() -> None:
    """Ã = A/m ⊙ Σ_k ∂F(k/m·A)/∂A (eq. 6), m = 20, has a residual; six points of Gauss and Legendre a far smaller."""
    family, layer = "BERT", 0
    result = identiscope.attention_attribution(traced(family), outcome=read)
    found = result["attention_attribution"][layer].values
    change = scaled(family, layer, 1.0)[0] - scaled(family, layer, 0.0)[0]
    assert abs(float(result["completeness_residual"][layer]) - (found.sum() - change)) < 1e-10
    steps = [scaled(family, layer, place / 20)[1] for place in range(1, 21)]
    theirs = scaled(family, layer, 1.0)[2] * sum(steps) / 20
    assert abs(found.sum() - change) < abs(theirs.sum() - change) / 8
    # Both are sums for the same integral.
    assert np.abs(found - theirs).max() < np.abs(theirs).max() / 5


def test_of_a_polynomial_it_is_exact() -> None:
    """F = (Σ c·A)³: A ⊙ ∫ 3α²·(Σ c·A)²·c dα = A ⊙ c·(Σ c·A)²."""
    generator = torch.Generator().manual_seed(0)
    maps, weights = torch.rand(2, 2, 3, 3, generator=generator, dtype=torch.float64)
    total = (weights * maps).sum()

    def path(factors: list[float], slopes: bool = True) -> tuple[Tensor, Tensor | None]:
        at = torch.tensor(factors, dtype=torch.float64)
        return (at * total) ** 3, 3 * (at * total)[:, None, None, None] ** 2 * weights if slopes else None

    found = attention_attribution(maps, path, points=2)
    np.testing.assert_allclose(found.attribution, maps * weights * total**2, atol=1e-12)
    assert abs(float(found.found - found.whole)) < 1e-12 and abs(float(found.whole - total**3)) < 1e-12
    rough = attention_attribution(maps, path, points=1)
    assert abs(float(rough.found - rough.whole) + float(total**3) / 4) < 1e-12  # ¾ of α² is found at α = ½


def test_no_points_are_refused() -> None:
    with pytest.raises(InputError, match="points=0 was given; expected at least 1"):
        identiscope.attention_attribution(traced("BERT"), outcome=read, points=0)


def test_a_model_that_reads_states_by_their_place_in_memory() -> None:
    """GPT takes the same states several times over only as copies."""
    trace = identiscope.trace(ALL["GPT"].model(), TEXT)
    result = identiscope.attention_attribution(trace, outcome="logit:id:7")
    assert float(np.abs(result["completeness_residual"]).max()) < 1e-3 * float(np.abs(result["outcome_change"]).max())
