"""What a careful reader tried to break."""

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import nn

import families
import identiscope


def tiny(name: str = "BERT") -> Any:
    return families.ALL[name].model()


# --- checkpoints


def test_missing_weights_are_not_made_up(tmp_path: Path) -> None:
    tiny().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 4}))
    with pytest.raises(identiscope.ModelError, match=r"missing.*encoder\.layer\.2.*would be random"):
        identiscope.load(tmp_path)


def test_weights_of_another_shape_are_not_made_up(tmp_path: Path) -> None:
    tiny().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"intermediate_size": 50}))
    with pytest.raises(identiscope.ModelError):
        identiscope.load(tmp_path)


@pytest.mark.parametrize("content", ["null", "{", '{"model_type": "bert", "hidden_size": "big"}'])
def test_a_damaged_config(tmp_path: Path, content: str) -> None:
    tiny().save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(identiscope.ModelError, match="cannot load"):
        identiscope.load(tmp_path)


def test_no_tokenizer_is_invented(tmp_path: Path) -> None:
    tiny().save_pretrained(tmp_path)
    loaded = identiscope.load(tmp_path)
    assert loaded.tokenizer is None
    with pytest.raises(identiscope.InputError, match="without a tokenizer"):
        identiscope.trace(loaded, "The cat sat.")


def test_arguments_that_cannot_be_used_are_refused(minilm: identiscope.Model) -> None:
    with pytest.raises(identiscope.ModelError, match="dtype cannot be set"):
        identiscope.load(tiny(), dtype=torch.float32)
    with pytest.raises(identiscope.ModelError, match="no revisions"):
        identiscope.load("minilm", revision="main")
    with pytest.raises(identiscope.ModelError, match="is a name"):
        identiscope.load(tiny(), "minilm")
    with pytest.raises(identiscope.InputError, match=r"model=5 was given; expected a string, a path, a torch\.Module"):
        identiscope.load(5)  # type: ignore[arg-type]
    assert identiscope.load(minilm) is minilm


# --- inputs


@pytest.mark.parametrize(
    "text", [None, 5, 1.5, b"hello", (), ("a", "b", "c"), ["a", None], "\ud800", [[1.5]], [True, False], object()]
)
def test_what_is_no_text(minilm: identiscope.Model, text: Any) -> None:
    with pytest.raises(identiscope.InputError):
        identiscope.trace(minilm, text)


@pytest.mark.parametrize("text", ["🙂 emoji", "שלום עולם", "tab\tand\x07bell", "</script>", "x" * 3000, "ﬁ ligature é"])
def test_odd_texts_are_texts(minilm: identiscope.Model, text: str) -> None:
    trace = identiscope.trace(minilm, text)
    assert trace.verify().verified
    assert len(trace.tokens) == len(trace.main.special) == trace.embeddings.shape[0]


def test_numpy_ids() -> None:
    model = tiny()
    for ids in (np.array(families.TEXT), [np.int64(token) for token in families.TEXT]):
        assert identiscope.trace(model, ids).main.ids == tuple(families.TEXT)


@pytest.mark.parametrize("choice", [{"layers": []}, {"layers": [1.5]}, {"heads": 3}, {"layers": "0"}])
def test_a_choice_that_is_none(choice: Any) -> None:
    with pytest.raises(identiscope.InputError, match="whole numbers"):
        identiscope.trace(tiny(), families.TEXT, **choice)


@pytest.mark.parametrize(
    ("rows", "message"), [([-1], "from 0 to 11"), ([12], "from 0 to 11"), ([[0]], r"rows=\[\[0\]\] .* whole numbers")]
)
def test_rows_out_of_range(rows: Any, message: str) -> None:
    with pytest.raises(identiscope.InputError, match=message):
        identiscope.trace(tiny("GPT-2"), families.TEXT).site(0).attention(0, rows)


@pytest.mark.parametrize(
    "arguments",
    [
        {"input_ids": torch.tensor([5, 6])},
        {"input_ids": torch.tensor(5)},
        {"input_ids": torch.tensor([[5, 6]]), "attention_mask": torch.zeros(1, 2, dtype=torch.long)},
        {"input_ids": torch.tensor([[5, 6]]), "attention_mask": torch.ones(1, 3, dtype=torch.long)},
    ],
)
def test_mappings_that_do_not_fit(arguments: Any) -> None:
    with pytest.raises(identiscope.InputError):
        identiscope.trace(tiny(), arguments)


def test_what_the_model_itself_refuses_is_said() -> None:
    with pytest.raises(identiscope.InputError, match="cannot run on"):
        identiscope.trace(tiny("ViT"), torch.randn(3, 20, 20))


def test_padding_needs_no_id_of_its_own() -> None:
    model = tiny("Llama")
    model.config.pad_token_id = -1
    traces = identiscope.trace(model, [families.TEXT, families.TEXT[:4]])
    assert [len(trace.main) for trace in traces] == [12, 4]


# --- targets


class Words:
    """A tokenizer of four words, with an end token or without."""

    is_fast, padding_side, all_special_ids, pad_token_id = False, "right", (2,), 0

    def __init__(self, ends: bool) -> None:
        self.ends = ends
        self.vocabulary = {"the": 5, "cat": 6, "sat": 7, "on": 8}

    def __call__(self, text: str | None = None, text_target: str | None = None, **options: Any) -> Any:
        ids = [self.vocabulary[word] for word in str(text or text_target).split()] + [2] * self.ends
        return {"input_ids": ids, "special_tokens_mask": [int(token == 2) for token in ids]}

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [str(token) for token in ids]


