"""Gradient times input, against derivatives of plain layers, quotients of differences, and Captum."""

import numpy as np
import pytest
import torch
from torch import Tensor

import identiscope
from plain_families import SIDES, bart, ran, ran_two_sided, traced
from plain_models import run
from reference_outcome import TOLERANCE, answers, gradient, read, value


@pytest.mark.parametrize("family", SIDES)
def test_of_a_model_it_is_input_times_derivative(family: str) -> None:
    x = ran(family)[1].embeddings
    slopes = gradient(family, x)
    expected = [sum(x[i, c] * slopes[i, c] for c in range(x.shape[1])) for i in range(len(x))]
    result = identiscope.gradient_input(traced(family), outcome=read)
    np.testing.assert_allclose(result["score"], expected, atol=10 * TOLERANCE[family])
    assert abs(result.attrs["outcome_value"] - value(family, x)) < 10 * TOLERANCE[family]


def test_it_is_what_the_outcome_loses_to_first_order() -> None:
    x, step = ran("GPT-2")[1].embeddings, 1e-5
    result = identiscope.gradient_input(traced("GPT-2"), outcome=read)
    for token in range(len(x)):
        grown, shrunk = x.clone(), x.clone()
        grown[token] *= 1 + step
        shrunk[token] *= 1 - step
        quotient = (value("GPT-2", grown) - value("GPT-2", shrunk)) / (2 * step)
        assert abs(float(result["score"][token]) - quotient) < 1e-6


def test_a_decoder_s_outcome_is_of_both_sides_inputs() -> None:
    model, _, encoder, decoder = ran_two_sided()
    first, second = (one.embeddings.detach().clone().requires_grad_() for one in (encoder, decoder))
    states = run(bart(model, "encoder"), first).last
    last = run(bart(model, "decoder"), second, encoder=states).last
    slopes = torch.autograd.grad(last[-1] @ model.lm_head.weight[7].detach(), [first, second])
    both = [(x * slope).sum(-1).detach() for x, slope in zip((first, second), slopes, strict=True)]
    result = identiscope.gradient_input(traced("BART"), outcome="logit:id:7")
    np.testing.assert_allclose(result["score"], torch.cat(both), atol=1e-10)


def test_captum_says_the_same() -> None:
    captum = pytest.importorskip("captum.attr")
    x = ran("GPT-2")[1].embeddings.detach().clone().requires_grad_()
    theirs: Tensor = captum.InputXGradient(answers("GPT-2")).attribute(x[None]).sum(-1)[0].detach()
    result = identiscope.gradient_input(traced("GPT-2"), outcome=read)
    np.testing.assert_allclose(result["score"], theirs, atol=1e-10)
