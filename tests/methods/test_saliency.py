"""Lengths of gradients, against derivatives of plain layers, and Captum."""

import numpy as np
import pytest

import identiscope
from plain_families import SIDES, ran, traced
from reference_outcome import TOLERANCE, answers, gradient, read


@pytest.mark.parametrize("family", SIDES)
def test_of_a_model_it_is_the_length_of_the_derivative(family: str) -> None:
    slopes = gradient(family, ran(family)[1].embeddings).numpy()
    lengths = np.array([np.sqrt(sum(entry**2 for entry in row)) for row in slopes])
    result = identiscope.saliency(traced(family), outcome=read)
    np.testing.assert_allclose(result["score"], lengths, atol=10 * TOLERANCE[family])
    # Hidden Token Attribution (Brunner et al. 2020, eq. 11) with the outcome in place of a hidden token.
    np.testing.assert_allclose(result["share"], lengths / lengths.sum(), atol=10 * TOLERANCE[family])


def test_a_token_that_is_not_read_has_none() -> None:
    result = identiscope.saliency(traced("GPT-2"), outcome="logit:id:7@4")
    assert not result["score"].values[5:].any() and (result["score"].values[:5] > 0).all()


def test_captum_says_the_same() -> None:
    captum = pytest.importorskip("captum.attr")
    x = ran("GPT-2")[1].embeddings.detach().clone().requires_grad_()
    theirs = captum.Saliency(answers("GPT-2")).attribute(x[None], abs=False)[0].norm(dim=-1).detach()
    result = identiscope.saliency(traced("GPT-2"), outcome=read)
    np.testing.assert_allclose(result["score"], theirs, atol=1e-10)
