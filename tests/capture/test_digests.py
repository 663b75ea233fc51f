"""Digests: of the bytes of all weights, never of what they were before; of the text, however it was run."""

import copy
import hashlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch import nn

import families
import identiscope
from identiscope.capture.digests import configuration_hash, input_hash, model_hash
from identiscope.capture.inputs import encode


def literal(module: nn.Module) -> str:
    """SHA-256 over name, type, shape and bytes of all weights, by name."""
    read = hashlib.sha256()
    for name, weight in sorted(module.state_dict().items()):
        read.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode() + weight.numpy().tobytes())
    return read.hexdigest()


def small(**options: Any) -> identiscope.Model:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24, **options
    )
    return identiscope.load(transformers.BertModel(config).eval())


def train_a_step(module: nn.Module) -> None:
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    module(torch.tensor([[1, 2, 3]])).last_hidden_state.square().sum().backward()
    optimiser.step()


def weight(module: nn.Module) -> nn.Parameter:
    found: Any = module.get_submodule("encoder.layer.0.attention.output.dense").weight
    assert isinstance(found, nn.Parameter)
    return found


def through_numpy(module: nn.Module) -> None:
    weight(module).detach().numpy()[3, 5] += 1


CHANGES: dict[str, Callable[[nn.Module], object]] = {
    "optimiser": train_a_step,
    "one entry through .data": lambda module: weight(module).data[2, 7].neg_(),
    "signs of a column through .data": lambda module: weight(module).data[:, 1].neg_(),
    "rows swapped through .data": lambda module: weight(module).data.copy_(weight(module).data.flip(0)),
    "NumPy": through_numpy,
    "new data": lambda module: setattr(weight(module), "data", weight(module).data + 1),
    "states loaded": lambda module: module.load_state_dict({k: v * 2 for k, v in module.state_dict().items()}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_digest_is_never_of_weights_that_were(change: Callable[[nn.Module], object]) -> None:
    model = small()
    kept, before = copy.deepcopy(model.module.state_dict()), model_hash(model)
    assert before == literal(model.module) == model_hash(model)
    change(model.module)
    assert model_hash(model) == literal(model.module) != before
    model.module.load_state_dict(kept)
    assert model_hash(model) == before


def test_a_configuration_is_told_by_what_it_computes() -> None:
    model = small()
    same = identiscope.load(copy.deepcopy(model.module))
    same.config._name_or_path, same.config.output_hidden_states = "elsewhere", True
    module: Any = same.module
    module.set_attn_implementation("eager")
    assert configuration_hash(model) == configuration_hash(same)
    for other in (small(layer_norm_eps=1e-3), small(hidden_act="relu")):
        assert model_hash(model) == model_hash(other) and configuration_hash(model) != configuration_hash(other)
    plain = [nn.TransformerEncoderLayer(16, 2, 24, layer_norm_eps=eps, batch_first=True) for eps in (1e-5, 1e-3)]
    plain[1].load_state_dict(plain[0].state_dict())
    assert len({configuration_hash(identiscope.load(module)) for module in plain}) == 2


def test_a_checkpoint_is_the_same_from_a_directory(tmp_path: Any) -> None:
    model = small()
    module: Any = model.module
    module.save_pretrained(tmp_path)
    read = identiscope.load(tmp_path)
    assert model_hash(read) == model_hash(model) and configuration_hash(read) == configuration_hash(model)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_text_is_the_same_alone_and_in_a_batch(minilm: identiscope.Model, side: str) -> None:
    tokenizer = copy.deepcopy(minilm.tokenizer)
    tokenizer.padding_side = side
    model = identiscope.load(minilm, tokenizer)
    texts = ["The cat sat.", "A far longer text that the other one is padded to."]
    batch = encode(model, texts, targets=[None, None])
    together = [input_hash(batch.single(text).arguments) for text in range(2)]
    alone = [input_hash(encode(model, [text], targets=[None]).arguments) for text in texts]
    assert together == alone and alone[0] != alone[1]
    ids = torch.tensor([[5, 6, 7]])
    given = [{"input_ids": ids}, {"input_ids": ids, "attention_mask": torch.tensor([[1, 1, 0]])}]
    given.append({"input_ids": ids, "position_ids": torch.tensor([[0, 2, 1]])})
    assert len({input_hash(one) for one in given}) == 3


def test_images_and_features_have_digests() -> None:
    hashes = [input_hash(families.ALL[name].inputs()) for name in ("ViT", "Whisper")]
    assert hashes[0] != hashes[1]
