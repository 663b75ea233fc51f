"""The same function with other weights: every family, in both precisions, saved and loaded; wrong ones are caught."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import identiscope
import rewritable
from identiscope.capture.rewriting import attention, feed_forward, matrices, residual, rewriting
from identiscope.capture.rewriting.rewriting import REWRITINGS, openings, rewrite
from identiscope.capture.rewriting.verification import largest_change
from identiscope.errors import InputError, ModelError

#: Model → what it does not allow, and words of the reason.
REFUSED = {
    "bert": {"residual_rotation": "norms stand behind every sum"},
    "bert masked words": {"residual_rotation": "norms stand behind every sum"},
    "bert classes": {"residual_rotation": "norms stand behind every sum"},
    "bert tokens": {"residual_rotation": "norms stand behind every sum"},
    "gpt2": {},
    "gpt2 without head": {"residual_rotation": "it has no head"},
    "llama": {"value_bias": "no value bias", "key_bias": "rotary"},
    "llama tied, with biases": {"key_bias": "rotary"},
    "qwen2": {"value_bias": "no output bias", "key_bias": "rotary"},
    "qwen3": {"value_bias": "no value bias", "key_bias": "rotary"},
    "mistral": {"value_bias": "no value bias", "key_bias": "rotary"},
    "gemma2": {"value_bias": "no value bias", "key_bias": "rotary", "residual_rotation": "before the addition"},
    "gemma3": {"value_bias": "no value bias", "key_bias": "rotary", "residual_rotation": "before the addition"},
    "opt": {},
    "opt post-norm": {"residual_rotation": "norms stand behind every sum"},
    "vit": {},
}
_INPUTS = [5, 17, 42, 8, 60, 23, 31, 7, 12, 50]


def plain_outputs(module: Any) -> np.ndarray:
    """What transformers' own model returns, without anything of identiscope's in between."""
    with torch.no_grad():
        if module.config.model_type == "vit":
            pixels = torch.rand(1, 3, 12, 12, generator=torch.Generator().manual_seed(1))
            made = module(pixel_values=pixels.to(module.dtype))
        else:
            made = module(input_ids=torch.tensor([_INPUTS]))
    last = made.logits if hasattr(made, "logits") else made.last_hidden_state
    return np.asarray(last.double())


def relative(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one - other).max() / np.abs(one).max())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", rewritable.MODELS)
def test_every_family(name: str, dtype: torch.dtype) -> None:
    module = rewritable.model(name, dtype)
    weights = {key: value.clone() for key, value in module.state_dict().items()}
    before = plain_outputs(module)
    allowed, refused = openings(module)
    assert refused.keys() == REFUSED[name].keys()
    assert {*allowed, *refused} == set(REWRITINGS)
    for how, words in REFUSED[name].items():
        assert words in refused[how]
        with pytest.raises(ModelError, match=words):
            rewrite(module, how)
    for how in allowed:
        made = rewrite(module, how, seed=3)
        assert made.change_in_float64 <= 1e-10 and made.change <= 1e-4
        own = made.module.state_dict()
        assert any(not torch.equal(own[key], value) for key, value in weights.items())
        after = plain_outputs(made.module)
        if module.base_model is module:
            after = np.asarray(made.states(torch.from_numpy(after)))
        # A family that takes norms in float32 rounds to that in any case.
        assert relative(before, after) <= 1e-4
    # The given model is left as it was.
    assert all(torch.equal(value, weights[key]) for key, value in module.state_dict().items())


@pytest.mark.parametrize("name", ["bert masked words", "gpt2", "llama tied, with biases", "gemma2", "opt", "vit"])
def test_it_can_be_saved_and_loaded(name: str, tmp_path: Path) -> None:
    """Several at once; weights that were tied come apart, and stay so."""
    module = rewritable.model(name)
    made = rewrite(module, openings(module)[0])
    made.save_pretrained(tmp_path)
    again = type(module).from_pretrained(tmp_path).eval()
    own = made.module.state_dict()
    assert all(torch.equal(value, own[key]) for key, value in again.state_dict().items())
    # Gemma's scale of embeddings is no weight, and is made anew in float32.
    assert relative(plain_outputs(made.module), plain_outputs(again)) <= (1e-6 if name == "gemma2" else 1e-12)
    assert relative(plain_outputs(module), plain_outputs(again)) <= 1e-6


def test_states_of_a_saved_model_can_be_put_back(tmp_path: Path) -> None:
    """A model without a head returns its states: where their coordinates come from is written beside the weights."""
    module = rewritable.model("bert")
    rewrite(module, "residual_permutation").save_pretrained(tmp_path)
    said = json.loads((tmp_path / "rewriting.json").read_text(encoding="utf-8"))
    after = plain_outputs(type(module).from_pretrained(tmp_path).eval())
    before = plain_outputs(module)
    assert relative(before, after) > 0.1 and said["how"] == ["residual_permutation"]
    assert relative(before[..., said["order"]] * said["sign"], after) <= 1e-12


def test_weights_that_a_file_had_packed_are_saved_as_numbers(tmp_path: Path) -> None:
    """transformers says of a model that was read from such a file that it cannot be saved."""
    quantizers = pytest.importorskip("transformers.quantizers.quantizer_gguf")
    packed = pytest.importorskip("transformers.utils.quantization_config").GgufConfig()
    module = rewritable.model("llama")
    module.hf_quantizer, module.config.quantization_config = quantizers.GgufHfQuantizer(packed), packed
    with pytest.raises(ValueError, match="not serializable"):
        module.save_pretrained(tmp_path / "own")
    rewrite(module, "head_order").save_pretrained(tmp_path)
    again = type(module).from_pretrained(tmp_path).eval()
    assert not hasattr(again.config, "quantization_config") and module.hf_quantizer is not None
    assert relative(plain_outputs(module), plain_outputs(again)) <= 1e-6


def test_a_seed_gives_the_same_and_another_something_else() -> None:
    module = rewritable.model("gpt2")
    one, same, other = (rewrite(module, "value_output", seed).module.state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert any(not torch.equal(one[key], other[key]) for key in one)


# What must stay, and what must not, in plain NumPy from the weights alone.


def _bert(module: Any, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Weight [input, output] and bias of a part of the first layer."""
    linear = module.encoder.layer[0].get_submodule(part)
    return np.asarray(linear.weight.detach()).T, np.asarray(linear.bias.detach())


