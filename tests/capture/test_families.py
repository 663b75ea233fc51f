"""Every family, in float64: what was captured is what the model computed, and the model is left as it was."""

import copy
from typing import Any

import pytest
import torch
from torch.func import jvp, vjp, vmap

import families
import identiscope
import reference_attention
from identiscope.capture.forward import forward
from identiscope.capture.inputs import encode
from identiscope.linalg.agreement import TOLERANCES

every_family = pytest.mark.parametrize("name", families.ALL)


def captured(name: str) -> tuple[Any, identiscope.Trace]:
    family = families.ALL[name]
    model = family.model()
    return model, identiscope.trace(model, family.inputs())


@every_family
def test_capture_rebuilds_what_the_block_returned(name: str) -> None:
    family = families.ALL[name]
    _, trace = captured(name)
    verification = trace.verify()
    assert len(trace.sites) == family.sites == verification.recorded == verification.expected
    precision = getattr(torch, family.precision)
    assert verification.error <= TOLERANCES[precision]
    assert {site.precision for site in verification.sites} <= {"float64", family.precision}


@every_family
def test_maps_and_heads_agree_with_numpy(name: str) -> None:
    """Against a literal NumPy softmax over the captured query, key, bias and mask, and a literal sum over heads."""
    family = families.ALL[name]
    tolerance = TOLERANCES[getattr(torch, family.precision)]
    _, trace = captured(name)
    for site in trace.sites:
        maps, output = reference_attention.block(site)
        for head in site.heads:
            difference = (site.attention(head) - torch.from_numpy(maps[head])).abs().max()
            assert difference <= 1e-12
        assert site.output is not None
        scale = site.output.abs().max()
        assert (site.output - torch.from_numpy(output)).abs().max() <= tolerance * scale


@every_family
def test_maps_are_those_of_the_eager_model(name: str) -> None:
    family = families.ALL[name]
    if name == "Falcon":
        pytest.skip("Falcon shows maps without its causal mask, which are not those it uses")
    model, trace = captured(name)
    shown = eager_maps(copy.deepcopy(model), trace)
    if not shown:
        pytest.skip(f"{name} shows no attention maps, even when asked to in its eager form")
    precision = "float32" if name in FLOAT32_SOFTMAX else family.precision
    tolerance = TOLERANCES[getattr(torch, precision)]
    sites = sorted(trace.sites, key=lambda site: KINDS.index(site.kind))
    if name == "SigLIP vision":
        sites.pop()  # its pooling head attends too, and is not among the maps it shows
    assert len(shown) == len(sites)
    ours = [site.attentions() for site in sites]
    for mine, theirs in zip(ours, shown, strict=True):
        assert (mine - theirs).abs().max() <= tolerance


KINDS = ["encoder-self", "decoder-self", "cross"]
# Exact on SDPA as loaded; their eager form, which shows the maps, computes its softmax in float32.
FLOAT32_SOFTMAX = {
    *("ModernBERT", "GPT-NeoX", "OPT", "Llama", "Mistral", "Qwen2", "Qwen3", "Gemma-3", "Phi-3", "DeepSeek-V3"),
    *("ViT", "CLIP", "Phi", "OLMo-2", "Cohere", "Granite", "Mixtral", "StableLM", "StarCoder2", "Nemotron"),
    *("SmolLM3", "GPT-BigCode", "DeiT", "SigLIP vision", "BEiT"),
}


def eager_maps(model: Any, trace: identiscope.Trace) -> list[torch.Tensor]:
    if model._can_set_attn_implementation():
        model.set_attn_implementation("eager")
    assert trace.batch is not None
    with torch.no_grad():
        outputs = model(**trace.batch.arguments, output_attentions=True, return_dict=True)
    found: list[torch.Tensor] = []
    for part in ("encoder_attentions", "decoder_attentions", "cross_attentions", "attentions"):
        found += [maps[0] for maps in getattr(outputs, part, None) or () if maps is not None]
    for tower in ("vision_model_output", "text_model_output"):
        found += [maps[0] for maps in getattr(getattr(outputs, tower, None), "attentions", None) or ()]
    return found


