"""From maps and mixtures to a score for an outcome: literally, from plain layers, in float64."""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import identiscope
from identiscope.asking.scoring import scored
from identiscope.methods.outcome_runs import OutcomeRuns
from identiscope.methods.registry import method
from plain_families import ran, traced
from plain_models import run
from reference_outcome import side_of


def pooled(run: identiscope.Rerun) -> torch.Tensor:
    """Reads two tokens, one three times as much as the other."""
    last = run.hidden_states[-1]
    return 3 * last[2, 5] - last[7, 1]


READ = {2: 0.75, 7: 0.25}


def converted(name: str, family: str, **options: Any) -> np.ndarray:
    trace = traced(family)
    runs = OutcomeRuns(trace, [trace.main], pooled)
    return scored(method(name), trace, runs, trace.main.name, options).score


@cache
def maps(family: str) -> list[np.ndarray]:
    return [layer.attended[0].maps.numpy() for layer in ran(family)[1].layers]


def rows(last: np.ndarray) -> np.ndarray:
    """What the outcome reads of each token's row."""
    found = np.zeros(last.shape[1])
    for token, share in READ.items():
        found += share * last[token]
    return found


@pytest.mark.parametrize("family", ["BERT", "GPT-2"])
def test_maps_are_multiplied_up_without_the_stream(family: str) -> None:
    product = np.eye(12)
    for layer in maps(family):
        mean = np.zeros((12, 12))
        for head in layer:
            mean += head / len(layer)
        product = mean @ product
    np.testing.assert_allclose(converted("attention", family), rows(product), atol=1e-10)


@pytest.mark.parametrize("family", ["BERT", "GPT-2"])
def test_rollout_of_an_outcome(family: str) -> None:
    product = np.eye(12)
    for layer in maps(family):
        product = (layer.mean(0) + np.eye(12)) / 2 @ product
    np.testing.assert_allclose(converted("rollout", family), rows(product), atol=1e-10)


@pytest.mark.parametrize("family", ["BERT", "GPT-2"])
def test_hidden_token_attribution_of_an_outcome(family: str) -> None:
    """c_ij = ‖∂e_j/∂x_i‖ / Σ_k ‖∂e_j/∂x_k‖ of the last states (Brunner et al. 2020, eq. 11), those that are read."""
    x = ran(family)[1].embeddings.detach().clone().requires_grad_()
    last = run(side_of(family), x).last
    shares = np.zeros((12, 12))
    for token in READ:
        directions = torch.eye(last.shape[1], dtype=torch.float64)
        (slopes,) = torch.autograd.grad(last[token], x, directions, retain_graph=True, is_grads_batched=True)
        norms = slopes.square().sum((0, 2)).sqrt().numpy()
        shares[token] = norms / norms.sum()
    np.testing.assert_allclose(converted("hidden_token_attribution", family, mode="exact"), rows(shares), atol=1e-9)


def test_of_two_sides_a_map_speaks_of_the_decoder_alone() -> None:
    trace = traced("BART")
    result = identiscope.explain(trace, "logit:id:7", methods=["attention", "rollout", "alti", "saliency"])
    count = len(trace.streams["encoder"])
    unsaid = result["score"].isnull().values
    assert unsaid[:2, :count].all() and not unsaid[:2, count:].any() and not unsaid[2:].any()
    assert "of decoder alone" in str(result["conversion"].values[0])
    assert result["input_stream"].values.tolist() == ["encoder"] * count + ["decoder"] * len(trace.streams["decoder"])


@pytest.mark.parametrize("name", ["direct_logit_attribution", "alti_logit", "attention_lrp", "shapley"])
def test_a_residual_is_by_how_much_the_scores_miss_their_promise(name: str) -> None:
    """Parts that are no input's, such as biases, are in no score: a sum that needs them is not kept by the scores."""
    result = identiscope.explain(traced("GPT-NeoX"), methods=name)
    sum_, promised = float(result["score"].sum()), float(result["promised_sum"].item())
    assert float(result["residual"].item()) == pytest.approx(sum_ - promised, abs=1e-12)
    assert name == "shapley" or abs(sum_ - promised) > 1e-3
