"""What kind of attention a site is, and which layer it is part of."""

from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import nn

import every_family
import families
import identiscope


def tiny(architecture: str, **options: Any) -> Any:
    return families.Family(families._of(architecture, **options), 2).model()


# --- kinds


@pytest.mark.parametrize(
    ("architecture", "options"),
    [
        ("LayoutLMModel", families._BERT),
        ("MarkupLMModel", families._BERT),
        ("SplinterModel", families._BERT),
    ],
)
def test_attention_to_later_tokens_is_that_of_an_encoder(architecture: str, options: Any) -> None:
    trace = identiscope.trace(tiny(architecture, **options), families.TEXT)
    assert trace.kinds == ("encoder-self",)
    assert bool((trace.site(0).attentions().triu(1) > 0).any())


def test_attention_to_earlier_tokens_alone_is_that_of_a_decoder() -> None:
    trace = identiscope.trace(tiny("BigBirdPegasusForCausalLM", **families._BART), families.TEXT)
    assert trace.kinds == ("decoder-self",)
    assert not bool(trace.site(0).attentions().triu(1).any())


@pytest.mark.parametrize("name", [name for name, family in families.ALL.items() if family.arguments is None])
def test_a_text_of_one_token_has_the_kind_of_a_longer_one(name: str) -> None:
    model = families.ALL[name].model()
    assert identiscope.trace(model, families.TEXT[:1]).kinds == identiscope.trace(model, families.TEXT).kinds


@pytest.mark.parametrize("model_type", ["doge", "git", "gpt_neox_japanese", "big_bird", "longcat_flash"])
def test_texts_of_one_token_in_families_that_do_not_say_what_they_are(model_type: str) -> None:
    model = every_family.build(model_type)
    assert identiscope.trace(model, [7]).kinds == identiscope.trace(model, families.TEXT).kinds


def test_padding_does_not_decide_the_kind() -> None:
    """In a batch, queries that are padding may see anything."""
    for name, kind in (("GPT-2", "decoder-self"), ("BERT", "encoder-self")):
        traces = identiscope.trace(families.ALL[name].model(), [families.TEXT, families.TEXT[:2], families.TEXT[:1]])
        assert [trace.kinds for trace in traces] == [(kind,)] * 3


def test_queries_that_are_no_tokens_are_told_apart() -> None:
    """SigLIP pools its patches with a query that is a parameter."""
    family = families.ALL["SigLIP vision"]
    trace = identiscope.trace(family.model(), family.inputs())
    site = trace.site(0, attention="cross")
    assert (site.query_stream, site.key_stream, site.queries, site.keys) == ("queries", "tokens", 1, 16)
    assert len(trace.streams["queries"]) == 1


def test_towers_keep_their_own_positions() -> None:
    """FLAVA: a text of 12 tokens, an image of 17 patches, and both together."""
    model = every_family.build("flava")
    given = {"input_ids": torch.tensor([families.TEXT]), "pixel_values": torch.randn(1, 3, 16, 16).double()}
    trace = identiscope.trace(model, given)
    assert {name: len(stream) for name, stream in trace.streams.items()} == {"text": 12, "image": 17, "other": 30}
    assert [(site.query_stream, site.layer) for site in trace.sites] == [
        (stream, layer) for stream in ("image", "text", "other") for layer in (0, 1)
    ]
    assert trace.verify().error < 1e-12


def test_keys_of_two_sequences_are_kept_whole() -> None:
    """T5Gemma-2's decoder looks at its own tokens and at the encoder's in one softmax."""
    model = every_family.build("t5gemma2")
    trace = identiscope.trace(model, every_family.inputs(model))
    site = trace.site(1, attention="cross")
    assert (site.queries, site.keys) == (7, 19)
    assert trace.verify().error < 1e-12


# --- layers

# Which blocks of each tiny hybrid attend.
HYBRID = {
    "lfm2": [1, 3],
    "lfm2_moe": [1, 3],
    "jamba": [1, 3],
    "bamba": [1, 3],
    "granitemoehybrid": [1, 3],
    "nemotron_h": [1, 3],
    "zamba": [2, 4],
    "zamba2": [2, 4],
    "olmo_hybrid": [1],
}