def test_values_and_output_move_together() -> None:
    module = rewritable.model("bert")
    other = rewrite(module, "value_output").module
    width = rewritable.WIDTH // rewritable.HEADS
    for head in range(rewritable.HEADS):
        own = slice(head * width, (head + 1) * width)
        value, bias = (part[..., own] for part in _bert(module, "attention.self.value"))
        new_value, new_bias = (part[..., own] for part in _bert(other, "attention.self.value"))
        output, new_output = (_bert(one, "attention.output.dense")[0][own] for one in (module, other))
        np.testing.assert_allclose(new_value @ new_output, value @ output, atol=1e-12)
        np.testing.assert_allclose(new_bias @ new_output, bias @ output, atol=1e-12)
        matrix = np.linalg.lstsq(value, new_value, rcond=None)[0]
        np.testing.assert_allclose(value @ matrix, new_value, atol=1e-10)
        assert 1.5 < np.linalg.cond(matrix) <= 10 + 1e-9


def test_value_bias_is_taken_off_the_output() -> None:
    module = rewritable.model("bert")
    other = rewrite(module, "value_bias").module
    (_, bias), (_, new_bias) = (_bert(one, "attention.self.value") for one in (module, other))
    (output, rest), (_, new_rest) = (_bert(one, "attention.output.dense") for one in (module, other))
    assert np.abs(new_bias - bias).min() > 1e-4
    np.testing.assert_allclose(new_rest, rest - (new_bias - bias) @ output, atol=1e-12)


def _rotation(angle: np.ndarray) -> np.ndarray:
    """Rotary positions of two tokens, as a matrix [channel, channel]: channel i turns with i + half."""
    half, size = len(angle), 2 * len(angle)
    matrix = np.zeros((size, size))
    for i in range(half):
        cosine, sine = np.cos(angle[i]), np.sin(angle[i])
        matrix[i, i], matrix[i + half, i + half] = cosine, cosine
        matrix[i, i + half], matrix[i + half, i] = sine, -sine
    return matrix


