"""What layers bring to an outcome, carried to the inputs, against the stream taken apart forwards and ALTI by loops."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import identiscope
from identiscope.methods.scores.alti_logit import alti_logit
from plain_families import PRECISION, SIDES, ran, ran_two_sided, traced
from plain_models import Ran, run
from plain_parts import Shape, random_run, random_side, shapes, side
from reference_alti import rolled
from reference_updates import worths


def reference(
    plain: Ran, direction: np.ndarray, feed_forward: bool, encoder: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Σ_l Σ_j Δ_l,j·M_l−1,ji and what each layer has in it [layer, input] (Ferrando et al. 2023, eq. 9 to 12)."""
    after, before = rolled(plain, encoder)
    by_layer, first = np.zeros((len(plain.layers), before[0].shape[1])), np.zeros(before[0].shape[1])
    for (layer, name, _, key), worth in worths(plain, direction).items():
        if name == "head":
            by_layer[layer] += worth.sum() * before[layer][key]
        elif name == "cross":
            assert encoder is not None
            by_layer[layer, : encoder.shape[1]] += worth.sum() * encoder[key]
        elif name == "embedding":
            for token, own in enumerate(worth):
                first += own * before[0][token]
        elif name == "feed" and feed_forward:
            reads = before if plain.layers[layer].feeds.parallel else after
            for token, own in enumerate(worth):
                by_layer[layer] += own * reads[layer][token]
    return by_layer.sum(0) + first, by_layer


def drawn(plain: Ran, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(plain.last.shape)


@given(shape=shapes, feed_forward=st.booleans())
def test_it_is_the_formula(shape: Shape, feed_forward: bool) -> None:
    plain = random_run(shape)
    direction = drawn(plain, shape.seed)
    outcome = SimpleNamespace(direction=torch.from_numpy(direction))
    found = alti_logit([side(plain)], outcome, feed_forward=feed_forward)
    score, by_layer = reference(plain, direction, feed_forward)
    scale = 1 + np.abs(by_layer).max()
    np.testing.assert_allclose(found.score.numpy(), score, atol=1e-10 * scale)
    np.testing.assert_allclose(found.arrays()["by_layer"][1].numpy(), by_layer, atol=1e-10 * scale)
    whole = float((plain.last.numpy() * direction).sum())
    assert found.whole is not None and abs(found.whole - whole) < 1e-10 * scale


@given(shape=shapes, read=st.integers(1, 4), feed_forward=st.booleans())
def test_a_decoder_brings_what_it_reads_of_an_encoder(shape: Shape, read: int, feed_forward: bool) -> None:
    first = random_run(replace(shape, tokens=read, causal=False, norms=("outer",)))
    own = random_side(replace(shape, cross=read, seed=shape.seed + 1, norms=("outer",)))
    second = run(own, first.last[: 1 + shape.seed % read].flip(0) + 0.5, encoder=first.last)
    direction = drawn(second, shape.seed)
    outcome = SimpleNamespace(direction=torch.from_numpy(direction))
    found = alti_logit([side(first), side(second)], outcome, feed_forward=feed_forward)
    score, by_layer = reference(second, direction, feed_forward, rolled(first)[0][-1])
    scale = 1 + np.abs(by_layer).max()
    np.testing.assert_allclose(found.score.numpy(), score, atol=1e-10 * scale)
    np.testing.assert_allclose(found.arrays()["by_layer"][1].numpy(), by_layer, atol=1e-10 * scale)


@pytest.mark.parametrize("feed_forward", [False, True])
@pytest.mark.parametrize("family", SIDES)
def test_of_a_model_it_is_that_of_its_weights(family: str, feed_forward: bool) -> None:
    _, plain = ran(family)
    direction = drawn(plain, 3)

    def read(run: identiscope.Rerun) -> torch.Tensor:
        return (run.hidden_states[-1] * torch.from_numpy(direction)).sum()

    result = identiscope.alti_logit(traced(family), outcome=read, feed_forward=feed_forward)
    score, by_layer = reference(plain, direction, feed_forward)
    tolerance = 100 * PRECISION.get(family, 1e-12)
    np.testing.assert_allclose(result["score"], score, atol=tolerance)
    np.testing.assert_allclose(result["by_layer"], by_layer, atol=tolerance)


def test_of_a_model_of_two_sides_it_is_that_of_both() -> None:
    model, given_, encoder, decoder = ran_two_sided()
    trace = identiscope.trace(model, given_)
    result = identiscope.alti_logit(trace, outcome="logit:id:7")
    direction = np.zeros(decoder.last.shape)
    direction[-1] = model.lm_head.weight[7].detach().numpy()
    score, by_layer = reference(decoder, direction, False, rolled(encoder)[0][-1])
    np.testing.assert_allclose(result["score"], score, atol=1e-10)
    np.testing.assert_allclose(result["by_layer"], by_layer, atol=1e-10)
    assert len(score) == len(encoder.embeddings) + len(decoder.embeddings)


def test_what_is_left_out_is_the_residual() -> None:
    """Feed-forward parts and biases: where they are shared out or are not there, scores add up to what is read."""
    shape = Shape(5, 4, norms=("front",), centred=False)
    own = random_side(shape)
    bare = replace(
        own,
        layers=[([replace(part, heads=replace(part.heads, bias=0 * part.heads.bias)) for part in parts], feeds)
                for parts, feeds in own.layers],
        final=None,
    )  # fmt: skip
    plain = run(bare, random_run(shape).embeddings)
    outcome = SimpleNamespace(direction=torch.from_numpy(drawn(plain, 0)))
    assert abs(alti_logit([side(plain)], outcome, feed_forward=True).facts["residual"]) < 1e-11
    assert abs(alti_logit([side(plain)], outcome).facts["residual"]) > 1e-2
