"""What parts write to an outcome directly, against the stream taken apart forwards with its norms held."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given

import identiscope
from identiscope.methods.scores.direct_logit_attribution import direct_logit_attribution
from plain_families import PRECISION, SIDES, ran, traced
from plain_models import Ran
from plain_parts import Shape, fields, random_run, shapes
from reference_updates import ledger, worths


def direction_of(plain: Ran, seed: int, everywhere: bool) -> np.ndarray:
    drawn = np.random.default_rng(seed).standard_normal(plain.last.shape)
    if not everywhere:
        drawn[:-1] = 0
    return drawn


def expected(plain: Ran, direction: np.ndarray) -> dict[str, np.ndarray]:
    layers, heads, count = len(plain.layers), len(plain.layers[0].attended[0].maps), len(plain.embeddings)
    by_head, feed, score, bias = np.zeros((layers, heads)), np.zeros(layers), np.zeros(count), 0.0
    embedding = np.zeros(count)
    for (layer, name, head, key), worth in worths(plain, direction).items():
        if name == "head":
            by_head[layer, head] += worth.sum()
            score[key] += worth.sum()
        elif name == "feed":
            feed[layer] = worth.sum()
        elif name == "embedding":
            embedding = worth
        else:
            bias += worth.sum()
    return {"by_head": by_head, "feed_forward": feed, "score": score + embedding, "bias": np.array(bias)}


@given(shape=shapes)
def test_it_is_the_stream_taken_apart(shape: Shape) -> None:
    plain = random_run(shape)
    direction = direction_of(plain, shape.seed, shape.causal)
    whole = float((plain.last.numpy() * direction).sum())
    outcome = SimpleNamespace(direction=torch.from_numpy(direction))
    found = direct_logit_attribution(*fields(plain, shape.group), outcome)
    arrays, facts = found.arrays(), found.facts
    right = expected(plain, direction)
    scale = 1 + max(float(np.abs(numbers).max()) for numbers in right.values())
    for name in ("by_head", "feed_forward", "score"):
        np.testing.assert_allclose(arrays[name][1].numpy(), right[name], atol=1e-11 * scale)
    # All parts together are what is read, to rounding.
    assert abs(facts["bias"] - right["bias"]) < 1e-11 * scale
    assert abs(facts["promised_sum"] - whole) < 1e-11 * scale and abs(facts["residual"]) < 1e-11 * scale
    np.testing.assert_allclose(
        arrays["layer_total"][1], right["by_head"].sum(1) + right["feed_forward"], atol=1e-11 * scale
    )


@pytest.mark.parametrize("family", ["GPT-2", "Llama", "Gemma-2", "GPT-NeoX"])
def test_a_head_is_worth_what_the_logit_loses_without_its_direct_path(family: str) -> None:
    """The head's output is taken off the last state, the last norm dividing by what it divided by: read the logit."""
    model, plain = ran(family)
    trace = traced(family)
    result = identiscope.direct_logit_attribution(trace, outcome="logit:id:7")
    unembedding = model.get_output_embeddings().weight[7].detach().double()
    bias = getattr(model.get_output_embeddings(), "bias", None)
    logit = float(plain.last[-1] @ unembedding) + (0.0 if bias is None else float(bias[7]))
    # Gemma caps its logits: the outcome's slope is that of the cap there.
    cap = getattr(model.config, "final_logit_softcapping", None)
    slope = 1.0 if cap is None else 1 - float(np.tanh(logit / cap)) ** 2
    tolerance = PRECISION.get(family, 1e-11) * 10
    assert abs(result.attrs["promised_sum"] - slope * float(plain.last[-1] @ unembedding)) < tolerance * 10
    last = plain.layers[-1].after[-1]
    final = plain.side.final
    assert final is not None
    for layer in range(2):
        one = plain.layers[layer].attended[0]
        for head in range(4):
            wrote = one.maps[head, -1] @ one.value[head] @ one.output[head]
            wrote = wrote if one.part.inner is None else one.part.inner.linear(wrote, one.addition[-1])
            # The last norm, dividing by what it divided by.
            without = final.linear(last - wrote, last) + (0 if final.bias is None else final.bias)
            lost = slope * float((plain.last[-1] - without) @ unembedding)
            assert abs(float(result["by_head"][layer, head]) - lost) < tolerance * (1 + abs(lost))
    assert abs(result.attrs["residual"]) < 10 * tolerance


@pytest.mark.parametrize("family", SIDES)
def test_of_a_model_parts_add_up_and_are_those_of_its_weights(family: str) -> None:
    _, plain = ran(family)
    trace = traced(family)
    direction = direction_of(plain, 5, True)

    def read(run: identiscope.Rerun) -> torch.Tensor:
        return (run.hidden_states[-1] * torch.from_numpy(direction)).sum()

    result = identiscope.direct_logit_attribution(trace, outcome=read)
    right, tolerance = expected(plain, direction), 30 * PRECISION.get(family, 1e-11)
    for name in ("by_head", "feed_forward", "score"):
        np.testing.assert_allclose(result[name], right[name], atol=tolerance)
    assert abs(result.attrs["residual"]) < tolerance
    assert abs(float(result.attrs["outcome_value"]) - result.attrs["promised_sum"]) < tolerance


def test_the_lens_reads_every_state_as_if_it_were_the_last() -> None:
    model, plain = ran("GPT-2")
    result = identiscope.direct_logit_attribution(traced("GPT-2"), outcome="logit:id:7")
    final, row = plain.side.final, model.lm_head.weight[7].detach()
    assert final is not None
    expected_lens = [float(final(layer.after[-1]) @ row) for layer in plain.layers]
    np.testing.assert_allclose(result["lens"], expected_lens, atol=1e-11)
    assert abs(expected_lens[-1] - float(result.attrs["outcome_value"])) < 1e-11


def test_the_ledger_adds_up() -> None:
    """The reference itself: nothing is left out."""
    for norms in ((), ("outer",), ("front", "inner"), ("inner", "outer")):
        for parallel in (False, True):
            plain = random_run(Shape(4, 4, norms=norms, parallel=parallel))
            np.testing.assert_allclose(ledger(plain).whole.numpy(), plain.last.numpy(), atol=1e-11)
