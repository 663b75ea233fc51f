"""Lengths behind the norm of the sum, against its linear part at this input written out."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

import identiscope
from identiscope.methods.mixtures.layer_norm_norm import layer_norm_norm
from plain_families import SIDES, ran, traced
from plain_parts import Shape, shapes
from reference_norms import check_family, check_random, norm_mixture


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


def test_the_four_ratios_of_the_paper_are_those_of_the_weights() -> None:
    """docs/mixing_ratios.py, on a tiny model; its published numbers are of one that is not here."""
    script = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "mixing_ratios.py"))
    plain, weights, moved = ran("BERT")[1], [], []
    for layer in plain.layers:
        one = layer.attended[0]
        maps, value, output = one.maps.numpy(), one.value.numpy(), one.output.numpy()
        vectors = np.einsum("hij,hjc,hcm->ijm", maps, value, output)
        for i in range(len(vectors)):
            weights.append(1 - maps[:, i, i].mean())
            others, own = np.delete(vectors[i], i, 0).sum(0), vectors[i, i]
            moved.append(np.linalg.norm(others) / (np.linalg.norm(others) + np.linalg.norm(own)))
    behind = [norm_mixture(plain, outer=outer)[2].mean() for outer in (False, True)]
    found = script["ratios"](traced("BERT"))
    np.testing.assert_allclose(list(found.values()), [np.mean(weights), np.mean(moved), *behind], atol=1e-9)
    assert list(found) == list(script["PUBLISHED"])
