"""Tiny models of every family that can be rewritten, with biases and gains that are not those of the beginning."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import transformers

WIDTH, HEADS, WORDS = 24, 4, 61
_BERT: dict[str, Any] = {
    "vocab_size": WORDS, "hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": HEADS,
    "intermediate_size": 40, "max_position_embeddings": 64,
}  # fmt: skip
_LLAMA: dict[str, Any] = _BERT | {"num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_GPT: dict[str, Any] = {
    "n_embd": WIDTH, "n_layer": 2, "n_head": HEADS, "vocab_size": WORDS, "n_positions": 64, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
_OPT: dict[str, Any] = {
    "hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": HEADS, "ffn_dim": 40, "vocab_size": WORDS,
    "word_embed_proj_dim": WIDTH, "max_position_embeddings": 64,
}  # fmt: skip
_VIT: dict[str, Any] = {
    "hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": HEADS, "intermediate_size": 40,
    "image_size": 12, "patch_size": 4,
}  # fmt: skip


def _of(architecture: str, options: dict[str, Any]) -> Callable[[], Any]:
    model = getattr(transformers, architecture)
    return lambda: model(model.config_class(**options))


MODELS: Mapping[str, Callable[[], Any]] = {
    "bert": _of("BertModel", _BERT),
    "bert masked words": _of("BertForMaskedLM", _BERT),
    "bert classes": _of("BertForSequenceClassification", _BERT),
    "bert tokens": _of("BertForTokenClassification", _BERT),
    "gpt2": _of("GPT2LMHeadModel", _GPT),
    "gpt2 without head": _of("GPT2Model", _GPT),
    "llama": _of("LlamaForCausalLM", _LLAMA),
    "llama tied, with biases": _of(
        "LlamaForCausalLM", _LLAMA | {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True}
    ),
    "qwen2": _of("Qwen2ForCausalLM", _LLAMA | {"tie_word_embeddings": True}),
    "qwen3": _of("Qwen3ForCausalLM", _LLAMA | {"head_dim": 8}),
    "mistral": _of("MistralForCausalLM", _LLAMA),
    "gemma2": _of("Gemma2ForCausalLM", _LLAMA | {"head_dim": 8}),
    "gemma3": _of("Gemma3ForCausalLM", _LLAMA | {"head_dim": 8}),
    "opt": _of("OPTForCausalLM", _OPT),
    "opt post-norm": _of("OPTForCausalLM", _OPT | {"do_layer_norm_before": False}),
    "vit": _of("ViTForImageClassification", _VIT),
}


def model(name: str, dtype: torch.dtype = torch.float64) -> Any:
    """The model, its weights the same every time."""
    torch.manual_seed(0)
    made = MODELS[name]().to(dtype).eval()
    with torch.no_grad():
        for part, weight in made.named_parameters():
            if weight.dim() > 1:
                # As initialised, attention is nearly uniform, and what is done wrong to it would hardly show.
                weight.mul_(6)
            elif "bias" in part:
                weight.normal_(std=0.3)
            else:
                # Gemma's norms multiply by one plus their weight.
                weight.uniform_(0.3, 1.8).sub_(1.0 if "gemma" in name else 0.0)
    return made