@pytest.mark.parametrize("ends", [True, False])
def test_a_target_loses_its_end_token_and_no_word(ends: bool) -> None:
    model = identiscope.load(tiny("BART"), Words(ends))
    assert identiscope.trace(model, "the cat", target="the cat sat").streams["decoder"].ids == (2, 5, 6, 7)
    traces = identiscope.trace(model, ["the cat", "sat on"], target=["the", "cat on"])
    assert [trace.streams["decoder"].ids for trace in traces] == [(2, 5), (2, 6, 8)]
    with pytest.raises(identiscope.InputError, match="one target was given for 2 texts"):
        identiscope.trace(model, ["the cat", "sat on"], target="the")


def test_a_target_for_speech() -> None:
    model = identiscope.load(tiny("Whisper"), Words(True))
    features = families.ALL["Whisper"].inputs()["input_features"][0]
    assert identiscope.trace(model, features, target="the cat sat").streams["decoder"].ids == (2, 5, 6, 7)
    with pytest.raises(identiscope.InputError, match="instead of a target"):
        identiscope.trace(model, families.ALL["Whisper"].inputs(), target="the")


def test_an_unknown_start_token_is_not_guessed() -> None:
    model = tiny("T5")
    model.config.decoder_start_token_id = model.config.bos_token_id = None
    with pytest.raises(identiscope.InputError, match="decoder_start_token_id"):
        identiscope.trace(model, families.TEXT)


# --- other ways to attend


@pytest.mark.parametrize("length", [3, 12, 20])
def test_cross_attention_to_a_memory_given_from_outside(length: int) -> None:
    torch.manual_seed(0)
    config = transformers.BertConfig(**families._BERT, is_decoder=True, add_cross_attention=True)
    model = transformers.BertModel(config).double().eval()
    memory = torch.randn(1, length, 32, dtype=torch.float64)
    trace = identiscope.trace(model, {"input_ids": torch.tensor([families.TEXT]), "encoder_hidden_states": memory})
    assert trace.kinds == ("decoder-self", "cross")
    site = trace.site(1, attention="cross")
    assert (site.query_stream, site.key_stream, site.keys) == ("tokens", "memory", length)
    assert trace.streams["memory"].tokens == tuple(map(str, range(length)))
    assert trace.verify().error < 1e-12


def test_torch_transformer_has_two_streams() -> None:
    torch.manual_seed(0)
    model = nn.Transformer(32, 4, 2, 2, 48, batch_first=True, dtype=torch.float64)
    source, goal = torch.randn(1, 6, 32, dtype=torch.float64), torch.randn(1, 4, 32, dtype=torch.float64)
    trace = identiscope.trace(model, {"src": source, "tgt": goal})
    assert [site.kind for site in trace.sites] == ["encoder-self"] * 2 + ["decoder-self", "cross"] * 2
    assert (len(trace.streams["encoder"]), len(trace.streams["decoder"])) == (6, 4)
    assert trace.site(1, attention="cross").attention(0).shape == (4, 6)
    assert trace.verify().error < 1e-12
    assert identiscope.attention_maps(trace, 0, 1, attention="cross").raw.shape == (4, 6)


def test_one_head_without_an_axis_of_its_own() -> None:
    class SelfAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.value, self.out = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(nn.functional.scaled_dot_product_attention(x, x, self.value(x)))

    torch.manual_seed(0)
    module, x = SelfAttention().double(), torch.randn(1, 5, 8, dtype=torch.float64)
    trace = identiscope.trace(module, x)
    assert trace.verify().error < 1e-12
    same = identiscope.substitute(module, x, {(0, 0): lambda attention: attention})
    other = identiscope.substitute(module, x, {(0, 0): torch.eye(5)})
    assert same.logits is not None and other.logits is not None and trace.logits is not None
    assert torch.equal(same.logits, trace.logits)
    with torch.no_grad():
        assert torch.allclose(other.logits, module.out(module.value(x))[0])


def test_a_compiled_model_is_captured_uncompiled() -> None:
    model = tiny()
    expected = identiscope.trace(model, families.TEXT)
    compiled: Any
    for compiled in (torch.compile(model, backend="eager"), model):
        if compiled is model:
            model.compile(backend="eager")
        trace = identiscope.trace(compiled, families.TEXT)
        assert trace.verify().verified
        assert torch.equal(trace.hidden_states[-1], expected.hidden_states[-1])


def test_streaming_two_towers() -> None:
    seen: list[tuple[str, int]] = []
    family = families.ALL["CLIP"]
    identiscope.stream(family.model(), family.inputs(), lambda site: seen.append((site.query_stream, site.queries)))
    assert sorted(set(seen)) == [("text", 8), ("vision", 17)]


# --- threads, and what a trace holds


def test_threads_take_turns_and_the_model_stays_in_training() -> None:
    model = tiny().train()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(5):
                assert identiscope.trace(model, families.TEXT).verify().verified
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert all(module.training for module in model.modules())


def test_a_trace_does_not_follow_the_model_s_weights() -> None:
    model = tiny()
    trace = identiscope.trace(model, families.TEXT)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    assert trace.verify().verified
    with pytest.raises(TypeError):
        trace.streams["tokens"] = trace.main  # type: ignore[index]


def test_nothing_compared_is_nothing_verified() -> None:
    trace = identiscope.from_arrays(torch.eye(3), torch.ones(3, 2))
    assert not trace.verify().verified
    assert np.isnan(trace.verify().error)


def test_rectangular_arrays() -> None:
    trace = identiscope.from_arrays(torch.full((2, 5), 0.2), torch.randn(5, 3), tokens=list("abcde"))
    assert (len(trace.main), trace.streams["memory"].tokens) == (2, tuple("abcde"))
    assert identiscope.attention_identifiability(trace).null_share.shape == (1, 1)
