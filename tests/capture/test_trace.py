"""A Trace: what it holds, how it is made from text, pairs, ids, pixels, plain modules and arrays."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AttentionInterface

import families
import identiscope
from identiscope.errors import CaptureError

SENTENCE = "The cat sat on the mat."


def test_text_with_offsets_and_special_tokens(minilm: identiscope.Model) -> None:
    trace = identiscope.trace(minilm, SENTENCE)
    assert trace.tokens == ("[CLS]", "the", "cat", "sat", "on", "the", "mat", ".", "[SEP]")
    assert trace.main.special == (True, *[False] * 7, True)
    assert trace.main.offsets is not None
    assert [SENTENCE[begin:end] for begin, end in trace.main.offsets[1:-1]] == [*SENTENCE[:-1].split(), "."]
    assert len(trace.hidden_states) == 7
    assert trace.embeddings.shape == (9, 384)
    assert trace.verify().verified
    assert "9 tokens" in repr(trace)
    assert "<code>[CLS]</code>" in trace._repr_html_()


def test_a_pair_is_one_text_of_two_segments(minilm: identiscope.Model) -> None:
    trace = identiscope.trace(minilm, ("One cat.", "Two dogs."))
    assert trace.tokens == ("[CLS]", "one", "cat", ".", "[SEP]", "two", "dogs", ".", "[SEP]")
    assert trace.batch is not None
    assert trace.batch.arguments["token_type_ids"].tolist() == [[0, 0, 0, 0, 0, 1, 1, 1, 1]]


def test_a_list_gives_a_list(minilm: identiscope.Model) -> None:
    texts: list[str | tuple[str, str]] = ["One.", ("A pair", "of texts"), "Three words here."]
    traces = identiscope.trace(minilm, texts, batch_size=2)
    assert [len(trace.main) for trace in traces] == [4, 7, 6]


def test_ids_are_taken_as_they_are(minilm: identiscope.Model) -> None:
    by_text = identiscope.trace(minilm, SENTENCE)
    assert by_text.main.ids is not None
    for ids in (list(by_text.main.ids), torch.tensor(by_text.main.ids)):
        by_ids = identiscope.trace(minilm, ids)
        assert by_ids.tokens == by_text.tokens
        assert by_ids.main.special == by_text.main.special
        assert torch.equal(by_ids.hidden_states[-1], by_text.hidden_states[-1])


def test_embedding_sum_is_what_the_embedding_norm_reads(minilm: identiscope.Model) -> None:
    trace = identiscope.trace(minilm, SENTENCE)
    embeddings: Any = minilm.module.embeddings
    assert trace.main.ids is not None and trace.main.embedding_sum is not None
    tokens = embeddings.word_embeddings.weight[list(trace.main.ids)]
    positions = embeddings.position_embeddings.weight[: len(trace.main)]
    segments = embeddings.token_type_embeddings.weight[0]
    assert torch.allclose(trace.main.embedding_sum, tokens + segments + positions, atol=1e-6)
    assert torch.allclose(embeddings.LayerNorm(trace.main.embedding_sum), trace.embeddings, atol=1e-6)


def test_replay_starts_before_or_after_the_embedding_norm(minilm: identiscope.Model) -> None:
    trace = identiscope.trace(minilm, SENTENCE)
    with torch.no_grad():
        after = trace.replay(trace.embeddings)
        assert trace.main.embedding_sum is not None
        before = trace.replay(trace.main.embedding_sum, summed=True)
    for one, other, state in zip(after, before, trace.hidden_states, strict=True):
        assert torch.allclose(one, state, atol=1e-4)
        assert torch.allclose(other, state, atol=1e-4)


def test_without_an_embedding_norm_the_sum_is_what_the_first_layer_reads() -> None:
    trace = identiscope.trace(families.FAMILIES["Llama"].model(), families.TEXT)
    assert trace.main.embedding_sum is not None
    assert torch.equal(trace.main.embedding_sum, trace.embeddings)


def test_a_trace_cannot_be_changed() -> None:
    trace = identiscope.trace(families.FAMILIES["BERT"].model(), families.TEXT)
    with pytest.raises(dataclasses.FrozenInstanceError):
        trace.sites = ()  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        trace.sites[0].scale = 1.0  # type: ignore[misc]


def test_a_wrong_capture_does_not_verify() -> None:
    site = identiscope.trace(families.FAMILIES["BERT"].model(), families.TEXT).site(0)
    assert site.projection_bias is not None and site.query is not None
    for change in (
        {"scale": site.scale * 1.01},
        {"projection_bias": site.projection_bias + 1e-3},
        {"query": site.query.flip(0)},
        {"bias": dataclasses.replace(site.bias, causal=True)},
    ):
        assert not dataclasses.replace(site, **change).verify().verified


def test_encoder_decoder_from_text() -> None:
    family = families.FAMILIES["BART"]
    trace = identiscope.trace(family.model(), families.TEXT)
    assert len(trace.streams["encoder"]) == 12
    assert trace.streams["decoder"].ids == (2,)


def test_pixels() -> None:
    trace = identiscope.trace(families.FAMILIES["ViT"].model(), torch.rand(3, 16, 16))
    assert len(trace.main) == 17
    assert trace.verify().verified


# --- nothing is left behind


def test_after_an_exception_nothing_is_left() -> None:
    model: Any = families.FAMILIES["BERT"].model().train()
    lookup = AttentionInterface.get_interface
    hooks = [(len(module._forward_hooks), len(module._forward_pre_hooks)) for module in model.modules()]

    def fail(site: identiscope.Site) -> None:
        raise ZeroDivisionError(site.name)

    with pytest.raises(ZeroDivisionError):
        identiscope.stream(model, families.TEXT, fail)
    assert AttentionInterface.get_interface is lookup
    assert [(len(module._forward_hooks), len(module._forward_pre_hooks)) for module in model.modules()] == hooks
    assert model.training


def test_captures_nest_and_see_their_own_model_alone() -> None:
    outer_model, inner_model = families.FAMILIES["BERT"].model(), families.FAMILIES["GPT-2"].model()
    lookup = AttentionInterface.get_interface
    with torch.no_grad(), identiscope.watching(outer_model) as outer:
        outer_model(torch.tensor([families.TEXT]))
        with identiscope.watching(outer_model) as inner:
            outer_model(torch.tensor([families.TEXT]))
        identiscope.trace(inner_model, families.TEXT)
    assert (len(outer.calls), len(inner.calls)) == (4, 2)
    assert torch.equal(outer.calls[3].context, inner.calls[1].context)
    assert AttentionInterface.get_interface is lookup


def test_a_capture_does_not_see_another_thread() -> None:
    import threading

    model = families.FAMILIES["BERT"].model()
    with identiscope.watching(model) as watcher:
        thread = threading.Thread(target=lambda: model(torch.tensor([families.TEXT])))
        thread.start()
        thread.join()
    assert watcher.calls == []


# --- streaming


def test_streaming_visits_the_same_sites() -> None:
    model = families.FAMILIES["Llama"].model()
    trace = identiscope.trace(model, families.TEXT)
    seen: list[tuple[int, torch.Tensor]] = []
    identiscope.stream(model, families.TEXT, lambda site: seen.append((site.layer, site.attentions())))
    assert [layer for layer, _ in seen] == [0, 1]
    for layer, maps in seen:
        assert torch.equal(maps, trace.site(layer).attentions())


# --- plain PyTorch


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
def test_transformer_encoder(batch_first: bool, norm_first: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 48, batch_first=batch_first, norm_first=norm_first, dtype=torch.float64)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False, norm=nn.LayerNorm(32, dtype=torch.float64))
    x = torch.randn(9, 32, dtype=torch.float64)
    trace = identiscope.trace(encoder, x)
    assert trace.verify().verified and trace.verify().error < 1e-12
    assert len(trace.hidden_states) == 3
    with torch.no_grad():
        expected = encoder.eval()(x[None] if batch_first else x[:, None])
    assert torch.allclose(trace.hidden_states[-1], expected.reshape(9, 32), atol=1e-12)
    assert torch.allclose(trace.replay(x)[-1], trace.hidden_states[-1], atol=1e-12)
    changed = identiscope.substitute(encoder, x, {(0, 2): lambda attention: attention.flip(0)})
    assert not torch.allclose(changed.hidden_states[1], trace.hidden_states[1])
    same = identiscope.substitute(encoder, x, {(0, 2): lambda attention: attention})
    assert torch.equal(same.hidden_states[-1], trace.hidden_states[-1])


@pytest.mark.parametrize("mask", ["boolean", "float"])
def test_multihead_attention_with_masks(mask: str) -> None:
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(32, 4, kdim=16, vdim=24, batch_first=True, dtype=torch.float64)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = attention

        def forward(self, query: Any, key: Any, value: Any, forbidden: Any, padding: Any) -> Any:
            return self.attention(query, key, value, attn_mask=forbidden, key_padding_mask=padding)[0]

    forbidden: Any = torch.ones(6, 7, dtype=torch.bool).triu(2)
    padding: Any = torch.tensor([[False] * 6 + [True]])
    if mask == "float":
        forbidden = torch.zeros(6, 7, dtype=torch.float64).masked_fill(forbidden, -torch.inf) + 0.1 * torch.randn(6, 7)
        padding = torch.zeros(1, 7, dtype=torch.float64).masked_fill(padding, -torch.inf)
    shapes = {"query": (1, 6, 32), "key": (1, 7, 16), "value": (1, 7, 24)}
    inputs = {name: torch.randn(shape, dtype=torch.float64) for name, shape in shapes.items()}
    trace = identiscope.trace(Block(), inputs | {"forbidden": forbidden, "padding": padding})
    site = trace.site(0)
    assert site.verify().error < 1e-12
    with torch.no_grad():
        _, weights = attention(
            *inputs.values(), attn_mask=forbidden, key_padding_mask=padding, average_attn_weights=False
        )
    assert torch.allclose(site.attentions(), weights[0], atol=1e-12)


def test_a_model_that_calls_torch_attention_itself() -> None:
    """As small language models written by hand do: no transformers, no nn.MultiheadAttention."""
    torch.manual_seed(0)

    class CausalSelfAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = (part.unflatten(-1, (4, 8)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(y.transpose(1, 2).flatten(2))

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(CausalSelfAttention() for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = x + block(x)
            return x

    network = Network().double()
    x = torch.randn(1, 10, 32, dtype=torch.float64)
    trace = identiscope.trace(network, x)
    assert len(trace.sites) == 3
    assert trace.kinds == ("decoder-self",)
    assert trace.verify().verified and trace.verify().error < 1e-12
    with torch.no_grad():
        assert trace.logits is not None and torch.equal(trace.logits, network(x)[0])
    same = identiscope.substitute(network, x, {(1, 0): lambda attention: attention})
    assert same.logits is not None and torch.equal(same.logits, trace.logits)


# --- arrays


def test_arrays_make_the_same_sites() -> None:
    trace = identiscope.trace(families.FAMILIES["Llama"].model(), families.TEXT)
    site = trace.site(1)
    assert site.output is not None
    given = identiscope.from_arrays(
        site.attentions().numpy(),
        site.value.numpy(),
        projection=site.projection.numpy(),
        output=site.output.numpy(),
        mask=site.allowed_keys(0).numpy(),
        tokens=trace.tokens,
    )
    assert given.tokens == trace.tokens
    assert given.verify().verified and given.verify().error < 1e-12
    assert torch.equal(given.site(0).attention(2), site.attention(2))
    assert given.site(0).mask == "sliding causal"
    with pytest.raises(identiscope.CaptureError, match="no model to replay"):
        _ = given.replay


def test_arrays_of_one_head() -> None:
    weights = np.array([[0.5, 0.5], [0.25, 0.75]])
    value = np.array([[1.0, 0.0, 2.0], [0.0, 1.0, 1.0]])
    trace = identiscope.from_arrays(weights, value)
    assert np.allclose(trace.site(0).context[0].numpy(), weights @ value)


# --- the built-in models


def test_minilm_is_the_model_it_says(minilm: identiscope.Model) -> None:
    trace = identiscope.trace(minilm, SENTENCE)
    check = trace.verify().sites[0]
    assert (len(trace.sites), check.heads, check.d_v, trace.embeddings.shape[1]) == (6, 12, 32, 384)
    assert minilm.config._attn_implementation == "sdpa"


def test_smollm2_predicts_and_verifies(smollm2: identiscope.Model) -> None:
    trace = identiscope.trace(smollm2, "The capital of France is")
    assert trace.logits is not None
    assert smollm2.tokenizer.decode(trace.logits[-1].argmax()) == " Paris"
    verification = trace.verify()
    assert verification.verified
    assert {(site.heads, site.key_value_heads, site.d_v, site.mask) for site in verification.sites} == {
        (9, 3, 64, "causal")
    }
    # What was put in its place while the file was read.
    gguf = pytest.importorskip("gguf")
    assert isinstance(gguf.GGUFReader, type) and gguf.get_tensor_name_map.__module__.startswith("gguf.")


# --- where a model can come from


def test_an_id_on_the_hub_is_read_from_its_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real path of a hub id and a revision, with a cache as a download leaves it."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    home = tmp_path / "models--someone--tiny"
    model: Any = families.FAMILIES["BERT"].model()
    model.save_pretrained(home / "snapshots" / commit)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text(commit)
    (home / "refs" / "other").write_text("f" * 40)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    loaded = identiscope.load("someone/tiny", revision="main")
    assert identiscope.trace(loaded, families.TEXT).verify().error < 1e-12
    with pytest.raises(identiscope.ModelError, match="cannot load 'someone/tiny'"):
        identiscope.load("someone/tiny", revision="other")


def test_code_in_a_checkpoint_runs_only_when_asked(tmp_path: Path) -> None:
    model: Any = families.FAMILIES["BERT"].model()
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"model_type": "own", "architectures": ["OwnModel"]}
    config["auto_map"] = {"AutoConfig": "own.OwnConfig", "AutoModel": "own.OwnModel"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "own.py").write_text(
        "from transformers import BertConfig, BertModel\n"
        "class OwnConfig(BertConfig):\n    model_type = 'own'\n"
        "class OwnModel(BertModel):\n    config_class = OwnConfig\n"
    )
    with pytest.raises(identiscope.ModelError, match="trust_remote_code"):
        identiscope.load(tmp_path)
    loaded = identiscope.load(tmp_path, trust_remote_code=True)
    assert type(loaded.module).__name__ == "OwnModel"
    trace = identiscope.trace(loaded, families.TEXT)
    assert torch.equal(trace.hidden_states[-1], identiscope.trace(model, families.TEXT).hidden_states[-1])


def test_a_saved_model_keeps_its_head(tmp_path: Path) -> None:
    model: Any = families.FAMILIES["GPT-2"].model()
    model.save_pretrained(tmp_path)
    trace = identiscope.trace(identiscope.load(tmp_path), families.TEXT)
    assert trace.logits is not None and trace.logits.shape == (12, families.VOCABULARY)
    assert identiscope.load(tmp_path, dtype=torch.float32).dtype == torch.float32


# --- the bias inside the values


@pytest.mark.parametrize("name", ["BERT", "GPT-2", "GPT-NeoX", "OPT", "Phi-3", "Llama", "DeepSeek-V3", "GPT-BigCode"])
def test_value_bias_is_what_the_values_lose_when_biases_are_zero(name: str) -> None:
    """Set every bias of the first attention block to zero: its values change by exactly the bias found."""
    model: Any = families.ALL[name].model()
    before = identiscope.trace(model, families.TEXT).site(0)
    attention = next(
        module for module in model.modules() if "Attention" in type(module).__name__ and list(module.parameters())
    )
    with torch.no_grad():
        for key, parameter in attention.named_parameters():
            if "bias" in key:
                parameter.zero_()
    after = identiscope.trace(model, families.TEXT).site(0)
    assert before.value_bias is not None
    difference = before.value - after.value
    assert torch.allclose(difference, before.value_bias[:, None].expand_as(difference), atol=1e-12)
    assert bool(before.value_bias.any()) == bool(difference.any())


def test_value_bias_follows_the_chosen_heads() -> None:
    model = families.ALL["GPT-OSS"].model()
    whole = identiscope.trace(model, families.TEXT).site(0)
    some = identiscope.trace(model, families.TEXT, heads=[3]).site(0)
    assert whole.value_bias is not None and some.value_bias is not None
    assert torch.equal(some.value_bias[0], whole.value_bias[1])


# --- every site is looked at


@pytest.mark.parametrize("wrong", [0, 1, None])
def test_a_kernel_that_fails_in_one_layer_is_refused(wrong: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.llama import modeling_llama

    kernel = modeling_llama.eager_attention_forward

    def odd(module: Any, *args: Any, **kwargs: Any) -> Any:
        context, weights = kernel(module, *args, **kwargs)
        return (context * 1.01 if module.layer_idx == wrong else context), weights

    monkeypatch.setattr(modeling_llama, "eager_attention_forward", odd)
    model: Any = families.FAMILIES["Llama"].model()
    model.set_attn_implementation("eager")
    if wrong is None:
        assert identiscope.trace(model, families.TEXT).verify().verified
        return
    # Whichever layer it is, and whatever is kept of it.
    for options in ({}, {"layers": [wrong]}, {"heads": [1]}):
        with pytest.raises(CaptureError, match=rf"\(layer {wrong}, decoder-self\).*does not give"):
            identiscope.trace(model, families.TEXT, **options)  # type: ignore[call-overload]
