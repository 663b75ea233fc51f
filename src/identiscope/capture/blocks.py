"""A traced model as blocks of known structure: found by the names of their parts, and verified against the replay.

What is found makes Hidden Token Attribution much faster. A model that is not recognised, or does not verify, is
followed through its replay instead: slower, with the same result.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from identiscope.capture.site import Site
from identiscope.capture.trace import Stream, Trace
from identiscope.capture.twin import twin
from identiscope.linalg.agreement import explained_by, relative_error
from identiscope.linalg.jacobian.blocks import (
    AttentionWeights,
    Block,
    Blocks,
    FeedForward,
    Norm,
    Rotation,
    normalise,
    rotate,
    split_heads,
)
from identiscope.linalg.jacobian.composed import compose
from identiscope.linalg.jacobian.forward_mode import push_forward
from identiscope.linalg.jacobian.layer import linearise

# Where each family keeps the parts of a layer. `stacked` is query, key and value in one linear map.
FAMILIES: Mapping[str, Mapping[str, str]] = {
    "BERT": {
        "query": "attention.self.query", "key": "attention.self.key", "value": "attention.self.value",
        "sum_norm": "attention.output.LayerNorm", "out_norm": "output.LayerNorm",
        "up": "intermediate.dense", "down": "output.dense", "activation": "intermediate.intermediate_act_fn",
    },
    "DistilBERT": {
        "query": "attention.q_lin", "key": "attention.k_lin", "value": "attention.v_lin",
        "sum_norm": "sa_layer_norm", "out_norm": "output_layer_norm",
        "up": "ffn.lin1", "down": "ffn.lin2", "activation": "ffn.activation",
    },
    "ALBERT": {
        "query": "attention.query", "key": "attention.key", "value": "attention.value",
        "sum_norm": "attention.LayerNorm", "out_norm": "full_layer_layer_norm",
        "up": "ffn", "down": "ffn_output", "activation": "activation",
    },
    "GPT-2": {
        "stacked": "attn.c_attn", "attention_norm": "ln_1", "feed_norm": "ln_2",
        "up": "mlp.c_fc", "down": "mlp.c_proj", "activation": "mlp.act",
    },
    "Llama": {
        "query": "self_attn.q_proj", "key": "self_attn.k_proj", "value": "self_attn.v_proj",
        "attention_norm": "input_layernorm", "feed_norm": "post_attention_layernorm",
        "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj", "activation": "mlp.act_fn",
    },
    "OPT": {
        "query": "self_attn.q_proj", "key": "self_attn.k_proj", "value": "self_attn.v_proj",
        "attention_norm": "self_attn_layer_norm", "feed_norm": "final_layer_norm",
        "up": "fc1", "down": "fc2", "activation": "activation_fn",
    },
    "CLIP": {
        "query": "self_attn.q_proj", "key": "self_attn.k_proj", "value": "self_attn.v_proj",
        "attention_norm": "layer_norm1", "feed_norm": "layer_norm2",
        "up": "mlp.fc1", "down": "mlp.fc2", "activation": "mlp.activation_fn",
    },
    "ViT": {
        "query": "attention.q_proj", "key": "attention.k_proj", "value": "attention.v_proj",
        "attention_norm": "layernorm_before", "feed_norm": "layernorm_after",
        "up": "mlp.fc1", "down": "mlp.fc2", "activation": "mlp.activation_fn",
    },
}  # fmt: skip
_NORMS = ("attention_norm", "sum_norm", "feed_norm", "out_norm")


@dataclass(frozen=True, eq=False)
class RecognisedBlocks:
    """The blocks of a stream, or the reason why there are none; family: which layout matched."""

    blocks: Blocks | None
    reason: str
    family: str = ""


class _Unknown(Exception):
    """Why a model is not recognised; never leaves this file."""


def find_blocks(trace: Trace, stream: str | None = None, *, summed: bool = False) -> RecognisedBlocks:
    """The layers of one stream of a trace as blocks.

    summed: for inputs that are the sum of embeddings before the embedding norm.

    >>> find_blocks(identiscope.trace("minilm", "The cat sat.")).family
    'BERT'
    """
    chosen = trace.main if stream is None else trace.streams[stream]
    try:
        with torch.no_grad():
            return _find(trace, chosen, summed)
    except _Unknown as reason:
        return RecognisedBlocks(None, str(reason))


def _find(trace: Trace, stream: Stream, summed: bool) -> RecognisedBlocks:
    if trace.model is None:
        raise _Unknown("the trace has no model")
    sites = [site for site in trace.sites if site.query_stream == stream.name]
    count = len(stream.hidden_states) - 1
    if len(sites) != count or any(site.key_stream != stream.name for site in sites):
        raise _Unknown(f"{len(sites)} attention sites for {count} layers of {stream.name}")
    if any(weight.device != stream.embeddings.device for weight in trace.model.module.parameters()):
        raise _Unknown("the weights are not all where the hidden states are")
    # Parts of a twin: some are called here, and a user's own would be seen to run.
    modules = dict(twin(trace.model).module.named_modules())
    rotation = _rotation(trace, stream, modules)
    layers, families = [], []
    for site, x in zip(sites, stream.hidden_states[:-1], strict=True):
        family, layer = _layer(site, modules)
        layers.append(_block(FAMILIES[family], layer, site, x, rotation))
        families.append(family)
    entry = None
    if summed and stream.name in trace.norms:
        entry = _norm(trace.norms[stream.name])
    blocks = _with_final(Blocks(tuple(layers), entry), stream, modules)
    _verify(blocks, trace, stream, summed)
    return RecognisedBlocks(blocks, "", families[0])


def _layer(site: Site, modules: Mapping[str, nn.Module]) -> tuple[str, nn.Module]:
    """The module around an attention site that has all the parts of a family."""
    path = site.name.split(".")
    for length in range(len(path), 0, -1):
        module = modules.get(".".join(path[:length]))
        for family, parts in FAMILIES.items():
            if module is not None and all(_part(module, name) is not None for name in parts.values()):
                return family, module
    raise _Unknown(f"the layer of {site.name} has no layout that is known")


def _part(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name, None)
    return module


def _block(parts: Mapping[str, str], layer: nn.Module, site: Site, x: Tensor, rotation: Rotation | None) -> Block:
    norms = {name: _norm(_part(layer, parts[name])) for name in _NORMS if name in parts}
    given = normalise(norms.get("attention_norm"), x)
    attention = _attention(parts, layer, site, given, rotation)
    up, up_bias = _linear(_part(layer, parts["up"]))
    down, down_bias = _linear(_part(layer, parts["down"]))
    gate, gate_bias = _linear(_part(layer, parts["gate"])) if "gate" in parts else (None, None)
    activation = _part(layer, parts["activation"])
    return Block(attention, FeedForward(up, up_bias, down, down_bias, activation, gate, gate_bias), **norms)


def _attention(
    parts: Mapping[str, str], layer: nn.Module, site: Site, given: Tensor, rotation: Rotation | None
) -> AttentionWeights:
    """The projections of a site; each must give the queries, keys and values that were captured."""
    if site.softcap is not None or site.sinks is not None or site.query is None or site.key is None:
        raise _Unknown(f"{site.name} has a softcap, sinks, or no queries")
    if len(site.heads) != site.head_count:
        raise _Unknown(f"only {len(site.heads)} of {site.head_count} heads of {site.name} were captured")
    if "stacked" in parts:
        weight, bias = _linear(_part(layer, parts["stacked"]))
        biases = [None] * 3 if bias is None else list(bias.chunk(3))
        projections = list(zip(weight.chunk(3), biases, strict=True))
    else:
        projections = [_linear(_part(layer, parts[name])) for name in ("query", "key", "value")]
    (query, query_bias), (key, key_bias), (value, value_bias) = projections
    made = [nn.functional.linear(given, weight, bias) for weight, bias in projections]
    captured = (site.query, site.key, site.value)
    # Some layers of a model with rotary positions go without; some models scale the queries themselves.
    tried = [(turned, factor) for turned in (rotation, None) for factor in (1.0, site.query.shape[-1] ** -0.5)]
    for turned, factor in tried:
        shown = [split_heads(part, len(seen)) for part, seen in zip(made, captured, strict=True)]
        shown = [rotate(turned, shown[0] * factor, 1, 2), rotate(turned, shown[1], 1, 2), shown[2]]
        if all(_same(part, seen) for part, seen in zip(shown, captured, strict=True)):
            break
    else:
        raise _Unknown(f"{site.name} makes other queries, keys or values than its projections")
    query, query_bias = query * factor, None if query_bias is None else query_bias * factor
    added, causal = _added(site)
    return AttentionWeights(
        query=query, key=key, value=value,
        output=site.projection.flatten(0, 1).T.contiguous().detach(),
        query_bias=query_bias, key_bias=key_bias, value_bias=value_bias,
        output_bias=None if site.projection_bias is None else site.projection_bias.detach(),
        heads=site.head_count, key_value_heads=len(site.key), scale=site.scale,
        added=added, causal=causal, rotation=turned,
    )  # fmt: skip


def _added(site: Site) -> tuple[Tensor | None, bool]:
    """What is added to the logits, and whether no query sees a key behind it."""
    bias, dtype = site.bias, site.value.dtype
    added = None if bias.position is None else bias.position.to(dtype)
    causal = bias.causal
    if bias.allowed is not None:
        closed = torch.zeros_like(bias.allowed, dtype=dtype).masked_fill(~bias.allowed, -torch.inf)
        added = closed if added is None else added + closed
        causal = causal or not bool(bias.allowed.triu(1).any())
    if added is not None and added.shape[-2:] != (site.queries, site.keys):
        added = added.expand(*added.shape[:-2], site.queries, site.keys)
    return added, causal


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and explained_by(relative_error(one, other), other.dtype)


def _linear(module: Any) -> tuple[Tensor, Tensor | None]:
    """Weight [out, in] and bias of a linear layer; GPT-2's Conv1D stores the weight the other way round."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.dim() != 2:
        raise _Unknown(f"{type(module).__name__} is no linear layer")
    if type(module).__name__ == "Conv1D":
        weight = weight.T
    elif not isinstance(module, nn.Linear):
        raise _Unknown(f"{type(module).__name__} is no linear layer")
    bias = getattr(module, "bias", None)
    return weight.detach().contiguous(), None if bias is None else bias.detach()


