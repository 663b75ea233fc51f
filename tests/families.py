"""Tiny random models of many families: built from a configuration, in float64, without a network."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import nn

VOCABULARY = 99
TEXT = [5, 17, 42, 8, 63, 23, 31, 77, 12, 50, 9, 88]


@dataclass(frozen=True)
class Family:
    """How to build a family's tiny model and what to give it; sites: how many attention calls one pass makes."""

    build: Callable[[], Any]
    sites: int
    arguments: Callable[[], Mapping[str, torch.Tensor]] | None = None
    # Where the family itself computes in float32, whatever the dtype of its weights.
    precision: str = "float64"
    # Whether replay passes through vmap: a family that draws random numbers, even unused, does not.
    vmaps: bool = True

    def model(self) -> Any:
        torch.manual_seed(0)
        model = self.build().double().eval()
        if hasattr(model, "set_experts_implementation"):
            model.set_experts_implementation("eager")  # the grouped kernel knows no float64
        with torch.no_grad():
            # As initialised, attention is nearly uniform and biases are zero: a mask, a position bias or an
            # output bias that is got wrong would hardly show.
            for name, parameter in model.named_parameters():
                if "bias" in name or "sinks" in name:
                    parameter.normal_(std=0.3)
                elif parameter.dim() > 1:
                    parameter.mul_(6)
        return model

    def inputs(self) -> Any:
        return TEXT if self.arguments is None else dict(self.arguments())


def _of(architecture: str, **options: Any) -> Callable[[], Any]:
    def build() -> Any:
        model = getattr(transformers, architecture)
        config = model.config_class(**options)
        return model(config)

    return build


_BERT: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}
_LLAMA: dict[str, Any] = _BERT | {
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GPT: dict[str, Any] = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
_BART: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}
_VIT: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 16,
    "patch_size": 4,
}


def _ids(seed: int, length: int = 7) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (1, length), generator=torch.Generator().manual_seed(seed))


def _noise(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _two_sided() -> Mapping[str, torch.Tensor]:
    return {"input_ids": _ids(0, 12), "decoder_input_ids": _ids(1)}


def _clip() -> Mapping[str, torch.Tensor]:
    ids = _ids(0, 8)
    ids[0, -1] = 2
    return {"input_ids": ids, "pixel_values": _noise(0, 1, 3, 16, 16)}


def _clip_model() -> nn.Module:
    text = {**_BERT, "eos_token_id": 2, "projection_dim": 16}
    config = transformers.CLIPConfig(text_config=text, vision_config={**_VIT, "projection_dim": 16}, projection_dim=16)
    return transformers.CLIPModel(config)


def _vision() -> Mapping[str, torch.Tensor]:
    return {"pixel_values": _noise(0, 1, 3, 16, 16)}


def _whisper() -> Mapping[str, torch.Tensor]:
    return {"input_features": _noise(0, 1, 8, 40), "decoder_input_ids": _ids(1)}


_T5: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}

