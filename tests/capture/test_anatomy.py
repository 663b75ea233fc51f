"""The parts of layers, found by numbers: each relation that they must have, tried again in NumPy on every family."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import contract
import identiscope
from families import _BERT, _LLAMA, _VIT, ALL, TEXT, Family, _of, _vision
from identiscope.errors import CaptureError
from identiscope.linalg.jacobian.blocks import Norm
from identiscope.linalg.parts import Step


@dataclass(frozen=True)
class Layout:
    """Where norms stand, beside those in front, which are part of values and of the feed-forward function.

    inner: of what is added; outer: of the sum; final: behind the last layer.
    """

    inner: bool = False
    outer: bool = False
    final: bool = False
    parallel: bool = False


#: Their norms are in float32.
NARROW = {"Llama", "Mistral", "Qwen2", "Qwen3", "Gemma-2", "Gemma-3", "Phi-3", "T5", "OLMo-2", "Mixtral", "GPT-OSS",
          "DeepSeek-V3"}  # fmt: skip
MOE = ("Mixtral", "GPT-OSS", "DeepSeek-V3")
POST, PRE = Layout(outer=True), Layout(final=True)
KNOWN = {
    "BERT": POST, "RoBERTa": POST, "DistilBERT": POST, "ALBERT": POST, "ELECTRA": POST, "MPNet": POST, "GPT-2": PRE,
    "GPT-NeoX": Layout(final=True, parallel=True), "OPT": PRE, "Llama": PRE, "Mistral": PRE, "Qwen2": PRE, "Qwen3": PRE,
    "Gemma-2": Layout(inner=True, final=True), "Gemma-3": Layout(inner=True, final=True), "Phi-3": PRE, "T5": PRE,
    "BART": POST, "Marian": POST, "ViT": Layout(), "ModernBERT": PRE,
    "Phi": Layout(final=True, parallel=True), "OLMo-2": Layout(inner=True, final=True),
    # Mixtures of experts.
    "Mixtral": PRE, "GPT-OSS": PRE, "DeepSeek-V3": PRE,
}  # fmt: skip
UNKNOWN = {
    "BEiT": "no module of the layer returned what its output has beside the stream and attention",
    "MobileBERT": "is not as wide as the stream",
    "XLM": "no module of the layer returned what its output has beside the stream and attention",
}


@cache
def traced(name: str) -> identiscope.Trace:
    """A family on its text, made once; norms have gains, as one that is got wrong would not show otherwise."""
    model, generator = ALL[name].model(), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    return identiscope.trace(model, ALL[name].inputs())


def behind(norm: Norm | None, x: np.ndarray) -> np.ndarray:
    """(x − mean)/√(mean of squares + ε)·weight + bias."""
    if norm is None:
        return x
    x = x - x.mean(-1, keepdims=True) if norm.centred else x
    x = x / np.sqrt((x**2).mean(-1, keepdims=True) + norm.epsilon)
    x = x if norm.weight is None else x * norm.weight.detach().double().numpy()
    return x if norm.bias is None else x + norm.bias.detach().double().numpy()


def numbers(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().double().numpy()


def assert_step(step: Step, tolerance: float) -> None:
    """z = outer(y + factor·inner(a))."""
    before, addition = numbers(step.before), numbers(step.addition)
    total = before + step.factor * behind(step.inner, addition)
    np.testing.assert_allclose(behind(step.outer, total), numbers(step.after), atol=tolerance)
    np.testing.assert_allclose(numbers(step.sum), total, atol=tolerance)


def moved(site: Any) -> np.ndarray:
    """Σ_h A_h·V_h·H_h + b, head by head."""
    total = np.zeros(())
    for head in range(site.head_count):
        total = total + numbers(site.attention(head) @ site.value_of(head).double() @ site.projection[head].double())
    return total if site.projection_bias is None else total + numbers(site.projection_bias)


@pytest.mark.parametrize("name", KNOWN)
def test_parts_make_the_states_of_the_running_model(name: str) -> None:
    trace, layout = traced(name), KNOWN[name]
    for stream in trace.streams.values():
        parts = trace.parts(stream.name)
        states = [numbers(state) for state in stream.hidden_states]
        largest = max(np.abs(state).max() for state in states)
        tolerance = (1e-9 if stream.hidden_states[0].dtype == torch.float64 else 1e-5) * largest
        if name in NARROW:
            tolerance = 1e-5 * largest
        assert len(parts.layers) == len(states) - 1 and (parts.final is not None) == layout.final
        for number, layer in enumerate(parts.layers):
            assert layer.parallel == layout.parallel
            assert len(layer.attends) == (2 if stream.name == "decoder" else 1)
            np.testing.assert_allclose(numbers(layer.attends[0].before), states[number], atol=tolerance)
            for step, following in zip(layer.attends, (*layer.attends[1:], layer.feeds), strict=True):
                assert (step.inner is not None, step.outer is not None) == (layout.inner, layout.outer)
                np.testing.assert_allclose(numbers(step.addition), moved(trace.sites[step.site]), atol=tolerance)
                np.testing.assert_array_equal(numbers(step.after), numbers(following.before))
                assert_step(step, tolerance)
            assert (layer.feeds.inner is not None, layer.feeds.outer is not None) == (layout.inner, layout.outer)
            assert_step(layer.feeds, tolerance)
            assert layer.feed is not None
            with torch.no_grad():
                given = layer.attends[0].before if layer.parallel else layer.feeds.before
                np.testing.assert_allclose(numbers(layer.feed(given)), numbers(layer.feeds.addition), atol=tolerance)
                # Token by token: what is made of one does not depend on the others.
                some = layer.feed(given[[2, 0]])
            np.testing.assert_allclose(numbers(some), numbers(layer.feeds.addition[[2, 0]]), atol=tolerance)
        for layer, state in zip(parts.layers[:-1], states[1:-1], strict=True):
            np.testing.assert_allclose(numbers(layer.feeds.after), state, atol=tolerance)
        last = behind(parts.final, numbers(parts.layers[-1].feeds.after))
        np.testing.assert_allclose(last, states[-1], atol=tolerance)


@pytest.mark.parametrize("name", UNKNOWN)
def test_where_parts_are_not_known_it_is_said_and_other_methods_run(name: str) -> None:
    trace = traced(name)
    with pytest.raises(CaptureError, match=f"the parts of the layers of .* are not known: .*{UNKNOWN[name]}"):
        identiscope.alti(trace)
    needing = ["residual_norm", "layer_norm_norm", "globenc", "alti", "value_zeroing", "alti_logit", "flow_routes",
               "direct_logit_attribution"]  # fmt: skip
    others = ["attention", "rollout", "weighted_norm", "gradient_attention", "gradient_input", "saliency", "occlusion"]
    with pytest.raises(CaptureError, match="are not known"):
        identiscope.ask("flow_routes", trace, outcome=contract.some_outcome)
    found = identiscope.explain(trace, contract.some_outcome, methods=[*needing, *others])
    failed = dict(zip(found["method"].values.tolist(), found["failed"].values.tolist(), strict=True))
    assert all("are not known" in failed[one] for one in needing) and not any(failed[one] for one in others)
    # (`sel` has an argument `method` of its own.)
    scores = found["score"]
    assert np.isfinite(scores.sel({"method": others})).all() and np.isnan(scores.sel({"method": needing})).all()


@pytest.mark.parametrize("name", MOE)
def test_experts_are_followed(name: str) -> None:
    """Value zeroing runs the layer's feed-forward part again: with one value gone, tokens may choose other experts."""
    trace = traced(name)
    result = identiscope.value_zeroing(trace)
    np.testing.assert_allclose(result["mixture"].sum("input"), 1, atol=1e-9)
    found = identiscope.explain(trace, "logit:id:7", methods=["gradient_input", "flow_routes", "attention_lrp", "alti"])
    assert not any(found["failed"].values) and np.isfinite(found["score"]).all()
    direct = identiscope.direct_logit_attribution(trace, outcome="logit:id:7")
    assert abs(direct.attrs["residual"]) < 1e-4
    whole = direct.attrs["promised_sum"]
    assert abs(whole - direct.attrs["outcome_value"]) < 1e-4 * max(1, abs(whole))