def _norm(module: Any) -> Norm:
    if isinstance(module, nn.LayerNorm):
        bias = None if module.bias is None else module.bias.detach()
        return Norm(None if module.weight is None else module.weight.detach(), bias, module.eps, True)
    epsilon = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    weight = getattr(module, "weight", None)
    if not type(module).__name__.endswith("RMSNorm") or epsilon is None or weight is None:
        raise _Unknown(f"{type(module).__name__} is no norm that is known")
    return Norm(weight.detach(), None, float(epsilon), False)


def _rotation(trace: Trace, stream: Stream, modules: Mapping[str, nn.Module]) -> Rotation | None:
    """Cosines and sines of the model's rotary positions, if it has any."""
    assert trace.batch is not None
    rotations = [module for module in modules.values() if type(module).__name__.endswith("RotaryEmbedding")]
    if not rotations:
        return None
    x = stream.embeddings[None]
    positions = trace.batch.arguments.get("position_ids", torch.arange(x.shape[1], device=x.device)[None])
    try:
        cosine, sine = rotations[0](x, positions)
    except Exception as error:
        raise _Unknown(f"{type(rotations[0]).__name__} gives no cosines and sines of positions: {error}") from error
    return Rotation(cosine[0].to(x.dtype), sine[0].to(x.dtype))