# The families that the documentation promises.
FAMILIES: Mapping[str, Family] = {
    "BERT": Family(_of("BertModel", **_BERT), 2),
    "RoBERTa": Family(_of("RobertaForMaskedLM", **_BERT), 2),
    "ELECTRA": Family(_of("ElectraForPreTraining", embedding_size=16, **_BERT), 2),
    "ALBERT": Family(_of("AlbertForMaskedLM", embedding_size=16, **_BERT), 2),
    "DistilBERT": Family(
        _of("DistilBertForMaskedLM", vocab_size=VOCABULARY, dim=32, n_layers=2, n_heads=4, hidden_dim=48), 2
    ),
    "XLM-RoBERTa": Family(_of("XLMRobertaModel", **_BERT), 2),
    "ModernBERT": Family(
        _of("ModernBertForMaskedLM", **_BERT, pad_token_id=0, global_attn_every_n_layers=2, local_attention=6),
        2,
    ),
    "DeBERTa-v2": Family(
        _of(
            "DebertaV2ForMaskedLM",
            **_BERT,
            relative_attention=True,
            pos_att_type=["c2p", "p2c"],
            position_buckets=8,
            norm_rel_ebd="layer_norm",
            share_att_key=True,
        ),
        2,
    ),
    "MPNet": Family(_of("MPNetModel", **_BERT), 2),
    "XLNet": Family(_of("XLNetLMHeadModel", vocab_size=VOCABULARY, d_model=32, n_layer=2, n_head=4, d_inner=48), 2),
    "GPT": Family(_of("OpenAIGPTLMHeadModel", **_GPT), 2),
    "GPT-2": Family(_of("GPT2LMHeadModel", **_GPT), 2),
    "GPT-Neo": Family(
        _of(
            "GPTNeoForCausalLM",
            vocab_size=VOCABULARY,
            hidden_size=32,
            num_layers=2,
            num_heads=4,
            attention_types=[[["global", "local"], 1]],
            window_size=5,
            max_position_embeddings=64,
        ),
        2,
        precision="float32",
    ),
    "GPT-J": Family(_of("GPTJForCausalLM", **_GPT, rotary_dim=4), 2, precision="float32"),
    "GPT-NeoX": Family(_of("GPTNeoXForCausalLM", **_BERT), 2),
    "OPT": Family(
        _of(
            "OPTForCausalLM",
            vocab_size=VOCABULARY,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            ffn_dim=48,
            max_position_embeddings=64,
            word_embed_proj_dim=32,
        ),
        2,
    ),
    "Bloom": Family(
        _of("BloomForCausalLM", vocab_size=VOCABULARY, hidden_size=32, n_layer=2, n_head=4),
        2,
        precision="float32",
    ),
    "Llama": Family(_of("LlamaForCausalLM", **_LLAMA), 2),
    "Mistral": Family(_of("MistralForCausalLM", **_LLAMA, sliding_window=5), 2),
    "Qwen2": Family(_of("Qwen2ForCausalLM", **_LLAMA), 2),
    "Qwen3": Family(_of("Qwen3ForCausalLM", **_LLAMA, head_dim=8), 2),
    "Gemma-2": Family(
        _of("Gemma2ForCausalLM", **_LLAMA, head_dim=8, sliding_window=5, attn_logit_softcapping=0.5),
        2,
        precision="float32",
    ),
    "Gemma-3": Family(_of("Gemma3ForCausalLM", **_LLAMA, head_dim=8, sliding_window=5), 2),
    "Phi-3": Family(_of("Phi3ForCausalLM", **_LLAMA), 2),
    "DeepSeek-V3": Family(
        _of(
            "DeepseekV3ForCausalLM",
            **(_LLAMA | {"num_key_value_heads": 4}),
            q_lora_rank=8,
            kv_lora_rank=8,
            qk_rope_head_dim=4,
            qk_nope_head_dim=6,
            v_head_dim=12,
            n_routed_experts=4,
            num_experts_per_tok=2,
            n_group=2,
            topk_group=1,
            moe_intermediate_size=16,
            first_k_dense_replace=1,
        ),
        2,
    ),
    "T5": Family(_of("T5ForConditionalGeneration", **_T5), 6, _two_sided),
    "BART": Family(_of("BartForConditionalGeneration", **_BART), 6, _two_sided),
    "Marian": Family(_of("MarianMTModel", **_BART), 6, _two_sided),
    "Whisper": Family(
        _of(
            "WhisperForConditionalGeneration",
            **_BART,
            num_mel_bins=8,
            max_source_positions=20,
            max_target_positions=64,
        ),
        6,
        _whisper,
    ),
    "ViT": Family(_of("ViTModel", **_VIT), 2, _vision),
    "CLIP": Family(_clip_model, 4, _clip),
    "GPT-OSS": Family(
        _of(
            "GptOssForCausalLM",
            **_LLAMA,
            head_dim=8,
            num_local_experts=4,
            num_experts_per_tok=2,
            sliding_window=5,
        ),
        2,
    ),
}


