"""Padding on either side, batches of unequal lengths, grouped queries, causal and sliding masks, cross-attention."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

import every_family
import families
import identiscope

READS_TEXT = [name for name, family in families.ALL.items() if family.arguments is None]
SHORT = families.TEXT[:5]


@dataclasses.dataclass(frozen=True)
class PadsOnThe:
    """As much of a tokenizer as padding needs."""

    padding_side: str
    pad_token_id: int = 0

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [f"t{number}" for number in ids]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", READS_TEXT)
def test_a_batch_gives_what_each_text_gives_alone(name: str, side: str) -> None:
    model = identiscope.load(families.ALL[name].model(), PadsOnThe(side))
    together = identiscope.trace(model, [families.TEXT, SHORT])
    assert [len(trace.main) for trace in together] == [12, 5]
    for trace, text in zip(together, (families.TEXT, SHORT), strict=True):
        alone = identiscope.trace(model, text)
        assert trace.tokens == alone.tokens
        tolerance = 1e-10 if families.ALL[name].precision == "float64" else 1e-5
        for state, expected in zip(trace.hidden_states, alone.hidden_states, strict=True):
            assert torch.allclose(state, expected, rtol=0, atol=tolerance * float(expected.abs().max()))
        for mine, theirs in zip(trace.sites, alone.sites, strict=True):
            assert (mine.bias.causal, mine.mask) == (theirs.bias.causal, theirs.mask)
            assert torch.allclose(mine.attentions(), theirs.attentions(), rtol=0, atol=tolerance)
        assert trace.verify().verified
        if alone.logits is not None and trace.logits is not None and alone.logits.dim() == 2:
            assert trace.logits.shape == alone.logits.shape


# In a batch, these attend otherwise (PaliGemma leaves its mask out where nothing is padded), pool or patch over padding
# (Funnel, BLT), keep keys of it (T5Gemma-2), or become NaN in float64, since their masks are -inf in a float32 softmax
# (Gemma-2). Gemma-3n has four copies of each state, in an axis before the texts.
RUN_APART = {"paligemma": 2, "blt": 0, "funnel": 0, "t5gemma2": 0, "gemma2": 2, "gemma3n_text": 2}


@pytest.mark.parametrize("model_type", RUN_APART)
def test_texts_are_run_apart_where_padding_changes_what_they_give(model_type: str) -> None:
    dtype = torch.float32 if model_type == "funnel" else torch.float64
    model = identiscope.load(every_family.build(model_type, dtype))
    together = identiscope.trace(model, [families.TEXT, SHORT])
    for trace, text in zip(together, (families.TEXT, SHORT), strict=True):
        alone = identiscope.trace(model, text)
        assert [(site.queries, site.keys, site.mask) for site in trace.sites] == [
            (site.queries, site.keys, site.mask) for site in alone.sites
        ]
        assert {name: part.tokens for name, part in trace.streams.items()} == {
            name: part.tokens for name, part in alone.streams.items()
        }
        assert trace.main.hidden_states == () or len(trace.main) == len(text)
        assert_same(trace, alone)
    count = RUN_APART[model_type]
    assert not count or [site.queries for site in together[1].sites if site.query_stream == "tokens"] == [5] * count


def test_what_padding_does_is_tried_once_for_a_model_as_it_is() -> None:
    model, ran = identiscope.load(families.ALL["BERT"].model()), []
    model.module.register_forward_pre_hook(lambda *given: ran.append(1))
    identiscope.trace(model, [families.TEXT, families.TEXT])
    assert len(ran) == 1  # nothing to pad
    identiscope.trace(model, [families.TEXT, SHORT])
    assert len(ran) == 4
    identiscope.trace(model, [families.TEXT, SHORT])
    assert len(ran) == 5
    # A hook that takes the mean over all there is does so over padding.
    embeddings = model.module.get_submodule("embeddings")
    embeddings.register_forward_hook(lambda module, args, output: output - output.mean(1, keepdim=True))
    assert_same(identiscope.trace(model, [families.TEXT, SHORT])[1], identiscope.trace(model, SHORT))


TWO_SIDED = ["BART", "Marian", "mBART", "Pegasus", "Blenderbot", "M2M-100", "T5", "UMT5"]


def without_positions() -> dict[str, Any]:
    """Models that cannot be told where a token stands, with a learned or fixed place for each."""
    found: dict[str, Any] = {name: families.ALL[name].model for name in TWO_SIDED}
    bart = families._BART
    for kind in ("PLBart", "BigBirdPegasus", "BlenderbotSmall", "Mvp", "Bart"):
        found[kind] = families.Family(families._of(f"{kind}ForConditionalGeneration", **bart), 6).model
    found["BigBirdPegasusForCausalLM"] = families.Family(families._of("BigBirdPegasusForCausalLM", **bart), 2).model
    found["FSMT"] = families.Family(families._of("FSMTModel", **_FSMT), 6).model
    return found


_FSMT = {key: value for key, value in families._BART.items() if key != "vocab_size"} | {
    "src_vocab_size": 99, "tgt_vocab_size": 99, "langs": ["a", "b"], "max_length": 20,
}  # fmt: skip


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", without_positions())
def test_models_that_cannot_be_told_positions_give_in_a_batch_what_they_give_alone(name: str, side: str) -> None:
    model = identiscope.load(without_positions()[name](), PadsOnThe(side))
    together = identiscope.trace(model, [families.TEXT, SHORT])
    for trace, text in zip(together, (families.TEXT, SHORT), strict=True):
        assert_same(trace, identiscope.trace(model, text))


def assert_same(one: identiscope.Trace, other: identiscope.Trace) -> None:
    assert [(site.kind, site.layer) for site in one.sites] == [(site.kind, site.layer) for site in other.sites]
    # Bloom's softmax is in float32 whatever the weights are in, and rounds by how long a row is with its padding.
    close = {"float64": 1e-10, "float32": 1e-6}[other.verify().precision]
    for mine, theirs in zip(one.sites, other.sites, strict=True):
        assert torch.allclose(mine.attentions(), theirs.attentions(), rtol=0, atol=close)
    for stream, part in other.streams.items():
        assert one.streams[stream].ids == part.ids
        for mine_state, their_state in zip(one.streams[stream].hidden_states, part.hidden_states, strict=True):
            assert torch.allclose(mine_state, their_state, rtol=0, atol=close * float(their_state.abs().max()))


def padded_on_the_left(*texts: list[int]) -> dict[str, torch.Tensor]:
    length = max(map(len, texts))
    return {
        "input_ids": torch.tensor([[0] * (length - len(text)) + text for text in texts]),
        "attention_mask": torch.tensor([[0] * (length - len(text)) + [1] * len(text) for text in texts]),
    }


@pytest.mark.parametrize("name", ["BERT", "RoBERTa", "GPT-2", "OPT", "Llama", "XLNet", "Bloom"])
def test_a_given_batch_with_padding_on_the_left_is_that_of_its_texts(name: str) -> None:
    model = families.ALL[name].model()
    if name == "RoBERTa":
        model.config.pad_token_id = 1
    given = padded_on_the_left(families.TEXT, SHORT)
    for trace, text in zip(identiscope.trace(model, given), (families.TEXT, SHORT), strict=True):
        assert_same(trace, identiscope.trace(model, text))
    alone = identiscope.trace(model, {key: value[1:] for key, value in given.items()})
    assert_same(alone, identiscope.trace(model, SHORT))


def test_padded_embeddings_are_refused() -> None:
    # GPT-2 would count the places of the text from its padding, and the map have rows of it.
    model = families.ALL["GPT-2"].model()
    given = padded_on_the_left(families.TEXT, SHORT)
    states = model.get_input_embeddings()(given["input_ids"]).detach()
    with pytest.raises(identiscope.InputError, match="attention_mask hides positions of inputs_embeds"):
        identiscope.trace(model, {"inputs_embeds": states, "attention_mask": given["attention_mask"]})
    whole = {"inputs_embeds": states[:1], "attention_mask": given["attention_mask"][:1]}
    alone = identiscope.trace(model, families.TEXT)
    for mine, theirs in zip(identiscope.trace(model, whole).sites, alone.sites, strict=True):
        assert torch.allclose(mine.attentions(), theirs.attentions(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["Marian", "T5"])
def test_a_given_batch_of_both_sides_with_padding_on_the_left(name: str) -> None:
    model = families.ALL[name].model()
    decoder = padded_on_the_left([2, 7, 8, 9], [2, 11])
    given = padded_on_the_left(families.TEXT, SHORT) | {f"decoder_{key}": value for key, value in decoder.items()}
    for trace, text, target in zip(
        identiscope.trace(model, given), (families.TEXT, SHORT), ([2, 7, 8, 9], [2, 11]), strict=True
    ):
        alone = {"input_ids": torch.tensor([text]), "decoder_input_ids": torch.tensor([target])}
        assert_same(trace, identiscope.trace(model, alone))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", ["Bart", "MBart", "PLBart", "Mvp"])
def test_a_decoder_that_reads_the_given_text_reads_none_of_its_padding(kind: str, side: str) -> None:
    # Given no decoder_input_ids, these shift the encoder's to the right, padding and all.
    model = families.Family(families._of(f"{kind}ForConditionalGeneration", **families._BART), 6).model()
    given = padded_on_the_left(families.TEXT, SHORT)
    if side == "right":
        given = {name: torch.stack([value[0], value[1].roll(len(SHORT))]) for name, value in given.items()}
    together = identiscope.trace(model, given)
    for trace, text in zip(together, (families.TEXT, SHORT), strict=True):
        assert [site.queries for site in trace.sites] == [len(text)] * 6
        assert_same(trace, identiscope.trace(model, {"input_ids": torch.tensor([text])}))
    short = {name: value[1:] for name, value in given.items()}
    alone = identiscope.trace(model, {"input_ids": torch.tensor([SHORT])})
    assert_same(identiscope.trace(model, short), alone)
    rerun = identiscope.substitute(model, short, {(0, 1): lambda attention: attention}, attention="cross")
    assert torch.equal(rerun.streams["decoder"][-1], alone.streams["decoder"].hidden_states[-1])


def test_where_one_text_is_meant_a_batch_is_refused() -> None:
    model = families.ALL["BERT"].model()
    given = padded_on_the_left(families.TEXT, SHORT)
    with pytest.raises(identiscope.InputError, match="2 texts were given, where one is meant"):
        identiscope.substitute(model, given, {(0, 1): lambda attention: attention})
    with pytest.raises(identiscope.InputError, match="2 texts were given, where one is meant"):
        identiscope.stream(model, given, lambda site: None)


def test_padding_has_no_part_in_any_tensor() -> None:
    model = identiscope.load(families.FAMILIES["BERT"].model(), PadsOnThe("right"))
    short = identiscope.trace(model, [families.TEXT, SHORT])[1]
    for site in short.sites:
        assert site.query is not None and site.key is not None and site.output is not None
        assert {site.query.shape[1], site.key.shape[1], site.value.shape[1], site.context.shape[1]} == {5}
        assert site.output.shape[0] == 5
        assert site.bias.allowed is None


def test_a_given_padding_mask_is_kept_to() -> None:
    model = families.FAMILIES["Llama"].model()
    ids = torch.tensor([[0, 0, *SHORT]])
    mask = torch.tensor([[0, 0, 1, 1, 1, 1, 1]])
    positions = torch.tensor([[0, 0, 0, 1, 2, 3, 4]])
    padded = identiscope.trace(model, {"input_ids": ids, "attention_mask": mask, "position_ids": positions})
    alone = identiscope.trace(model, SHORT)
    assert padded.main.ids == alone.main.ids == tuple(SHORT)
    for mine, theirs in zip(padded.sites, alone.sites, strict=True):
        assert torch.allclose(mine.attentions(), theirs.attentions(), atol=1e-6)


def test_grouped_queries_share_key_and_value() -> None:
    site = identiscope.trace(families.FAMILIES["Llama"].model(), families.TEXT).site(0)
    assert (site.head_count, site.value.shape[0], site.key_value_heads) == (4, 2, (0, 0, 1, 1))
    assert torch.equal(site.value_of(2), site.value_of(3))
    assert not torch.equal(site.value_of(1), site.value_of(2))
    for head in range(4):
        context = site.attention(head) @ site.value_of(head)
        assert torch.allclose(context, site.context[head], atol=1e-12)


def test_choosing_heads_keeps_groups_right() -> None:
    model = families.FAMILIES["Llama"].model()
    whole = identiscope.trace(model, families.TEXT)
    some = identiscope.trace(model, families.TEXT, layers=[1], heads=[1, 2])
    assert [site.layer for site in some.sites] == [1]
    site = some.site(1)
    assert site.heads == (1, 2)
    assert site.value.shape[0] == 2
    for head in (1, 2):
        assert torch.equal(site.attention(head), whole.site(1).attention(head))
    assert some.verify().verified
    with pytest.raises(identiscope.InputError, match=r"head 3 .* not captured.*\[1, 2\]"):
        site.attention(3)


def test_causal_rows_see_no_future() -> None:
    site = identiscope.trace(families.FAMILIES["GPT-2"].model(), families.TEXT).site(1)
    assert site.bias.causal and site.bias.allowed is None and site.mask == "causal"
    assert not bool(site.attentions().triu(1).any())
    assert torch.equal(site.allowed_keys(0), torch.ones(12, 12, dtype=torch.bool).tril())


def test_sliding_window_is_shorter_than_the_text() -> None:
    site = identiscope.trace(families.FAMILIES["Mistral"].model(), families.TEXT).site(0)
    expected = np.array([[i - 5 < j <= i for j in range(12)] for i in range(12)])
    assert site.mask == "sliding causal"
    assert np.array_equal(site.allowed_keys(0).numpy(), expected)
    assert np.array_equal(site.attention(0).numpy() > 0, expected)


def test_sinks_leave_rows_below_one() -> None:
    site = identiscope.trace(families.FAMILIES["GPT-OSS"].model(), families.TEXT).site(1)
    assert site.sinks is not None
    totals = site.attentions().sum(-1)
    assert bool((totals < 1).all()) and bool((totals > 0).all())


def test_soft_cap_and_position_bias_are_captured() -> None:
    assert identiscope.trace(families.FAMILIES["Gemma-2"].model(), families.TEXT).site(0).softcap == 0.5
    two_sided = families.FAMILIES["T5"]
    trace = identiscope.trace(two_sided.model(), two_sided.inputs())
    bias = trace.site(0, attention="encoder-self").bias.position
    assert bias is not None and bias.shape == (4, 12, 12) and bool((bias != 0).any())
    assert trace.site(0, attention="cross").bias.position is None


@pytest.mark.parametrize("name", ["T5", "BART", "Marian", "Whisper"])
def test_cross_attention_reads_the_encoder(name: str) -> None:
    family = families.FAMILIES[name]
    trace = identiscope.trace(family.model(), family.inputs())
    assert list(trace.streams) == ["encoder", "decoder"]
    assert trace.kinds == ("encoder-self", "decoder-self", "cross")
    site = trace.site(1, attention="cross")
    assert (site.query_stream, site.key_stream) == ("decoder", "encoder")
    assert (site.queries, site.keys) == (len(trace.streams["decoder"]), len(trace.streams["encoder"]))
    with pytest.raises(identiscope.InputError, match="several attentions"):
        trace.site(1)


def test_towers_are_told_apart() -> None:
    family = families.FAMILIES["CLIP"]
    trace = identiscope.trace(family.model(), family.inputs())
    assert list(trace.streams) == ["text", "vision"]
    assert trace.site(0, stream="vision").queries == 17
    assert trace.site(0, stream="text").mask == "causal"


def test_albert_shares_a_module_and_not_a_site() -> None:
    trace = identiscope.trace(families.FAMILIES["ALBERT"].model(), families.TEXT)
    first, second = trace.sites
    assert first.name == second.name
    assert (first.layer, second.layer) == (0, 1)
    assert not torch.equal(first.value, second.value)


def test_half_precision_is_told_by_its_error() -> None:
    model: Any = families.FAMILIES["BERT"].model().to(torch.float16)
    verification = identiscope.trace(model, families.TEXT).verify()
    assert verification.verified
    assert {site.precision for site in verification.sites} == {"float16"}
