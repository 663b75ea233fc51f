"""Where each family keeps its linear maps: a line of names for each, and no copy of any model."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Family:
    """Names of modules. layers: from the model without its head; all that follow it are seen from a layer.

    joined: one map holds those of queries, keys and values behind each other. read_norms: those that attention and the
    feed-forward part read the stream through. inner_norms: norms of what is added, before the addition. outer_norms:
    norms of the sum. embeddings: what writes the stream at its start, and final_norm: the last norm before the head;
    both are seen from the model without its head.
    """

    types: tuple[str, ...]
    layers: str
    query: str
    key: str
    value: str
    output: str
    up: str
    down: str
    embeddings: tuple[str, ...]
    joined: bool = False
    gate: str = ""
    read_norms: tuple[str, str] | tuple[()] = ()
    inner_norms: tuple[str, ...] = ()
    outer_norms: tuple[str, ...] = ()
    embedding_norm: str = ""
    final_norm: str = ""
    query_norm: str = ""
    key_norm: str = ""
    rotary: bool = False


_LLAMA: dict[str, Any] = {
    "layers": "layers",
    "query": "self_attn.q_proj",
    "key": "self_attn.k_proj",
    "value": "self_attn.v_proj",
    "output": "self_attn.o_proj",
    "up": "mlp.up_proj",
    "gate": "mlp.gate_proj",
    "down": "mlp.down_proj",
    "embeddings": ("embed_tokens",),
    "final_norm": "norm",
    "rotary": True,
}
_LLAMA_NORMS = ("input_layernorm", "post_attention_layernorm")
_GEMMA_NORMS = ("input_layernorm", "pre_feedforward_layernorm")
_GEMMA_INNER = ("post_attention_layernorm", "post_feedforward_layernorm")
_NORMED: dict[str, Any] = {"query_norm": "self_attn.q_norm", "key_norm": "self_attn.k_norm"}

FAMILIES = (
    Family(
        types=("bert",),
        layers="encoder.layer",
        query="attention.self.query",
        key="attention.self.key",
        value="attention.self.value",
        output="attention.output.dense",
        up="intermediate.dense",
        down="output.dense",
        embeddings=(
            "embeddings.word_embeddings",
            "embeddings.position_embeddings",
            "embeddings.token_type_embeddings",
        ),
        embedding_norm="embeddings.LayerNorm",
        outer_norms=("attention.output.LayerNorm", "output.LayerNorm"),
    ),
    Family(
        types=("gpt2",),
        layers="h",
        query="attn.c_attn",
        key="attn.c_attn",
        value="attn.c_attn",
        joined=True,
        output="attn.c_proj",
        up="mlp.c_fc",
        down="mlp.c_proj",
        embeddings=("wte", "wpe"),
        read_norms=("ln_1", "ln_2"),
        final_norm="ln_f",
    ),
    Family(types=("llama", "mistral", "qwen2"), read_norms=_LLAMA_NORMS, **_LLAMA),
    Family(types=("qwen3",), read_norms=_LLAMA_NORMS, **_LLAMA, **_NORMED),
    Family(types=("gemma2",), read_norms=_GEMMA_NORMS, inner_norms=_GEMMA_INNER, **_LLAMA),
    Family(types=("gemma3_text",), read_norms=_GEMMA_NORMS, inner_norms=_GEMMA_INNER, **_LLAMA, **_NORMED),
    Family(
        types=("opt",),
        layers="decoder.layers",
        query="self_attn.q_proj",
        key="self_attn.k_proj",
        value="self_attn.v_proj",
        output="self_attn.out_proj",
        up="fc1",
        down="fc2",
        embeddings=("decoder.embed_tokens", "decoder.embed_positions"),
        read_norms=("self_attn_layer_norm", "final_layer_norm"),
        final_norm="decoder.final_layer_norm",
    ),
    Family(
        types=("vit",),
        layers="layers",
        query="attention.q_proj",
        key="attention.k_proj",
        value="attention.v_proj",
        output="attention.o_proj",
        up="mlp.fc1",
        down="mlp.fc2",
        embeddings=(
            "embeddings.patch_embeddings.projection",
            "embeddings.cls_token",
            "embeddings.position_embeddings",
            "embeddings.mask_token",
        ),
        read_norms=("layernorm_before", "layernorm_after"),
        final_norm="layernorm",
    ),
)