# Not promised by name, but known to work: most use transformers' attention interface, and nothing was written for them.
MORE: Mapping[str, Family] = {
    "CamemBERT": Family(_of("CamembertModel", **_BERT), 2),
    "ERNIE": Family(_of("ErnieModel", **_BERT), 2),
    "ESM": Family(_of("EsmModel", **_BERT, pad_token_id=1, mask_token_id=3, position_embedding_type="rotary"), 2),
    "CodeGen": Family(_of("CodeGenForCausalLM", **(_GPT | {"n_head": 4}), rotary_dim=4), 2, precision="float32"),
    "DeBERTa": Family(
        _of(
            "DebertaModel",
            **_BERT,
            relative_attention=True,
            pos_att_type=["c2p", "p2c"],
            max_relative_positions=16,
        ),
        2,
    ),
    "Phi": Family(_of("PhiForCausalLM", **_LLAMA), 2),
    "OLMo-2": Family(_of("Olmo2ForCausalLM", **_LLAMA), 2),
    "Cohere": Family(_of("CohereForCausalLM", **_LLAMA), 2),
    "Granite": Family(_of("GraniteForCausalLM", **_LLAMA), 2),
    "Mixtral": Family(_of("MixtralForCausalLM", **_LLAMA, num_local_experts=4), 2),
    "StableLM": Family(_of("StableLmForCausalLM", **_LLAMA), 2),
    "StarCoder2": Family(_of("Starcoder2ForCausalLM", **_LLAMA), 2),
    "Nemotron": Family(_of("NemotronForCausalLM", **_LLAMA), 2),
    "SmolLM3": Family(_of("SmolLM3ForCausalLM", **_LLAMA), 2),
    "GPT-BigCode": Family(_of("GPTBigCodeForCausalLM", **_GPT), 2),
    "BioGPT": Family(_of("BioGptForCausalLM", **_BERT, pad_token_id=0), 2),
    "mBART": Family(_of("MBartForConditionalGeneration", **_BART), 6, _two_sided),
    "Pegasus": Family(_of("PegasusForConditionalGeneration", **_BART), 6, _two_sided),
    "Blenderbot": Family(_of("BlenderbotForConditionalGeneration", **_BART), 6, _two_sided),
    "M2M-100": Family(_of("M2M100ForConditionalGeneration", **_BART), 6, _two_sided),
    "UMT5": Family(_of("UMT5ForConditionalGeneration", **_T5), 6, _two_sided),
    "DeiT": Family(_of("DeiTModel", **_VIT), 2, _vision),
    "DINOv2": Family(_of("Dinov2Model", **_VIT), 2, _vision),
    "SigLIP vision": Family(_of("SiglipVisionModel", **_VIT), 3, _vision),
    "BEiT": Family(_of("BeitModel", **_VIT, use_relative_position_bias=True), 2, _vision),
    "Wav2Vec2": Family(
        _of(
            "Wav2Vec2Model",
            **{key: value for key, value in _BERT.items() if key != "max_position_embeddings"},
            conv_dim=[16, 16],
            conv_stride=[5, 4],
            conv_kernel=[10, 8],
            num_conv_pos_embeddings=4,
            num_conv_pos_embedding_groups=2,
            num_feat_extract_layers=2,
        ),
        2,
        lambda: {"input_values": _noise(0, 1, 400)},
        vmaps=False,
    ),
    "Falcon": Family(
        _of(
            "FalconForCausalLM",
            vocab_size=VOCABULARY,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
        ),
        2,
    ),
    "MPT": Family(
        _of("MptForCausalLM", vocab_size=VOCABULARY, d_model=32, n_layers=2, n_heads=4, max_seq_len=64),
        2,
        precision="float32",
    ),
    "MobileBERT": Family(_of("MobileBertModel", **_BERT), 2),
    "NomicBERT": Family(_of("NomicBertModel", **_BERT), 2),
    "XLM": Family(_of("XLMModel", vocab_size=VOCABULARY, emb_dim=32, n_layers=2, n_heads=4), 2, precision="float32"),
}

ALL: Mapping[str, Family] = {**FAMILIES, **MORE}


def long_causal(name: str, **options: Any) -> tuple[Any, list[int]]:
    """A tiny causal model of one layer of four heads, and so many tokens that a page stores them in its own way."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 1}
    config = getattr(transformers, f"{name}Config")(vocab_size=99, intermediate_size=16, **(sizes | options))
    model = getattr(transformers, f"{name}Model")(config).eval()
    for parameter in model.parameters():
        parameter.data *= 6 if parameter.dim() > 1 else 1
    return model, [(7 * place * place) % 90 + 5 for place in range(140)]