@pytest.mark.parametrize("model_type", HYBRID)
def test_a_layer_is_the_place_of_its_block_in_the_model(model_type: str) -> None:
    model = every_family.build(model_type)
    trace = identiscope.trace(model, families.TEXT)
    assert [site.layer for site in trace.sites] == HYBRID[model_type]
    assert trace.verify().verified
    # Literally: the block with that number reads hidden_states[layer] and writes hidden_states[layer + 1].
    read: dict[int, torch.Tensor] = {}
    written: dict[int, torch.Tensor] = {}
    for number, block in enumerate(model.layers):  # type: ignore[arg-type]

        def keep(module: Any, args: Any, kwargs: Any, output: Any, number: int = number) -> None:
            read[number] = args[0] if args else kwargs["hidden_states"]
            written[number] = output[0] if isinstance(output, tuple) else output

        block.register_forward_hook(keep, with_kwargs=True)
    with torch.no_grad():
        model(torch.tensor([families.TEXT]), use_cache=False)
    for site in trace.sites:
        assert torch.equal(read[site.layer][0], trace.hidden_states[site.layer])
        if site.layer + 2 < len(trace.hidden_states):  # the last is shown behind the final norm
            assert torch.equal(written[site.layer].reshape(12, -1), trace.hidden_states[site.layer + 1])


def test_layers_of_a_hybrid_can_be_chosen_substituted_streamed_and_run() -> None:
    model = every_family.build("lfm2_moe")
    trace = identiscope.trace(model, families.TEXT)
    chosen = identiscope.trace(model, families.TEXT, layers=[3])
    assert torch.equal(chosen.site(3).attention(0), trace.site(3).attention(0))
    with pytest.raises(identiscope.InputError, match="attention in layers 1, 3"):
        identiscope.trace(model, families.TEXT, layers=[0])
    seen: list[int] = []
    identiscope.stream(model, families.TEXT, lambda site: seen.append(site.layer))
    assert seen == [1, 3]
    changed = identiscope.substitute(model, families.TEXT, {(3, 1): lambda attention: attention.roll(1, 0)})
    assert torch.equal(changed.hidden_states[3], trace.hidden_states[3])
    assert not torch.equal(changed.hidden_states[4], trace.hidden_states[4])
    with pytest.raises(identiscope.InputError, match="attention in layers 1, 3"):
        identiscope.substitute(model, families.TEXT, {(0, 1): lambda attention: attention})
    result = identiscope.attention_identifiability(trace)
    assert result.layer.values.tolist() == [1, 3]
    assert identiscope.attention_maps(trace, 3, 0).raw.shape == (12, 12)
    from identiscope.capture.blocks import find_blocks
    from identiscope.runs.compute.batch import model_shape
    from identiscope.runs.compute.options import RunOptions

    assert "2 attention sites for 4 layers" in find_blocks(trace).reason
    assert model_shape(identiscope.load(model), RunOptions()).layers == (1, 3)
    with pytest.raises(identiscope.InputError, match="attention in layers 1, 3"):
        model_shape(identiscope.load(model), RunOptions(layers=(0,)))


def test_shared_modules_have_layers_of_their_own() -> None:
    options = families._BERT | {"num_hidden_layers": 4, "num_hidden_groups": 2, "embedding_size": 16}
    trace = identiscope.trace(tiny("AlbertModel", **options), families.TEXT)
    assert [site.layer for site in trace.sites] == [0, 1, 2, 3]
    options |= {"inner_group_num": 2}
    trace = identiscope.trace(tiny("AlbertModel", **options), families.TEXT)
    assert len({site.layer for site in trace.sites}) == len(trace.sites) == 8


# --- attention written by hand


class ByHand(nn.Module):
    """Softmax attention in plain products, as people write it; `how` says in which."""

    def __init__(self, how: str, scale: float) -> None:
        super().__init__()
        self.how, self.scale, self.num_heads = how, scale, 4
        self.query, self.key, self.value, self.out = (nn.Linear(32, 32) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part(x).unflatten(-1, (4, 8)).transpose(1, 2) for part in (self.query, self.key, self.value))
        if self.how == "matmul":
            context = torch.matmul(torch.softmax(q @ k.mT * self.scale, -1), v)
        elif self.how == "bmm":
            weights = torch.bmm(q.flatten(0, 1), k.flatten(0, 1).mT).mul(self.scale).softmax(-1)
            context = torch.bmm(weights, v.flatten(0, 1)).unflatten(0, (-1, 4))
        else:
            logits = torch.einsum("bhid,bhjd->bhij", q, k) * self.scale
            context = torch.einsum("bhij,bhjd->bhid", nn.functional.softmax(logits, dim=-1), v)
        made: torch.Tensor = self.out(context.transpose(1, 2).flatten(2))
        return made


