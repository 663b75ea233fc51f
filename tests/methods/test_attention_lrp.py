"""Relevance through attention by changed derivatives, against messages passed down layer by layer."""

import copy

import numpy as np
import pytest
import torch
from torch import Tensor

import identiscope
from families import TEXT
from plain_families import PRECISION, SIDES, model_of, ran, traced
from reference_outcome import number, read
from reference_relevance import relevance, turned, turned_back


def at_last(last: Tensor) -> Tensor:
    """What is shared out: the last states times the outcome's derivative there."""
    last = last.detach().clone().requires_grad_()
    (slope,) = torch.autograd.grad(number(last), last)
    return (last * slope).detach()


@pytest.mark.parametrize("family", SIDES)
def test_of_a_model_it_is_what_messages_leave_at_its_inputs(family: str) -> None:
    plain = ran(family)[1]
    result = identiscope.attention_lrp(traced(family), outcome=read)
    expected = relevance(plain, at_last(plain.last))[0].numpy()
    # Relevance of sums that cancel is large, and so is its rounding.
    tolerance = 100 * PRECISION.get(family, 1e-13) * max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(result["score"], expected, atol=tolerance)
    whole = float(at_last(plain.last).sum())
    assert abs(result.attrs["promised_sum"] - whole) < tolerance
    assert abs(result.attrs["residual"] - (expected.sum() - whole)) < 10 * tolerance


def test_of_a_logit_it_begins_at_the_logit() -> None:
    """The head is linear: its relevance is shared out among the channels of the token that is read."""
    plain, row = ran("GPT-2")[1], model_of("GPT-2").lm_head.weight[7].detach()
    top = torch.zeros_like(plain.last)
    top[-1] = plain.last[-1] * row
    result = identiscope.attention_lrp(traced("GPT-2"), outcome="logit:id:7")
    np.testing.assert_allclose(result["score"], relevance(plain, top)[0], atol=1e-9)
    assert abs(result.attrs["promised_sum"] - float(plain.last[-1] @ row)) < 1e-10
    assert result.attrs["outcome_value"] == pytest.approx(result.attrs["promised_sum"], abs=1e-10)


def test_without_biases_only_softmax_keeps_relevance_to_itself() -> None:
    """A Llama has no biases: what is missing at its inputs is what its softmaxes have kept, and with nothing that
    attention writes nothing is missing."""
    plain = ran("Llama")[1]
    result = identiscope.attention_lrp(traced("Llama"), outcome=read)
    _, lost = relevance(plain, at_last(plain.last))
    assert abs(result.attrs["residual"] + lost) < 1e-4 and abs(lost) > 1e-1
    silent = copy.deepcopy(model_of("Llama"))
    with torch.no_grad():
        for layer in silent.model.layers:
            layer.self_attn.o_proj.weight.zero_()
    found = identiscope.attention_lrp(identiscope.trace(silent, TEXT), outcome="logit:id:7")
    assert abs(found.attrs["residual"]) < 1e-6 and abs(found.attrs["promised_sum"]) > 1e-2
    assert not found["score"].values[:-1].any()  # and nothing comes from other tokens


def test_no_relevance_goes_where_the_outcome_cannot_come_from() -> None:
    result = identiscope.attention_lrp(traced("GPT-2"), outcome="logit:id:7@4")
    assert not result["score"].values[5:].any() and result["score"].values[:5].all()


def test_the_model_is_left_as_it_was() -> None:
    before = identiscope.gradient_input(traced("Llama"), outcome=read)
    lrp = identiscope.attention_lrp(traced("Llama"), outcome=read)
    after = identiscope.gradient_input(traced("Llama"), outcome=read)
    np.testing.assert_array_equal(before["score"], after["score"])
    assert np.abs(lrp["score"] - before["score"]).max() > 1e-3


def test_the_reference_turns_back_what_it_turned() -> None:
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    np.testing.assert_allclose(turned_back(turned(x, 6), 6), x, atol=1e-7)
    assert float((turned(x, 6) - x).abs().max()) > 0.1 and torch.equal(turned(x, 6)[:, 6:], x[:, 6:])
