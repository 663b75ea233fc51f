"""Attention times its gradient, against plain layers: their derivatives, and quotients of differences."""

import numpy as np
import pytest
import torch
from torch import Tensor

import identiscope
from plain_families import SIDES, traced
from reference_outcome import TOLERANCE, map_gradients, number, read, with_maps


@pytest.mark.parametrize("family", SIDES)
def test_of_a_model_it_is_attention_times_the_derivative(family: str) -> None:
    result = identiscope.gradient_attention(traced(family), outcome=read)
    for layer, (maps, slopes) in enumerate(map_gradients(family)):
        np.testing.assert_allclose(result["gradient_attention"][layer], maps * slopes, atol=TOLERANCE[family])
    assert np.abs(result["gradient_attention"]).max() > 1e-2


@pytest.mark.parametrize(("layer", "head", "query", "key"), [(0, 0, 3, 1), (0, 3, 11, 11), (1, 2, 7, 0)])
def test_a_cell_is_what_the_outcome_gains_with_its_weight(layer: int, head: int, query: int, key: int) -> None:
    """(F(A + h) − F(A − h)) / 2h, no other weight of the layer moving with it, times the weight."""
    step = 1e-5

    def moved(by: float) -> float:
        def change(at: int, maps: Tensor) -> Tensor:
            cell = torch.zeros_like(maps)
            cell[head, query, key] = by if at == layer else 0.0
            return maps + cell

        return float(number(with_maps("GPT-2", change).last))

    result = identiscope.gradient_attention(traced("GPT-2"), outcome=read)
    weight = float(traced("GPT-2").site(layer).attention(head)[query, key])
    quotient = (moved(step) - moved(-step)) / (2 * step)
    found = float(result["gradient_attention"][layer, head, query, key])
    assert abs(found - weight * quotient) < 1e-8 and abs(found) > 1e-6


def test_what_is_not_seen_and_what_is_not_read_is_zero() -> None:
    """No weight on later tokens; and in the last layer only the row of the token that is read counts."""
    result = identiscope.gradient_attention(traced("GPT-2"), outcome="logit:id:7@4")["gradient_attention"].values
    assert not np.triu(result, 1).any()
    assert not np.delete(result[1], 4, axis=1).any() and result[1, :, 4].any()
    assert not result[0, :, 5:].any() and result[0, :, :5].any()