@pytest.mark.parametrize("scale", [8**-0.5, 1.0, 0.37])
@pytest.mark.parametrize("how", ["matmul", "bmm", "einsum"])
def test_attention_by_hand_needs_no_line_of_a_table(how: str, scale: float) -> None:
    torch.manual_seed(0)
    model, x = ByHand(how, scale).double(), torch.randn(2, 6, 32, dtype=torch.float64)
    traces = identiscope.trace(model, {"x": x})
    for text, trace in enumerate(traces):
        site = trace.site(0)
        assert site.scale == pytest.approx(scale, rel=1e-12) and trace.verify().error < 1e-12
        q, k = (part(x[text]).detach().numpy().reshape(6, 4, 8) for part in (model.query, model.key))
        for head in range(4):
            logits = np.exp(q[:, head] @ k[:, head].T * scale)
            assert np.abs(site.attention(head).numpy() - logits / logits.sum(1, keepdims=True)).max() < 1e-12
    other = torch.eye(6).double()
    changed = identiscope.substitute(model, {"x": x[:1]}, {(0, h): other for h in range(4)})
    with torch.no_grad():
        assert changed.logits is not None
        assert torch.allclose(changed.logits, model.out(model.value(x[0])), rtol=0, atol=1e-12)


def test_a_bias_on_the_logits_is_not_guessed() -> None:
    class SelfAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            bias = torch.arange(5.0).double()
            weights = torch.softmax(x[:, None] @ x[:, None].mT + bias, -1)
            made: torch.Tensor = self.out((weights @ x[:, None])[:, 0])
            return made

    torch.manual_seed(0)
    with pytest.raises(identiscope.CaptureError, match=r"logits are no multiple of query·key.*FAMILIES"):
        identiscope.trace(SelfAttention().double(), torch.randn(1, 5, 8, dtype=torch.float64))


@pytest.mark.parametrize("name", ["XGLM", "FSMT"])
def test_families_that_fill_masks_beyond_float32_run_in_float64(name: str) -> None:
    if name == "XGLM":
        options: dict[str, Any] = {
            "vocab_size": 99,
            "d_model": 32,
            "num_layers": 2,
            "attention_heads": 4,
            "ffn_dim": 48,
        }
        model, given = tiny("XGLMForCausalLM", **options), {"input_ids": torch.tensor([families.TEXT])}
    else:
        options = {key: value for key, value in families._BART.items() if key != "vocab_size"}
        options |= {"src_vocab_size": 99, "tgt_vocab_size": 99, "langs": ["a", "b"]}
        model, given = tiny("FSMTModel", **options), dict(families._two_sided())
    trace = identiscope.trace(model, given)
    assert trace.verify().error < 1e-12
    single = identiscope.trace(model.float(), given)
    for one, other in zip(trace.sites, single.sites, strict=True):
        assert torch.allclose(one.attentions(), other.attentions(), rtol=0, atol=1e-3)
    with torch.no_grad():
        outputs = model(**given, output_attentions=True, use_cache=False)
    shown = [*(getattr(outputs, "encoder_attentions", None) or ())]
    shown += getattr(outputs, "decoder_attentions", None) or getattr(outputs, "attentions", ()) or ()
    sites = [site for site in single.sites if site.kind != "cross"]
    for site, maps in zip(sites, shown, strict=True):
        assert torch.allclose(site.attentions().float(), maps[0], rtol=0, atol=1e-5)


def test_other_errors_of_a_model_in_float64_are_passed_on() -> None:
    class Fills(transformers.BertModel):  # type: ignore[misc]
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            torch.full((), 1e300, dtype=torch.float16).to(torch.int8)
            raise RuntimeError("of its own")

    with pytest.raises(identiscope.InputError, match="of its own"):
        identiscope.trace(Fills(transformers.BertConfig(**families._BERT)).double(), families.TEXT)