@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_queries_and_keys_meet_as_before_at_every_distance(name: str) -> None:
    module = rewritable.model(name)
    other: Any = rewrite(module, "query_key").module
    half = rewritable.WIDTH // rewritable.HEADS // 2
    for distance in (0, 1, 7):
        turn = _rotation(distance * 10000.0 ** (-np.arange(half) / half))
        for head in range(rewritable.HEADS):
            products = []
            for one in (module, other):
                layer = one.model.layers[1].self_attn
                query = np.asarray(layer.q_proj.weight.detach()).T[:, head * 2 * half : (head + 1) * 2 * half]
                group = head // 2
                key = np.asarray(layer.k_proj.weight.detach()).T[:, group * 2 * half : (group + 1) * 2 * half]
                products.append(query @ turn @ key.T)
            np.testing.assert_allclose(products[0], products[1], atol=1e-11)


def test_heads_are_where_it_says() -> None:
    module = rewritable.model("llama")
    made = rewrite(module, ["head_order", "query_key"])
    first = identiscope.trace(module, _INPUTS)
    second = identiscope.trace(made, _INPUTS)
    assert sorted(made.heads[0].tolist()) == list(range(rewritable.HEADS))
    assert made.heads.tolist() != [list(range(rewritable.HEADS))] * 2
    for layer in range(2):
        for place, head in enumerate(made.heads[layer].tolist()):
            torch.testing.assert_close(second.site(layer).attention(place), first.site(layer).attention(head))


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_states_are_turned_and_keep_their_lengths(name: str) -> None:
    """RMSNorm: a rotation. LayerNorm: one that keeps means, and any multiple of ones is added."""
    module = rewritable.model(name)
    other = rewrite(module, "residual_rotation").module
    before, after = (
        one(input_ids=torch.tensor([_INPUTS]), output_hidden_states=True).hidden_states[1][0].detach().numpy()
        for one in (module, other)
    )
    if name == "gpt2":
        assert np.abs(after.mean(-1) - before.mean(-1)).max() > 1e-3
        before, after = (one - one.mean(-1, keepdims=True) for one in (before, after))
    assert np.abs(before - after).max() > 0.1
    np.testing.assert_allclose(after @ after.T, before @ before.T, atol=1e-5)


def test_units_that_are_gated_or_relu_have_other_scales() -> None:
    for name, up, down in (("llama", "mlp.up_proj", "mlp.down_proj"), ("opt", "fc1", "fc2")):
        module = rewritable.model(name)
        other: Any = rewrite(module, "feed_forward").module
        layers = [one.model.layers[0] if name == "llama" else one.model.decoder.layers[0] for one in (module, other)]
        products = []
        for layer in layers:
            rows = layer.get_submodule(up).weight.detach().norm(dim=1)
            columns = layer.get_submodule(down).weight.detach().norm(dim=0)
            products.append((rows.numpy(), (rows * columns).numpy()))
        assert not np.allclose(np.sort(products[0][0]), np.sort(products[1][0]))
        np.testing.assert_allclose(np.sort(products[0][1]), np.sort(products[1][1]), atol=1e-10)


# Wrong ones.


def _without_inverse(matrix: torch.Tensor) -> torch.Tensor:
    return matrix


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "gemma2", "opt", "vit"])
@pytest.mark.parametrize("how", ["value_output", "query_key"])
def test_a_matrix_without_its_inverse_is_caught(name: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.linalg, "inv", _without_inverse)
    with pytest.raises(ModelError, match="computes something else"):
        rewrite(rewritable.model(name), how)


