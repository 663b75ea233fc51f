"""Lengths behind both norms of a layer, against their linear parts written out, one after the other."""

import numpy as np
import pytest
from hypothesis import given

import identiscope
from identiscope.methods.mixtures.globenc import globenc
from plain_families import SIDES, traced
from plain_parts import Shape, shapes
from reference_norms import check_family, check_random


@given(shape=shapes)
def test_it_is_the_formula(shape: Shape) -> None:
    check_random(globenc, shape, outer=True, feed_norm=True)


@pytest.mark.parametrize("family", SIDES)
def test_of_a_model_it_is_that_of_its_weights(family: str) -> None:
    check_family("globenc", family, outer=True, feed_norm=True)


def test_the_second_norm_counts() -> None:
    """Its gain is another for each channel, and so are the shares behind it; what it divides by is the same for all."""
    trace = traced("BERT")
    first, both = (identiscope.ask(name, trace)["step"].values for name in ("layer_norm_norm", "globenc"))
    assert np.abs(first - both).max() > 1e-3