def _with_final(blocks: Blocks, stream: Stream, modules: Mapping[str, nn.Module]) -> Blocks:
    """Find the norm, if any, between the last layer and the last hidden state."""
    last = linearise(blocks.layers[-1], stream.hidden_states[-2], len(stream))[1]
    shown = stream.hidden_states[-1]
    if _same(last, shown):
        return blocks
    for module in modules.values():
        try:
            norm = _norm(module)
        except _Unknown:
            continue
        if norm.weight is not None and norm.weight.shape == shown.shape[-1:] and _same(normalise(norm, last), shown):
            return replace(blocks, final=norm)
    raise _Unknown("the last layer, with or without a norm behind it, does not give the last hidden state")


def _verify(blocks: Blocks, trace: Trace, stream: Stream, summed: bool) -> None:
    """Every state, and the derivatives along one direction of three tokens, must be those of the replay."""
    inputs = stream.embedding_sum if summed and stream.embedding_sum is not None else stream.embeddings
    composed = compose(blocks, inputs, memory=2**62, directions=1)
    last = len(composed.states) - 1
    for place, (made, shown) in enumerate(zip(composed.states, stream.hidden_states, strict=True)):
        if not _same(normalise(blocks.final, made) if place == last else made, shown):
            raise _Unknown(f"{f'layer {place - 1}' if place else 'the input'} computes other states than its parts")
    generator = torch.Generator().manual_seed(0)
    direction = torch.randn(inputs.shape[1], 1, generator=generator, dtype=torch.float64).to(inputs)
    replay = trace.replay

    def states(x: Tensor) -> tuple[Tensor, ...]:
        return replay({stream.name: x}, summed=summed)[stream.name]

    for token in sorted({0, len(inputs) // 2, len(inputs) - 1}):
        tangent = torch.zeros_like(inputs)
        tangent[token] = direction[:, 0]
        expected = push_forward(states, inputs, tangent)
        for layer, first, pushed in composed.push(range(token, token + 1), direction, range(1, last + 1)):
            whole = torch.zeros_like(expected[layer])
            whole[first:] = pushed[:, :, 0, 0]
            if not _same(whole, expected[layer]):
                error = relative_error(whole, expected[layer])
                raise _Unknown(f"the derivative of layer {layer - 1} is off by {error:.1e}")
