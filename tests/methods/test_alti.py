"""ALTI, and ALTI+ of encoder and decoder, against the formula by loops."""

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import identiscope
from identiscope.linalg import decomposition
from identiscope.methods.mixtures.alti import alti
from plain_families import PRECISION, SIDES, ran, ran_two_sided, traced
from plain_models import Ran, run
from plain_parts import Shape, random_run, random_side, shapes, side
from reference_alti import own_contributions, rolled


@given(shape=shapes)
def test_it_is_the_formula(shape: Shape) -> None:
    plain = random_run(shape)
    found = alti([side(plain)])
    np.testing.assert_allclose(
        found.step.numpy(), [own_contributions(one.attended[0]) for one in plain.layers], atol=1e-12
    )
    np.testing.assert_allclose(found.rolled.numpy(), rolled(plain)[0], atol=1e-12)


@given(shape=shapes, held=st.integers(1, 60))
def test_vectors_of_pairs_are_the_same_however_few_are_held(shape: Shape, held: int) -> None:
    of = side(random_run(shape))
    usual = alti([of]).rolled
    with patch.object(decomposition, "_NUMBERS", held):
        torch.testing.assert_close(alti([of]).rolled, usual, atol=1e-12, rtol=0)


@given(shape=shapes, read=st.integers(1, 4))
def test_a_decoder_shares_out_what_it_reads_of_an_encoder(shape: Shape, read: int) -> None:
    first = random_run(replace(shape, tokens=read, causal=False, norms=("outer",)))
    own = random_side(replace(shape, cross=read, seed=shape.seed + 1, norms=("outer",)))
    second = run(own, first.last[: 1 + shape.seed % read].flip(0) + 0.5, encoder=first.last)
    found = alti([side(first), side(second)])
    expected, _ = rolled(second, rolled(first)[0][-1])
    np.testing.assert_allclose(found.rolled.numpy(), expected, atol=1e-12)
    assert found.rolled.shape == (shape.layers, len(second.embeddings), read + len(second.embeddings))


@pytest.mark.parametrize("family", SIDES)
def test_of_a_model_it_is_that_of_its_weights(family: str) -> None:
    _, plain = ran(family)
    result = identiscope.alti(traced(family))
    np.testing.assert_allclose(result["mixture"], rolled(plain)[0], atol=PRECISION.get(family, 1e-12) * 10)


def test_of_a_model_of_two_sides_it_is_that_of_both() -> None:
    model, given_, encoder, decoder = ran_two_sided()
    trace = identiscope.trace(model, given_)
    below, _ = rolled(encoder)
    np.testing.assert_allclose(identiscope.alti(trace, stream="encoder")["mixture"], below, atol=1e-12)
    result = identiscope.alti(trace)
    np.testing.assert_allclose(result["mixture"], rolled(decoder, below[-1])[0], atol=1e-12)
    assert tuple(result["input_token"].values) == (*trace.streams["encoder"].tokens, *trace.streams["decoder"].tokens)
    np.testing.assert_allclose(result["mixture"].sum("input"), 1, atol=1e-12)


def _away(ran_: Ran) -> Ran:
    """The same with a state that no part of it helps: all are turned around."""
    layer = ran_.layers[0]
    one = replace(layer.attended[0], after=-100 * torch.ones_like(layer.before))
    return replace(ran_, layers=[replace(layer, attended=[one])])


def test_a_row_without_a_part_that_helps_stays_zero() -> None:
    plain = random_run(Shape(0, 3, layers=1, norms=()))
    one = plain.layers[0].attended[0]
    # Every part is positive and the state is far on the other side, as a bias may put it.
    lifted = replace(one, value=one.value * 0 + 1, before=one.before.abs() + 1)
    lifted = replace(lifted, part=replace(one.part, heads=replace(one.part.heads, output=one.output.abs())))
    odd = _away(replace(plain, layers=[replace(plain.layers[0], attended=[lifted])]))
    assert not alti([side(odd)]).step.any() and not own_contributions(odd.layers[0].attended[0]).any()
