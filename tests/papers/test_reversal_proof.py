"""Proof by substitution in a model that is no transformer, and its recurrent hidden states."""

import pytest
import torch

import identiscope
from identiscope.papers.structure_draft.reversal_model import (
    ReversalConfig,
    ReversalModel,
    reversal_inputs,
    reversal_samples,
)


@pytest.fixture(scope="module")
def model() -> ReversalModel:
    torch.manual_seed(0)
    return ReversalModel(ReversalConfig(length=9, vocabulary=4, width=16)).eval()


def test_an_alternative_changes_nothing_and_a_random_map_does(model: ReversalModel) -> None:
    inputs = reversal_inputs(model, reversal_samples(model.config, 1, seed=0))
    trace = identiscope.trace(model, inputs)
    proof = identiscope.prove(model, inputs, 0, 0, identiscope.attention_alternative(trace, 0, 0))
    assert float(proof.logits.sel(map="alternative")) < 1e-5
    assert float(proof.logits.sel(map="random")) > 1e-3
    assert float(proof.ratio) > 100  # of the logits: no recurrent layer follows the attention


def test_what_the_recurrent_layers_read_and_return_are_hidden_states(model: ReversalModel) -> None:
    trace = identiscope.trace(model, reversal_inputs(model, reversal_samples(model.config, 1, seed=0)))
    for stream, read in (("encoder", 4), ("decoder", 5)):
        assert [tuple(state.shape) for state in trace.streams[stream].hidden_states] == [(9, read), (9, 16)]
    site = trace.site(0, "cross", "decoder")
    assert torch.equal(site.value[0], trace.streams["encoder"].hidden_states[1])


def test_a_model_that_shows_no_hidden_states_can_be_proved_on() -> None:
    class SelfAttention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mixed, self.output = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.mixed(x)
            return self.output(torch.nn.functional.scaled_dot_product_attention(y, y, y))

    torch.manual_seed(0)
    module, x = SelfAttention(), torch.randn(9, 6)
    proof = identiscope.prove(module, x, 0, 0, identiscope.attention_alternative(identiscope.trace(module, x), 0, 0))
    assert bool(proof.hidden_states.isnull().all())
    assert float(proof.ratio) > 100