def built(family: Family) -> identiscope.Trace:
    return identiscope.trace(family.model(), family.inputs())


def test_a_factor_on_what_is_added_is_found() -> None:
    trace = built(Family(_of("GraniteForCausalLM", **_LLAMA, residual_multiplier=0.4), 2))
    for layer in trace.parts().layers:
        assert layer.attends[0].factor == layer.feeds.factor == 0.4
        assert_step(layer.attends[0], 1e-6)
        assert_step(layer.feeds, 1e-6)


def test_a_scale_of_its_own_for_every_channel_is_no_part_that_is_known() -> None:
    """DINOv2 multiplies what attention returns by a vector, which is neither norm nor factor."""
    trace = built(Family(_of("Dinov2Model", **_VIT, layerscale_value=0.3), 2, _vision))
    with pytest.raises(CaptureError, match="are not known"):
        trace.parts()


def test_arrays_have_no_parts() -> None:
    trace = identiscope.from_arrays(torch.full((1, 1, 3, 3), 1 / 3), torch.ones(1, 1, 3, 2))
    with pytest.raises(CaptureError, match="the trace has no model"):
        trace.parts()


def test_a_model_that_was_changed_since_is_not_taken_apart() -> None:
    """What was found must be of the pass that was traced."""
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig(**_BERT)).double().eval()
    trace = identiscope.trace(model, TEXT)
    with torch.no_grad():
        model.encoder.layer[1].output.dense.weight.mul_(2)
    with pytest.raises(CaptureError, match="are not known: the last layer"):
        trace.parts()
