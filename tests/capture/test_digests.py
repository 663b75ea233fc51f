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
from identiscope.corpus.readers import Text


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


# --- what is around the weights


def adapted(**options: Any) -> Any:
    peft = pytest.importorskip("peft", reason="adapters are peft's (it is in the extra `dev`)")
    config = peft.LoraConfig(**{"r": 2, "lora_alpha": 8, "target_modules": ["query", "value"]} | options)
    model = peft.get_peft_model(small().module, config).eval()
    model.add_adapter("other", config)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(generator=generator)
    return model


def digest(module: nn.Module) -> str:
    return model_hash(identiscope.load(module))


def test_the_state_of_adapters_is_part_of_a_digest() -> None:
    model = adapted()
    before = digest(model)
    assert before == digest(adapted())
    model.set_adapter("other")
    other = digest(model)
    model.set_adapter("default")
    with model.disable_adapter():
        off = digest(model)
    assert digest(model) == before
    assert len({before, other, off, digest(adapted(lora_alpha=16))}) == 4


class Steering:
    def __init__(self, factor: float) -> None:
        self.factor, self.calls, self.seen = factor, 0, list[torch.Tensor]()

    def __call__(self, module: nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.seen.append(output)
        return output * self.factor


def scaled_by(factor: Any) -> Callable[..., Any]:
    calls = 0

    def hook(module: nn.Module, args: Any, output: torch.Tensor) -> Any:
        nonlocal calls
        calls += 1
        return output * factor

    return hook


def with_hook(hook: Callable[..., Any], place: str = "encoder.layer.0.output.dense") -> nn.Module:
    module = small().module
    module.get_submodule(place).register_forward_hook(hook)
    return module


def replaced(factor: float) -> nn.Module:
    module = small().module
    dense: Any = module.get_submodule("encoder.layer.0.output.dense")
    before = dense.forward
    dense.forward = lambda x: before(x) * factor
    return module


AROUND: dict[str, Callable[[float], nn.Module]] = {
    "closure": lambda factor: with_hook(scaled_by(factor)),
    "tensor": lambda factor: with_hook(scaled_by(torch.full((16,), factor))),
    "default": lambda factor: with_hook(lambda module, args, output, by=factor: output * by),
    "object": lambda factor: with_hook(Steering(factor)),
    "forward": replaced,
}


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND.keys())
def test_hooks_and_forwards_of_others_are_part_of_a_digest(around: Callable[[float], nn.Module]) -> None:
    module = around(2.0)
    plain, before = digest(small().module), digest(module)
    module(torch.tensor([[1, 2, 3]]))  # what a hook counts and keeps makes it no other
    assert before == digest(module) == digest(around(2.0))
    assert len({plain, before, digest(around(3.0))}) == 3


def test_where_a_hook_is_matters_and_what_it_does() -> None:
    places = "encoder.layer.0.output.dense", "encoder.layer.0.intermediate.dense"
    hooks: list[Callable[..., Any]] = [lambda module, args, output: output * 2, lambda module, args, output: -output]
    assert len({digest(with_hook(hook, place)) for hook in hooks for place in places}) == 4


def test_what_shows_or_moves_numbers_is_no_part_of_a_digest() -> None:
    accelerate = pytest.importorskip("accelerate", reason="device maps are accelerate's")
    model = small()
    before = model_hash(model)
    model.module(torch.tensor([[1, 2, 3]]), output_hidden_states=True, output_attentions=True)
    accelerate.dispatch_model(model.module, {"": "cpu"}, force_hooks=True)
    assert model_hash(model) == before == literal(model.module)


def test_nothing_is_gone_on_with_by_another_adapter(minilm: identiscope.Model, tmp_path: Any) -> None:
    peft = pytest.importorskip("peft", reason="adapters are peft's (it is in the extra `dev`)")
    module = copy.deepcopy(minilm.module)
    around = peft.get_peft_model(module, peft.LoraConfig(r=2, target_modules=["query"])).eval()
    model = identiscope.load(around, minilm.tokenizer)
    texts = [Text(("The cat sat.",)), Text(("It rained.",))]
    identiscope.capture_hidden_states(model, texts, tmp_path / "states")
    trace = identiscope.trace(model, "The cat sat.")
    explained = identiscope.explain(trace, "similarity:It rained.", methods=["occlusion"])
    with around.disable_adapter():
        with pytest.raises(identiscope.InputError, match="model"):
            identiscope.capture_hidden_states(model, texts, tmp_path / "states")
        again = identiscope.trace(model, "The cat sat.")
        # The adapter's part is still zero, so that no number differs.
        with pytest.raises(identiscope.InputError, match=r"another model \(its weights, adapters or hooks\)"):
            identiscope.explain(again, "similarity:It rained.", methods=["occlusion"], resume=explained)
