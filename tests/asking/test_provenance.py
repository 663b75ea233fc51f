"""Every result of a trace says of which model and text it is, and with which options it was made."""

import copy
import inspect
from typing import Any

import pytest
import torch
import xarray as xr

import identiscope
from identiscope.asking.provenance import trace_digests
from identiscope.asking.structure.equivalence import equivalence_under_texts
from identiscope.capture.digests import configuration_hash, input_hash, model_hash
from identiscope.papers.brunner2020.attention_figures import attention_between_types, correlation_by_length
from identiscope.results import load_result, save_result

TEXT = "The cat sat on the mat, and the dog looked on."
OTHER = "A dog ran over the hill, and the cat slept on."
NOT_OPTIONS = {"trace", "progress", "model", "text", "texts", "alternative", "first", "second", "resume", "traces"}


@pytest.fixture(scope="module")
def traces(minilm: identiscope.Model) -> list[identiscope.Trace]:
    found = identiscope.trace(minilm, [TEXT, OTHER])
    assert isinstance(found, list)
    return found


def results(model: identiscope.Model, traces: list[identiscope.Trace]) -> dict[Any, xr.Dataset]:
    one = traces[0]
    other = identiscope.attention_alternative(one, 1, 2, rows=[3])
    return {
        identiscope.attention_identifiability: identiscope.attention_identifiability(one, layers=[1]),
        identiscope.attention_maps: identiscope.attention_maps(one, 1, 2),
        identiscope.attention_intervals: identiscope.attention_intervals(one, 1, 2, cells=[(3, 1)]),
        identiscope.attention_alternative: other,
        identiscope.prove: identiscope.prove(
            model, TEXT, 1, 2, identiscope.attention_alternative(identiscope.trace(model, TEXT), 1, 2, rows=[3])
        ),
        equivalence_under_texts: equivalence_under_texts(one, one, 1, 2, other),
        identiscope.extract_structure: identiscope.extract_structure(traces, layers=[1]),
        identiscope.hidden_token_attribution: identiscope.hidden_token_attribution(
            one, mode="estimate", probes=4, layers=[1]
        ),
        identiscope.token_identifiability: identiscope.token_identifiability(one),
        correlation_by_length: correlation_by_length(model, [TEXT]),
        attention_between_types: attention_between_types(model, [TEXT]),
    }


def test_every_result_says_of_what_it_is(
    minilm: identiscope.Model, traces: list[identiscope.Trace], tmp_path: Any
) -> None:
    for function, result in results(minilm, traces).items():
        attributes = result.attrs
        assert attributes["model_digest"] == model_hash(minilm), function
        assert attributes["configuration_digest"] == configuration_hash(minilm)
        assert len(attributes["text_digest"]) == 64
        # Every option that the function takes, whether it was given or not.
        names = set(inspect.signature(function).parameters) - NOT_OPTIONS
        assert names <= set(attributes["options"]) | {"target"}, f"{function.__name__} leaves out options"
        kept = load_result(save_result(result, tmp_path / "result.safetensors"))
        assert kept.attrs == attributes
    assert trace_digests(traces[0])["text_digest"] != trace_digests(traces[1])["text_digest"]
    assert traces[0].batch is not None
    assert trace_digests(traces[0])["text_digest"] == input_hash(traces[0].batch.arguments)


def test_a_model_that_was_changed_since_is_not_named(minilm: identiscope.Model) -> None:
    model = identiscope.load(copy.deepcopy(minilm.module), minilm.tokenizer)
    before, after = identiscope.trace(model, TEXT), identiscope.trace(model, TEXT)
    digest = trace_digests(before)["model_digest"]
    with torch.no_grad():
        model.module.get_parameter("encoder.layer.3.output.dense.weight").data.mul_(1.5)
    # The first was asked for before the change, and is what it is; the second comes too late to be told.
    assert trace_digests(before)["model_digest"] == digest == model_hash(minilm)
    assert trace_digests(after) == trace_digests(before) | {"model_digest": "", "configuration_digest": ""}
    assert trace_digests(identiscope.trace(model, TEXT))["model_digest"] == model_hash(model) != digest


def test_arrays_have_no_model() -> None:
    one, other = (identiscope.from_arrays(torch.full((3, 3), 1 / 3), torch.eye(3) * size) for size in (1, 2))
    assert trace_digests(one)["model_digest"] == "" and trace_digests(one)["model"] == "arrays"
    assert trace_digests(one)["text_digest"] != trace_digests(other)["text_digest"]
