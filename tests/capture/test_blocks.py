"""Blocks are found by name and believed only if they verify."""

from typing import Any

import pytest
import torch

import families
import identiscope
from identiscope.capture.blocks import find_blocks
from identiscope.methods.mixtures.hidden_token_attribution import hidden_token_attribution

KNOWN = {
    "BERT": "BERT", "RoBERTa": "BERT", "ELECTRA": "BERT", "XLM-RoBERTa": "BERT", "CamemBERT": "BERT", "ERNIE": "BERT",
    "ALBERT": "ALBERT", "DistilBERT": "DistilBERT", "GPT-2": "GPT-2", "OPT": "OPT", "BioGPT": "OPT", "Llama": "Llama",
    "Mistral": "Llama", "Qwen2": "Llama", "SmolLM3": "Llama", "Granite": "Llama", "ViT": "ViT", "DeiT": "ViT",
}  # fmt: skip
UNKNOWN = ["DeBERTa-v2", "XLNet", "GPT-NeoX", "Gemma-2", "Qwen3", "GPT-OSS", "BEiT", "Mixtral"]


def traced(name: str) -> identiscope.Trace:
    family = families.ALL[name]
    return identiscope.trace(family.model(), family.inputs())


@pytest.mark.parametrize("name", KNOWN)
def test_known_families_are_recognised_and_verify(name: str) -> None:
    trace = traced(name)
    found = find_blocks(trace)
    assert found.blocks is not None, found.reason
    assert found.family == KNOWN[name] and len(found.blocks.layers) == 2
    assert found.blocks.causal == (trace.kinds == ("decoder-self",))


@pytest.mark.parametrize("name", UNKNOWN)
def test_other_families_say_why_not(name: str) -> None:
    found = find_blocks(traced(name))
    assert found.blocks is None and found.reason


def test_each_tower_has_its_blocks() -> None:
    trace = traced("CLIP")
    text, vision = find_blocks(trace, "text"), find_blocks(trace, "vision")
    assert text.blocks is not None and text.blocks.causal
    assert vision.blocks is not None and not vision.blocks.causal


def test_the_sum_of_embeddings_enters_through_its_norm() -> None:
    trace = traced("BERT")
    found = find_blocks(trace, summed=True)
    total = trace.main.embedding_sum
    assert found.blocks is not None and found.blocks.entry is not None and total is not None

    def replay(x: torch.Tensor) -> Any:
        return trace.replay(x, summed=True)

    composed = hidden_token_attribution(replay, total, found.blocks)
    torch.testing.assert_close(composed.norm, hidden_token_attribution(replay, total).norm)


def test_a_layer_that_does_more_than_its_parts_is_not_believed() -> None:
    """Something that leaves queries, keys, values and all states alone, but not the derivative."""
    family = families.ALL["BERT"]
    model = family.model()
    # Rounds the value away in the forward pass, keeps twice its derivative.
    model.encoder.layer[0].register_forward_hook(lambda layer, args, output: output + (output - output.detach()))
    found = find_blocks(identiscope.trace(model, family.inputs()))
    assert found.blocks is None and "derivative" in found.reason


def test_a_layer_that_returns_something_else_is_not_believed() -> None:
    family = families.ALL["BERT"]
    model = family.model()
    model.encoder.layer[1].register_forward_hook(lambda layer, args, output: output * 1.01)
    found = find_blocks(identiscope.trace(model, family.inputs()))
    assert found.blocks is None and "last hidden state" in found.reason


def test_parts_of_a_trace_are_not_enough() -> None:
    family = families.ALL["BERT"]
    model = family.model()
    assert "attention sites" in find_blocks(identiscope.trace(model, family.inputs(), layers=[0])).reason
    assert "heads" in find_blocks(identiscope.trace(model, family.inputs(), heads=[0])).reason
    weights = torch.full((1, 1, 3, 3), 1 / 3)
    assert "no model" in find_blocks(identiscope.from_arrays(weights, torch.ones(1, 1, 3, 2))).reason
