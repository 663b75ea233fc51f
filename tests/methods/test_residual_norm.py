"""Lengths with the stream, against ‖Σ_h α_ij·f_h(x_j) + [i = j]·x_i‖ written out."""

import numpy as np
import pytest
from hypothesis import given

from identiscope.methods.mixtures.residual_norm import residual_norm
from plain_families import SIDES
from plain_parts import Shape, random_run, shapes, vectors
from reference_norms import check_family, check_random


@given(shape=shapes)
def test_it_is_the_formula(shape: Shape) -> None:
    check_random(residual_norm, shape, outer=False)


@pytest.mark.parametrize("family", SIDES)
def test_of_a_model_it_is_that_of_its_weights(family: str) -> None:
    check_family("residual_norm", family, outer=False)


@pytest.mark.parametrize("norms", [(), ("outer",), ("front", "inner"), ("inner", "outer")])
def test_what_the_reference_takes_apart_is_all_there_is(norms: tuple[str, ...]) -> None:
    """T_ij of all keys and the biases add up to the state behind the step."""
    for layer in random_run(Shape(1, 4, norms=norms)).layers:
        one = layer.attended[0]
        total = vectors(one).sum(1)
        for query in range(len(total)):
            inner, outer = one.part.inner, one.part.outer
            rest = one.carried(one.part.heads.bias, query)
            if inner is not None and inner.bias is not None:
                rest = rest + one.carried_stream(inner.bias, query)
            if outer is not None and outer.bias is not None:
                rest = rest + outer.bias
            np.testing.assert_allclose(total[query] + rest.numpy(), one.after[query].numpy(), atol=1e-12)
