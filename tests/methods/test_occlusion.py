"""Occlusion, against passes of plain layers, and of models themselves, without each token."""

import numpy as np
import pytest
import torch
from torch import Tensor

import identiscope
from families import TEXT
from identiscope.errors import InputError
from plain_families import SIDES, model_of, ran, traced
from reference_outcome import TOLERANCE, answers, read, value


@pytest.mark.parametrize("name", ["mean", "zero"])
@pytest.mark.parametrize("family", SIDES)
def test_of_a_model_it_is_what_is_lost_with_each_embedding(family: str, name: str) -> None:
    x = ran(family)[1].embeddings
    rows = x.mean(0) if name == "mean" else torch.zeros_like(x[0])
    whole, expected = value(family, x), []
    for token in range(len(x)):
        without = x.clone()
        without[token] = rows
        expected.append(whole - value(family, without))
    result = identiscope.occlusion(traced(family), outcome=read, baseline=name)
    np.testing.assert_allclose(result["score"], expected, atol=20 * TOLERANCE[family])
    assert result.attrs["passes"] == len(x) + 1


@pytest.mark.parametrize("family", ["GPT-2", "Llama", "GPT-NeoX"])
def test_deleted_tokens_are_gone_from_the_ids(family: str) -> None:
    """The model on the ids that are left, positions counted anew; the outcome is read at the last token that is."""
    model, expected = model_of(family), []

    def logit(ids: list[int]) -> float:
        with torch.no_grad():
            return float(model(torch.tensor([ids])).logits[0, -1, 7])

    for token in range(len(TEXT)):
        expected.append(logit(TEXT) - logit(TEXT[:token] + TEXT[token + 1 :]))
    result = identiscope.occlusion(traced(family), outcome="logit:id:7", how="delete")
    np.testing.assert_allclose(result["score"], expected, atol=20 * TOLERANCE[family])


def test_a_token_cannot_be_deleted_from_a_text_of_one() -> None:
    trace = identiscope.trace(model_of("GPT-2"), TEXT[:1])
    with pytest.raises(InputError, match="the text has one token, which cannot be deleted"):
        identiscope.occlusion(trace, outcome="logit:id:7", how="delete")
    zero = identiscope.occlusion(trace, outcome="logit:id:7", baseline="zero")
    assert zero["score"].shape == (1,) and abs(float(zero["score"][0])) > 1e-6


def test_captum_says_the_same() -> None:
    captum = pytest.importorskip("captum.attr")
    x = ran("GPT-2")[1].embeddings.detach()
    tokens = torch.arange(len(x))[None, :, None].expand(1, *x.shape)
    baseline: Tensor = x.mean(0).expand_as(x)[None]
    theirs = captum.FeatureAblation(answers("GPT-2")).attribute(x[None], baselines=baseline, feature_mask=tokens)
    result = identiscope.occlusion(traced("GPT-2"), outcome=read, baseline="mean")
    np.testing.assert_allclose(result["score"], theirs[0, :, 0].detach(), atol=1e-10)