@every_family
def test_forward_is_bit_identical_and_model_is_left_as_found(name: str) -> None:
    family = families.ALL[name]
    model = family.model()
    model.train()
    before = state_of(model)
    loaded = identiscope.load(model)
    assert identiscope.trace(loaded, family.inputs()).sites
    assert state_of(model) == before
    model.eval()
    batch = encode(loaded, [family.inputs()], targets=[None])
    with torch.no_grad():
        plain = forward(loaded, batch.arguments)
    trace = identiscope.trace(loaded, family.inputs())
    if plain.logits is not None:
        assert trace.logits is not None
        assert torch.equal(trace.logits, plain.logits[0])
    for stream, layers in plain.hidden_states.items():
        for mine, theirs in zip(trace.streams[stream].hidden_states, layers, strict=True):
            assert torch.equal(mine, theirs[0])


def state_of(model: torch.nn.Module) -> list[Any]:
    """Everything about a model that a capture could leave changed."""
    return [
        (
            name,
            module.training,
            sorted(vars(module)),
            len(module._forward_hooks),
            len(module._forward_pre_hooks),
            [
                (key, parameter.data_ptr(), parameter.requires_grad)
                for key, parameter in module._parameters.items()
                if parameter is not None
            ],
        )
        for name, module in model.named_modules()
    ] + [str(model.config)]


@every_family
def test_substitution(name: str) -> None:
    """The same map changes no bit; another map gives, at that block, exactly what the sum over heads says."""
    family = families.ALL[name]
    model, trace = captured(name)
    site = trace.sites[len(trace.sites) // 2 - 1]
    options: Any = {"attention": site.kind, "stream": site.query_stream}
    same = identiscope.substitute(model, family.inputs(), {(site.layer, 1): lambda attention: attention}, **options)
    for stream, layers in same.streams.items():
        for mine, theirs in zip(layers, trace.streams[stream].hidden_states, strict=True):
            assert torch.equal(mine, theirs)
    other = site.attention(1).roll(1, dims=0)
    assert trace.batch is not None
    with torch.no_grad(), identiscope.watching(model, changes={(site.index, 1): lambda _: other[None]}) as watcher:
        model(**trace.batch.arguments)
    output = watcher.calls[site.index].output
    assert output is not None
    maps = [other.numpy() if head == 1 else site.attention(head).numpy() for head in range(site.head_count)]
    expected = torch.from_numpy(reference_attention.sum_over_heads(site, maps))
    tolerance = TOLERANCES[getattr(torch, family.precision)]
    assert (output[0] - expected).abs().max() <= tolerance * expected.abs().max()
    changed = identiscope.substitute(model, family.inputs(), {(site.layer, 1): other}, **options)
    assert any(
        not torch.equal(mine, theirs)
        for stream, layers in changed.streams.items()
        for mine, theirs in zip(layers, same.streams[stream], strict=True)
    )


@every_family
def test_replay_has_the_derivatives_of_the_model(name: str) -> None:
    """Forward mode against reverse mode, ⟨u, J·v⟩ = ⟨Jᵀ·u, v⟩, through every layer; and vmap against a loop."""
    _, trace = captured(name)
    replay = trace.replay
    embeddings = {stream: part.embeddings for stream, part in trace.streams.items() if part.hidden_states}
    last = list(embeddings)[-1]
    generator = torch.Generator().manual_seed(0)
    directions = {
        stream: torch.randn(2, *x.shape, generator=generator, dtype=x.dtype) for stream, x in embeddings.items()
    }

    def run(x: dict[str, torch.Tensor]) -> torch.Tensor:
        return replay(x)[last][-1]

    def push(direction: dict[str, torch.Tensor]) -> torch.Tensor:
        return jvp(run, (embeddings,), (direction,))[1]

    one = {stream: direction[0] for stream, direction in directions.items()}
    output, pull = vjp(run, embeddings)[:2]
    weights = torch.randn(output.shape, generator=generator, dtype=output.dtype)
    forward_mode = (weights * push(one)).sum()
    (gradient,) = pull(weights)
    reverse_mode = sum((gradient[stream] * one[stream]).sum() for stream in one)
    # Norms and softmax that a family computes in float32 are differentiated in float32.
    assert torch.isclose(forward_mode, torch.as_tensor(reverse_mode), rtol=1e-4, atol=1e-4)
    if families.ALL[name].vmaps:
        together = vmap(push)(directions)
        assert torch.allclose(together[0], push(one), rtol=1e-6, atol=1e-8)