@pytest.mark.parametrize(
    ("name", "how", "place", "wrong"),
    [
        ("llama", "query_key", (attention, "commuting_with_rotation"), matrices.invertible),
        ("gpt2", "residual_rotation", (residual, "orthogonal_with_mean"), matrices.orthogonal),
        ("gpt2", "residual_permutation", (residual, "signs"), lambda size, g: matrices.signs(rewritable.WIDTH, g)),
        ("llama", "residual_rotation", (residual, "_fold"), lambda *given: None),
        ("opt", "feed_forward", (feed_forward, "factors"), lambda shape, g: -matrices.factors(shape, g)),
    ],
    ids=["no commuting", "no mean", "single signs", "gains not folded", "negative through relu"],
)
def test_what_a_family_does_not_allow_is_caught(
    name: str, how: str, place: tuple[Any, str], wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*place, wrong)
    with pytest.raises(ModelError, match="computes something else"):
        rewrite(rewritable.model(name), how)


def test_a_small_mistake_is_caught_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that float32 would not see."""

    def slightly(model: Any, generator: Any) -> None:
        model.layers[0].attention.value.weight.mul_(1 + 1e-7)

    monkeypatch.setitem(rewriting.REWRITINGS, "value_output", slightly)
    with pytest.raises(ModelError, match="rounding in float64 explains 1e-10"):
        rewrite(rewritable.model("llama", torch.float32), "value_output")


def test_what_is_no_number_is_a_change() -> None:
    assert largest_change([torch.ones(2)], [torch.tensor([1.0, torch.nan])]) == float("inf")


# What is given.


def test_bad_input() -> None:
    module = rewritable.model("bert")
    with pytest.raises(InputError, match="expected one or several of value_output"):
        rewrite(module, "sideways")
    with pytest.raises(InputError, match="expected one or several"):
        rewrite(module, [])
    with pytest.raises(ModelError, match="load it in float32"):
        rewrite(rewritable.model("bert", torch.bfloat16), "value_output")
    with pytest.raises(ModelError, match="expected a model of transformers"):
        rewrite(torch.nn.TransformerEncoderLayer(8, 2), "value_output")


def test_other_families_and_variants_are_refused() -> None:
    import transformers

    bart = transformers.BartModel(
        transformers.BartConfig(vocab_size=50, d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=16,
                                decoder_ffn_dim=16, encoder_attention_heads=2, decoder_attention_heads=2)
    )  # fmt: skip
    with pytest.raises(ModelError, match=r"bart.*no family whose rewritings are known; known are bert"):
        rewrite(bart, "value_output")
    narrow = transformers.OPTForCausalLM(
        transformers.OPTConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, ffn_dim=16, vocab_size=50,
                               word_embed_proj_dim=8, max_position_embeddings=64)
    )  # fmt: skip
    assert rewrite(narrow, "value_output").change <= 1e-4
    with pytest.raises(ModelError, match="its embeddings have another width"):
        rewrite(narrow, "residual_permutation")


@settings(max_examples=20)
@given(st.integers(0, 2**16), st.integers(1, 9))
def test_matrices_are_what_they_are_called(seed: int, size: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    turn = matrices.orthogonal(size, generator).numpy()
    np.testing.assert_allclose(turn @ turn.T, np.eye(size), atol=1e-12)
    kept = matrices.orthogonal_with_mean(size, generator).numpy()
    np.testing.assert_allclose(kept @ kept.T, np.eye(size), atol=1e-12)
    np.testing.assert_allclose(kept @ np.ones(size), np.ones(size), atol=1e-12)
    for one in matrices.invertible(2, size, generator).numpy():
        assert np.linalg.cond(one) <= matrices.CONDITION * (1 + 1e-9)
    angles = np.linspace(0.1, 2.0, size)
    for one in matrices.commuting_with_rotation(2, 2 * size, generator).numpy():
        np.testing.assert_allclose(one @ _rotation(angles), _rotation(angles) @ one, atol=1e-12)
        assert np.linalg.cond(one) <= matrices.CONDITION * (1 + 1e-9)


def test_minilm_as_it_is(minilm: identiscope.Model) -> None:
    """A trained model in float32: all that its family allows, at once."""
    made = identiscope.rewrite(minilm, openings(minilm)[0])
    assert made.change <= 1e-4 and made.change_in_float64 <= 1e-10
    text = "The cat sat on the mat."
    first, second = identiscope.trace(minilm, text), identiscope.trace(made, text)
    assert relative(np.asarray(first.hidden_states[-1]), np.asarray(made.states(second.hidden_states[-1]))) <= 1e-4
