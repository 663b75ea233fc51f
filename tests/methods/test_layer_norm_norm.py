"""Lengths behind the norm of the sum, against its linear part at this input written out."""

import numpy as np
import pytest
from hypothesis import given

import identiscope
from identiscope.methods.mixtures.layer_norm_norm import layer_norm_norm
from plain_families import SIDES, traced
from plain_parts import Shape, shapes
from reference_norms import check_family, check_random


@given(shape=shapes)
def test_it_is_the_formula(shape: Shape) -> None:
    check_random(layer_norm_norm, shape, outer=True)


@pytest.mark.parametrize("family", SIDES)
def test_of_a_model_it_is_that_of_its_weights(family: str) -> None:
    check_family("layer_norm_norm", family, outer=True)


@pytest.mark.parametrize(("family", "alike"), [("BERT", False), ("GPT-2", True), ("Gemma-2", True)])
def test_a_norm_in_front_or_of_what_is_added_is_none_behind_the_sum(family: str, alike: bool) -> None:
    trace = traced(family)
    one, other = (identiscope.ask(name, trace)["step"].values for name in ("residual_norm", "layer_norm_norm"))
    assert (np.abs(one - other).max() < 1e-12) == alike
