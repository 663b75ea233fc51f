"""What head outputs depend on, against all derivatives of plain layers, entry by entry."""

import numpy as np
import pytest
import torch
from torch import Tensor

import identiscope
from identiscope.errors import InputError
from identiscope.methods.mixtures.head_output_gradient import head_output_gradient
from plain_families import ran, traced
from plain_models import run
from reference_outcome import TOLERANCE, side_of

FAMILIES = ("BERT", "GPT-2", "Llama")
WIDTH = 32


def reference(family: str) -> np.ndarray:
    """‖∂(A_h·V_h·H_h)_i / ∂x_j‖, Frobenius, [layer, head, i, j] (Pascual et al. 2021, eq. 3), by one row of the
    Jacobian after the other."""
    x = ran(family)[1].embeddings.detach().clone().requires_grad_()
    layers = run(side_of(family), x).layers
    count = len(x)
    found = np.zeros((len(layers), 4, count, count))
    for number, layer in enumerate(layers):
        one = layer.attended[0]
        for head in range(4):
            moved: Tensor = one.maps[head] @ one.value[head] @ one.output[head]
            rows = torch.eye(moved.numel(), dtype=torch.float64).view(-1, *moved.shape)
            (slopes,) = torch.autograd.grad(moved, x, rows, retain_graph=True, is_grads_batched=True)
            squares = slopes.view(count, WIDTH, count, WIDTH).square().sum((1, 3))
            found[number, head] = squares.sqrt().numpy()
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_with_as_many_directions_as_the_model_is_wide_it_is_exact(family: str) -> None:
    trace, expected = traced(family), reference(family)
    result = identiscope.head_output_gradient(trace, probes=WIDTH)
    scale = expected.max()
    np.testing.assert_allclose(result["norm"], expected, atol=scale * max(TOLERANCE[family], 1e-9))
    np.testing.assert_allclose(
        result["head_output_gradient"], expected / expected.sum(-1, keepdims=True), atol=max(TOLERANCE[family], 1e-9)
    )
    assert float(result["norm_error"].max()) < 1e-9 * scale
    for layer in range(2):
        for head in range(4):
            maps, share = trace.site(layer).attention(head), result["head_output_gradient"][layer, head].values
            correlation = np.corrcoef(maps.numpy().ravel(), share.ravel())[0, 1]
            assert abs(float(result["agreement_with_attention"][layer, head]) - correlation) < 1e-9


def test_an_estimate_is_right_on_average_and_so_is_its_error() -> None:
    """Heads that are linear in the embeddings, so that all derivatives are known; many draws of few directions."""
    tokens, width, channels, draws = 3, 10, 4, 400
    generator = torch.Generator().manual_seed(0)
    jacobian = torch.randn(2, tokens, channels, tokens, width, generator=generator, dtype=torch.float64)
    projection = torch.randn(2, channels, 7, generator=generator, dtype=torch.float64)

    def tangents(moved: Tensor) -> list[Tensor]:
        return [torch.einsum("hqcjw,tjw->thqc", jacobian, moved)]

    exact = torch.einsum("hqcjw,hcm->hqmjw", jacobian, projection).square().sum((2, 4)).numpy()
    maps, x = [torch.full((2, tokens, tokens), 1 / 3)], torch.zeros(tokens, width, dtype=torch.float64)
    off, said = np.zeros((draws, *exact.shape)), np.zeros((draws, *exact.shape))
    for seed in range(draws):
        found = head_output_gradient(tangents, x, maps, [projection], probes=4, seed=seed)
        off[seed] = found.norm[0].square().numpy() / exact - 1
        # √y is off by half of what y is, as a share.
        said[seed] = (2 * found.error[0] / found.norm[0]).square().numpy() * (
            found.norm[0].square().numpy() / exact
        ) ** 2
    # Squares of norms are unbiased: their mean over draws is within four of its own standard errors.
    assert (np.abs(off.mean(0)) < 4 * off.std(0) / draws**0.5).all()
    # And so is the variance that is said of them; 18 cells of 400 draws tell it to a tenth.
    assert 0.9 < said.mean() / np.square(off).mean() < 1.1


def test_one_direction_is_refused() -> None:
    with pytest.raises(InputError, match="probes=1 was given; an error bar needs at least 2"):
        identiscope.head_output_gradient(traced("GPT-2"), probes=1)
