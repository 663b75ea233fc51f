"""A result names the model's digest only if the model is still that of its trace; long causal texts show it early."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers

import identiscope
from identiscope.asking import provenance
from identiscope.capture import forward as forwarding

COMMON: dict[str, Any] = {"vocab_size": 200}
LENGTH = 150


def llama() -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, **COMMON
    )
    return transformers.LlamaModel(config).eval()


def mixtral() -> Any:
    torch.manual_seed(0)
    config = transformers.MixtralConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        num_local_experts=4, **COMMON,
    )  # fmt: skip
    return transformers.MixtralModel(config).eval()


def gpt2() -> Any:
    torch.manual_seed(0)
    return transformers.GPT2Model(transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, **COMMON)).eval()


def bert() -> Any:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, **COMMON
    )
    return transformers.BertModel(config, add_pooling_layer=False).eval()


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tokens each pass was given."""
    seen: list[int] = []
    forward = forwarding.forward

    def counted(model: Any, arguments: Any) -> Any:
        seen.append(arguments["input_ids"].shape[1])
        return forward(model, arguments)

    monkeypatch.setattr(forwarding, "forward", counted)
    return seen


def digest(trace: identiscope.Trace) -> str:
    provenance._KNOWN.clear()
    found: str = identiscope.attention_identifiability(trace).attrs["model_digest"]
    return found


@pytest.mark.parametrize(("make", "again"), [(llama, [16]), (mixtral, [LENGTH]), (gpt2, [LENGTH]), (bert, [LENGTH])])
def test_only_a_beginning_that_says_all_stands_for_the_whole(
    make: Callable[[], Any], again: list[int], passes: list[int]
) -> None:
    trace = identiscope.trace(make(), list(range(5, 5 + LENGTH)))
    passes.clear()
    assert digest(trace) and passes == again


def test_a_length_that_changes_what_the_first_tokens_are_takes_a_second_look(passes: list[int]) -> None:
    model = llama()
    model.layers[0].register_forward_hook(lambda module, given, output: output * (1 + output.shape[1] / 1000))
    trace = identiscope.trace(model, list(range(5, 5 + LENGTH)))
    passes.clear()
    assert digest(trace) and passes == [16, LENGTH]


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.layers[1].mlp.down_proj.weight.data.mul_(1.5),
        # A token that comes after those that are computed again.
        lambda model: model.embed_tokens.weight.data[5 + LENGTH - 1].add_(0.1),
        lambda model: model.layers[0].register_forward_hook(lambda module, given, output: 2 * output),
    ],
)
def test_a_model_that_was_changed_is_not_named(change: Callable[[Any], Any]) -> None:
    model = llama()
    trace = identiscope.trace(model, list(range(5, 5 + LENGTH)))
    change(model)
    assert digest(trace) == ""
