"""Tiny models of several families once more, from the numbers of their weights alone, as plain layers."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

import identiscope
from families import FAMILIES, TEXT
from plain_models import Attends, Feeds, Heads, PlainNorm, Ran, Side, run


def _wide(tensor: Tensor) -> Tensor:
    return tensor.detach().double()


def _layer_norm(module: Any) -> PlainNorm:
    return PlainNorm(_wide(module.weight), _wide(module.bias), module.eps, True)


def _rms_norm(module: Any, one_more: bool = False) -> PlainNorm:
    epsilon = module.eps if hasattr(module, "eps") else module.variance_epsilon
    return PlainNorm(_wide(module.weight) + (1.0 if one_more else 0.0), None, epsilon, False)


def _weights(module: Any) -> tuple[Tensor, Tensor]:
    """[in, out] and [out] of a linear layer."""
    weight = _wide(module.weight).T
    return weight, weight.new_zeros(weight.shape[1]) if module.bias is None else _wide(module.bias)


def _by_head(weight: Tensor, bias: Tensor, heads: int, groups: int = 1) -> tuple[Tensor, Tensor]:
    """[head, model, channel] and [head, 1, channel], those of a group once for each of its heads."""
    split = weight.unflatten(1, (heads // groups, -1)).permute(1, 0, 2)
    return split.repeat_interleave(groups, 0), bias.view(heads // groups, 1, -1).repeat_interleave(groups, 0)


def _heads(
    parts: Iterable[tuple[Tensor, Tensor]], output: tuple[Tensor, Tensor], heads: int, groups: int = 1, **more: Any
) -> Heads:
    """From weights [in, out] and biases [out] of query, key, value and output."""
    query, key, value = parts
    split = [_by_head(*query, heads), _by_head(*key, heads, groups), _by_head(*value, heads, groups)]
    weights, biases = [weight for weight, _ in split], [bias for _, bias in split]
    out = output[0].unflatten(0, (heads, -1))
    return Heads(weights[0], weights[1], weights[2], out, (biases[0], biases[1], biases[2]), output[1], **more)


@dataclass(frozen=True, eq=False)
class TwoLayers:
    """down(activation(up(x)))."""

    up: tuple[Tensor, Tensor]
    down: tuple[Tensor, Tensor]
    activation: Callable[[Tensor], Tensor]

    def __call__(self, x: Tensor) -> Tensor:
        return self.activation(x @ self.up[0] + self.up[1]) @ self.down[0] + self.down[1]


@dataclass(frozen=True, eq=False)
class Gated:
    """down(activation(gate(x)) * up(x))."""

    gate: Tensor
    up: Tensor
    down: Tensor
    activation: Callable[[Tensor], Tensor]

    def __call__(self, x: Tensor) -> Tensor:
        return (self.activation(x @ self.gate) * (x @ self.up)) @ self.down


def _two_layers(up: Any, down: Any, activation: Callable[[Tensor], Tensor]) -> TwoLayers:
    return TwoLayers(_weights(up), _weights(down), activation)


def _gated(module: Any, activation: Callable[[Tensor], Tensor]) -> Gated:
    gate, up, down = (_weights(one)[0] for one in (module.gate_proj, module.up_proj, module.down_proj))
    return Gated(gate, up, down, activation)


def gelu(x: Tensor) -> Tensor:
    """x·Φ(x)."""
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def gelu_tanh(x: Tensor) -> Tensor:
    """The same by tanh, as GPT-2 and Gemma have it."""
    return x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def silu(x: Tensor) -> Tensor:
    """x·σ(x)."""
    return x / (1 + torch.exp(-x))


def bert(model: Any) -> Side:
    """Norms of the sums."""
    layers = []
    for layer in model.encoder.layer:
        own, out = layer.attention.self, layer.attention.output
        heads = _heads(map(_weights, (own.query, own.key, own.value)), _weights(out.dense), 4)
        feed = _two_layers(layer.intermediate.dense, layer.output.dense, gelu)
        layers.append(
            ([Attends(heads, outer=_layer_norm(out.LayerNorm))], Feeds(feed, outer=_layer_norm(layer.output.LayerNorm)))
        )
    return Side(layers)


def gpt2(model: Any) -> Side:
    """Norms in front."""
    layers = []
    for layer in model.transformer.h:
        weight, bias = _wide(layer.attn.c_attn.weight), _wide(layer.attn.c_attn.bias)
        output = _wide(layer.attn.c_proj.weight), _wide(layer.attn.c_proj.bias)
        heads = _heads(zip(weight.chunk(3, 1), bias.chunk(3), strict=True), output, 4)
        up, down = ((_wide(one.weight), _wide(one.bias)) for one in (layer.mlp.c_fc, layer.mlp.c_proj))
        feed = TwoLayers(up, down, gelu_tanh)
        layers.append(([Attends(heads, _layer_norm(layer.ln_1), causal=True)], Feeds(feed, _layer_norm(layer.ln_2))))
    return Side(layers, _layer_norm(model.transformer.ln_f))


def _grouped(attention: Any, width: int, **more: Any) -> Heads:
    parts = (_weights(part) for part in (attention.q_proj, attention.k_proj, attention.v_proj))
    return _heads(parts, _weights(attention.o_proj), 4, 2, rotated=width, **more)


def llama(model: Any) -> Side:
    """RMSNorms in front, groups of heads, rotary positions, a gate."""
    layers = []
    for layer in model.model.layers:
        attends = Attends(_grouped(layer.self_attn, 8), _rms_norm(layer.input_layernorm), causal=True)
        layers.append(([attends], Feeds(_gated(layer.mlp, silu), _rms_norm(layer.post_attention_layernorm))))
    return Side(layers, _rms_norm(model.model.norm))


def gemma2(model: Any) -> Side:
    """RMSNorms in front and of what is added, capped logits; every second layer with a window."""
    layers = []
    for layer in model.model.layers:
        own = layer.self_attn
        norms = (layer.input_layernorm, layer.post_attention_layernorm, layer.pre_feedforward_layernorm,
                 layer.post_feedforward_layernorm)  # fmt: skip
        front, inner, feed_front, feed_inner = (_rms_norm(norm, one_more=True) for norm in norms)
        heads = _grouped(own, 8, softcap=own.attn_logit_softcapping, scale=own.scaling)
        attends = Attends(heads, front, inner, window=own.sliding_window, causal=True)
        layers.append(([attends], Feeds(_gated(layer.mlp, gelu_tanh), feed_front, feed_inner)))
    return Side(layers, _rms_norm(model.model.norm, one_more=True))


def neox(model: Any) -> Side:
    """Attention and feed-forward part side by side, a part of the channels turned."""
    layers = []
    for layer in model.gpt_neox.layers:
        weight, bias = _weights(layer.attention.query_key_value)
        # Query, key and value of a head stand together.
        split = weight.unflatten(1, (4, 3, -1)), bias.unflatten(0, (4, 3, -1))
        parts = [(split[0][:, :, which].flatten(1), split[1][:, which].flatten()) for which in range(3)]
        heads = _heads(parts, _weights(layer.attention.dense), 4, rotated=layer.attention.rotary_ndims)
        feed = _two_layers(layer.mlp.dense_h_to_4h, layer.mlp.dense_4h_to_h, gelu)
        attends = Attends(heads, _layer_norm(layer.input_layernorm), causal=True)
        layers.append(([attends], Feeds(feed, _layer_norm(layer.post_attention_layernorm), parallel=True)))
    return Side(layers, _layer_norm(model.gpt_neox.final_layer_norm))


def bart(model: Any, which: str) -> Side:
    """Norms of the sums; the decoder reads itself and the encoder."""

    def heads(attention: Any) -> Heads:
        parts = (_weights(part) for part in (attention.q_proj, attention.k_proj, attention.v_proj))
        return _heads(parts, _weights(attention.out_proj), 4)

    layers = []
    for layer in getattr(model.model, which).layers:
        decodes = which == "decoder"
        attends = [Attends(heads(layer.self_attn), outer=_layer_norm(layer.self_attn_layer_norm), causal=decodes)]
        if decodes:
            attends.append(Attends(heads(layer.encoder_attn), outer=_layer_norm(layer.encoder_attn_layer_norm)))
        feed = _two_layers(layer.fc1, layer.fc2, gelu)
        layers.append((attends, Feeds(feed, outer=_layer_norm(layer.final_layer_norm))))
    return Side(layers)


#: From a tiny model of `families` to its layers.
SIDES: Mapping[str, Callable[[Any], Side]] = {
    "BERT": bert, "GPT-2": gpt2, "Llama": llama, "Gemma-2": gemma2, "GPT-NeoX": neox,
}  # fmt: skip
#: How far a family itself is from float64: these have their norms in float32.
PRECISION = {"Llama": 2e-6, "Gemma-2": 2e-6}


@cache
def model_of(family: str) -> Any:
    """The family's own model, its norms with gains: as initialised these are one, and one got wrong would not show."""
    model, generator = FAMILIES[family].model(), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    return model


@cache
def ran(family: str, text: Sequence[int] = tuple(TEXT)) -> tuple[Any, Ran]:
    """The family's own model, and what it does to a text, computed here."""
    model = model_of(family)
    with torch.no_grad():
        first = model(torch.tensor([list(text)]), output_hidden_states=True).hidden_states[0][0]
        return model, run(SIDES[family](model), first)


@cache
def traced(family: str) -> identiscope.Trace:
    """The trace of such a model on the text, made once."""
    return identiscope.trace(model_of(family), FAMILIES[family].inputs())


@cache
def ran_two_sided(family: str = "BART") -> tuple[Any, dict[str, Tensor], Ran, Ran]:
    """A model of two sides, what it is given, and what its encoder and its decoder do."""
    model, given = model_of(family), dict(FAMILIES[family].inputs())
    with torch.no_grad():
        shown = model(**given, output_hidden_states=True)
        encoder = run(bart(model, "encoder"), shown.encoder_hidden_states[0][0])
        decoder = run(bart(model, "decoder"), shown.decoder_hidden_states[0][0], encoder=encoder.last)
    return model, given, encoder, decoder
