"""A tiny model of any architecture of transformers: its own default configuration, made small by rule."""

import dataclasses
import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers.models.auto import configuration_auto, modeling_auto

import identiscope
import reference_attention
from identiscope.linalg.agreement import explained_by

VOCABULARY, LENGTH, WIDTH, HEADS, LAYERS, IMAGE, PATCH = 99, 12, 32, 4, 2, 16, 4
# A model with more parameters than this is not tiny, and not built.
LARGEST = 40_000_000

# What a whole number of a configuration becomes, by its name, if it is more; the first line that fits counts.
RULES: tuple[tuple[str, int], ...] = (
    (r"^codebook_size$|^num_embeddings$|^num_embeds$|bins$", 64),
    (r"vocab", VOCABULARY),
    (r"positions$|position_embeddings$|^max_seq_len|^max_length$|^context_length$|^seq_len$|max_pos_emb$", 64),
    (r"^mamba_(n|num)_heads$", 8),
    (r"(key_value|kv)_heads$|key_heads$", 2),
    (r"heads?$|_heads_", HEADS),
    (r"^qk_rope_head_dim$|^rotary_dim$", 4),
    (r"head_dim$|head_size$|^d_kv$|^d_head$|^dim_head$|^kv_channels$|^mamba_d_head$", 8),
    (r"rank$", 8),
    (r"experts_per_tok|top_?k$|^moe_k$", 2),
    (r"shared_experts$|^n_groups?$|^topk_group$|^num_groups$|^first_k_dense_replace$", 1),
    (r"experts?$", 4),
    (r"^patch_size$|^encoder_stride$", PATCH),
    (r"image_size$|^crop_size$|^resolution$", IMAGE),
    (r"^num_frames$", 4),
    (r"(layers|blocks)$|^n_layer$|depth$", LAYERS),
    (r"window(_size)?$|^local_attention$", 6),
    (r"mel_bins$|^n_mels$|^mel_dim$|^num_mels$|^feature_size$|^input_feat_per_channel$", 8),
    (r"state_size$|d_state$|chunk_size$", 8),
    (r"^num_conv_pos_embeddings$", 4),
    (r"^num_conv_pos_embedding_groups$", 2),
    (r"intermediate_size|(ffn|inner|ff|feedforward|mlp)(_dim|_size)?$|^d_ff$|ffn_hidden_size$|units$", 48),
    (r"hidden|^d_model$|^n_embd$|^width$|_width$|dim$|_size$|_channels$", WIDTH),
    (r"num_quer|latents$|^image_seq_length$", 4),
)
KEPT = re.compile(
    r"kernel|stride|step|sampl|rate$|^num_channels$|ratio|theta|temperature|loss|cost|ignore_index|padding|multiple"
    r"|divisor|factor|^in_channels$|levels$|n_points|labels|audio_channels|_token_|type_vocab|buckets|expand"
)
# What rules do not find out: numbers that depend on each other, or have no default.
_HYBRID = ["linear_attention", "linear_attention", "hybrid", "linear_attention", "hybrid"]
_WIDE = {"hidden_size": 512}  # room for the three axes of its rotary positions
GIVEN: Mapping[str, Mapping[str, Any]] = {
    "bamba": {"num_hidden_layers": 4, "attn_layer_indices": [1, 3]},
    "canine": {"num_hash_buckets": 512, "local_transformer_stride": 4, "downsampling_rate": 2},
    "dbrx": {"attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10000.0}},
    "deepseek_v2": {"n_group": 1, "topk_group": 1, "num_experts_per_tok": 2},
    "dots1": {
        "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2, "n_shared_experts": 1,
    },
    "esm": {"vocab_size": VOCABULARY, "pad_token_id": 1, "mask_token_id": 3},
    "falcon_h1": {"mamba_d_ssm": 64},
    "gemma3n_text": {
        "num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"], "num_kv_shared_layers": 0,
    },
    "glm4v": {"text_config": {"hidden_size": 256}},
    "glm4v_moe": {"text_config": _WIDE},
    "glm4v_moe_text": _WIDE,
    "glm4v_text": {"hidden_size": 256},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "granitemoehybrid": {
        "num_hidden_layers": 4, "layer_types": ["linear_attention", "full_attention"] * 2,
    },
    "jamba": {"num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2},
    "layoutlmv3": {"coordinate_size": 6, "shape_size": 4, "input_size": IMAGE},
    "lfm2": {"num_hidden_layers": 4, "layer_types": ["conv", "full_attention", "conv", "full_attention"]},
    "lfm2_moe": {"num_hidden_layers": 4, "layer_types": ["conv", "full_attention", "conv", "full_attention"]},
    "lilt": {"hidden_size": 48},
    "longcat_flash": {"head_dim": 4},
    "mamba2": {"num_heads": 8, "head_dim": 8},
    "nemotron": {"num_key_value_heads": 2},
    "nemotron_h": {"hybrid_override_pattern": "M*M*", "num_hidden_layers": 4},
    "paddleocr_vl": {"text_config": _WIDE},
    "qwen2_5_vl": {"text_config": _WIDE},
    "qwen2_5_vl_text": _WIDE,
    "qwen2_vl": {"text_config": _WIDE},
    "qwen2_vl_text": _WIDE,
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "reformer": {"axial_pos_embds_dim": (16, 16), "axial_pos_shape": (4, 4), "attn_layers": ["local", "local"]},
    "sam3_lite_text_text_model": {"num_hidden_layers": 4},  # the first and the last have none
    "xmod": {"default_language": "en_XX"},
    "zamba": {"num_hidden_layers": 5, "layers_block_type": _HYBRID},
    "zamba2": {"num_hidden_layers": 5, "layers_block_type": _HYBRID},
}  # fmt: skip


class NotBuilt(Exception):
    """Why there is no tiny model of an architecture."""


def model_classes() -> dict[str, str]:
    """The class of every model type that has one: the plain model, or else the first there is with a head."""
    tables = {
        name: table for name, table in vars(modeling_auto).items() if re.fullmatch(r"MODEL_\w*MAPPING_NAMES", name)
    }
    found: dict[str, str] = {}
    for name in ("MODEL_MAPPING_NAMES", *sorted(tables)):
        for model_type, kind in tables[name].items():
            found.setdefault(model_type, kind[0] if isinstance(kind, (tuple, list)) else kind)
    return {name: found[name] for name in configuration_auto.CONFIG_MAPPING_NAMES if name in found}


def shrunk(config: Any, given: Mapping[str, Any]) -> Any:
    """The same kind of configuration with small numbers."""
    kind, values, options = type(config), vars(config), dict(given)
    fields = {field.name: field.default for field in dataclasses.fields(kind)}
    for name, default in fields.items():
        value = values.get(name)
        if name in getattr(kind, "sub_configs", {}) and hasattr(value, "to_dict"):
            inner = given.get(name, {})
            options[name] = shrunk(value, inner) if set(inner) <= {"hidden_size"} else inner
        elif isinstance(default, int) and not isinstance(default, bool):
            small = _small(name, default)
            if small != default:
                options.setdefault(name, small)
        elif name in ("image_size", "patch_size") and isinstance(value, (list, tuple)):
            options.setdefault(name, type(value)(min(side, _small(name, side)) for side in value))
    if "head_dim" in fields and fields["head_dim"] is None:
        options.setdefault("head_dim", options.get("hidden_size", WIDTH) // HEADS)
    if "kv_lora_rank" in fields and "num_key_value_heads" in fields:
        options["num_key_value_heads"] = HEADS  # keys are made from one latent, for each head its own
    kinds = values.get("layer_types") if {"layer_types", "num_hidden_layers"} <= set(fields) else None
    if isinstance(kinds, (list, tuple)) and len(set(kinds)) > 1 and "num_hidden_layers" not in given:
        options |= {"layer_types": list(dict.fromkeys(kinds)), "num_hidden_layers": len(set(kinds))}
    rope = values.get("rope_parameters")
    if isinstance(rope, dict) and "mrope_section" in rope and "hidden_size" not in given:
        half = int(8 * rope.get("partial_rotary_factor", 1.0)) // 2
        options["rope_parameters"] = {**rope, "mrope_section": [half - 2 * (half // 3), half // 3, half // 3]}
    return kind(**options)


def _small(name: str, value: int) -> int:
    if re.search(r"_token_(id|index)$", name):
        return value if value < VOCABULARY else value % 50 + 40
    if KEPT.search(name):
        return value
    return min(value, next((small for pattern, small in RULES if re.search(pattern, name)), value))


def build(model_type: str, dtype: torch.dtype = torch.float64) -> nn.Module:
    """A tiny random model."""
    try:
        kind: Any = getattr(transformers, model_classes()[model_type])
        config = shrunk(configuration_auto.CONFIG_MAPPING[model_type](), GIVEN.get(model_type, {}))
        with torch.device("meta"):
            size = sum(parameter.numel() for parameter in kind(config).parameters())
        if size > LARGEST:
            raise NotBuilt(f"would have {size / 1e6:.0f} million parameters")
        torch.manual_seed(0)
        model: Any = kind(config).to(dtype).eval()
    except NotBuilt:
        raise
    except Exception as error:
        raise NotBuilt(_first_line(error)) from error
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")  # the grouped kernel knows no float64
    with torch.no_grad():
        # As initialised, attention is nearly uniform and biases are zero, and what is got wrong would hardly show.
        for name, parameter in model.named_parameters():
            if not bool((parameter.abs() < 1e6).all()):
                parameter.normal_(std=0.1)  # not initialised at all
            if "bias" in name or "sinks" in name:
                parameter.normal_(std=0.3)
            elif parameter.dim() > 1:
                parameter.mul_(6)
    assert isinstance(model, nn.Module)
    return model


def _first_line(error: Exception) -> str:
    lines = [
        line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith("Class validation")
    ]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:160]


def inputs(model: Any) -> dict[str, Tensor]:
    """Arguments that the model runs on."""
    torch.manual_seed(0)
    problem: Exception | None = None
    for given in _candidates(model):
        try:
            _run(model, given)
            return given
        except Exception as error:
            problem = problem or error
    assert problem is not None
    raise NotBuilt(f"does not run on what was tried: {_first_line(problem)}") from problem


def _candidates(model: Any) -> Iterator[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    accepted = inspect.signature(model.forward).parameters
    main = str(getattr(model, "main_input_name", "input_ids"))

    def ids(length: int) -> Tensor:
        return torch.randint(5, 40, (1, length), generator=generator)

    def noise(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(model.dtype)

    def number(*names: str, default: int) -> Any:
        parts = ("vision_config", "audio_config", "encoder_config", "backbone_config", "text_config", "encoder")
        for holder in (model.config, *(getattr(model.config, part, None) for part in parts)):
            for name in names:
                if isinstance(getattr(holder, name, None), (int, list, tuple)):
                    return getattr(holder, name)
        return default

    size = number("image_size", default=IMAGE)
    sides = (size, size) if isinstance(size, int) else tuple(size)[-2:]
    pixels = (number("num_channels", default=3), *sides)
    frames, bins = number("num_frames", default=4), number("num_mel_bins", "feature_size", "num_mels", default=8)
    steps = 2 * number("max_source_positions", default=32)
    decoder = {"decoder_input_ids": ids(7)} if "decoder_input_ids" in accepted else {}
    texts = {"input_ids": ids(LENGTH)}
    boxes = {"bbox": torch.zeros(1, LENGTH, 4, dtype=torch.long)}
    speech = (noise(1, bins, steps), noise(1, steps, bins), noise(1, steps, number("hidden_size", default=WIDTH)))
    shown = {
        "pixel_values": (noise(1, *pixels), noise(1, frames, *pixels), noise(1, pixels[0], frames, *sides)),
        "pixel_values_videos": (noise(1, frames, *pixels),),
        "input_features": speech,
        "input_values": (noise(1, 3200), noise(1, 1, 3200), *speech),
        "inputs_embeds": (noise(1, LENGTH, number("hidden_size", "d_model", default=WIDTH)),),
    }
    if main in shown:
        for tensor in shown[main]:
            yield {main: tensor, **decoder}
            yield {main: tensor}
    if "input_ids" in accepted or main == "input_ids":
        yield {**texts, **decoder}
        yield {**texts, **decoder, **boxes}
        for tensor in shown["pixel_values"]:
            yield {**texts, "pixel_values": tensor}
            yield {**texts, **boxes, "pixel_values": tensor}
        for tensor in shown["input_features"]:
            yield {**texts, "input_features": tensor}
    for name, tensors in shown.items():
        for tensor in tensors:
            yield {name: tensor, **decoder}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of one model type: `verified`, `refused`, `no softmax attention` or `not built`, and why.

    `error`: the largest relative difference between Σ_h A_h·V_h·H_h + b_O and what the block returned in a pass of the
    model alone. `maps`: the largest difference from the maps that the family itself shows in its eager form; None where
    it shows none.
    """

    model_type: str
    architecture: str
    result: str
    reason: str = ""
    sites: int = 0
    kinds: str = ""
    precision: str = ""
    error: float | None = None
    maps: float | None = None


def outcome(model_type: str) -> Outcome:
    """Build, run, capture and check one model type."""
    architecture, reason = model_classes()[model_type], ""
    for dtype in (torch.float64, torch.float32):
        try:
            model: Any = build(model_type, dtype)
            given = inputs(model)
            break
        except NotBuilt as problem:
            reason = reason or str(problem)
    else:
        return Outcome(model_type, architecture, "not built", reason)
    try:
        torch.manual_seed(0)
        trace = identiscope.trace(model, given)
    except identiscope.CaptureError as problem:
        result = "no softmax attention" if "no softmax attention" in str(problem) else "refused"
        return Outcome(model_type, architecture, result, str(problem))
    verification = trace.verify()
    error = max(_alone(model, trace, given), verification.error)
    maps = _difference(model, given)
    if not verification.verified or not explained_by(error, dtype):
        return Outcome(model_type, architecture, "SILENT", f"verified to {verification.error:.1e}, but is {error:.1e}")
    kinds, precision = ", ".join(trace.kinds), verification.precision
    return Outcome(model_type, architecture, "verified", "", len(trace.sites), kinds, precision, error, maps)


def _run(model: Any, given: Mapping[str, Tensor], **options: Any) -> Any:
    if "use_cache" in inspect.signature(model.forward).parameters:
        options["use_cache"] = False  # with a cache, some decoders read their last token alone
    torch.manual_seed(0)  # some families draw which patches to hide
    with torch.no_grad():
        return model(**given, **options)


def _alone(model: Any, trace: identiscope.Trace, given: Mapping[str, Tensor]) -> float:
    """How far each site's sum over heads is from what its module returned when nobody watched the pass."""
    names = {site.returned_by for site in trace.sites}
    seen: dict[str, list[Tensor]] = {name: [] for name in names}

    def keep(name: str) -> Any:
        return lambda module, args, output: seen[name].append(output if isinstance(output, Tensor) else output[0])

    handles = [module.register_forward_hook(keep(name)) for name, module in model.named_modules() if name in names]
    _run(model, given)
    for handle in handles:
        handle.remove()
    worst = 0.0
    for site in trace.sites:
        if not seen[site.returned_by]:
            continue  # a product without a module of its own: nothing outside the model sees what it returns
        returned = seen[site.returned_by].pop(0).double()
        expected = torch.from_numpy(reference_attention.block(site)[1])
        if returned.shape[-1] != expected.shape[-1]:
            returned = returned.transpose(-1, -2)
        size = float(returned.abs().max())
        worst = max(worst, float((returned.reshape(expected.shape) - expected).abs().max()) / (size or 1.0))
    return worst


def _difference(model: Any, given: Mapping[str, Tensor]) -> float | None:
    """The largest difference from the maps that the eager model shows; None if it shows none of its shapes."""
    try:
        if model._can_set_attn_implementation():
            model.set_attn_implementation("eager")
        outputs = _run(model, given, output_attentions=True, return_dict=True)
        torch.manual_seed(0)
        trace = identiscope.trace(model, dict(given))
    except Exception:
        return None
    found: list[Tensor] = []
    for part in ("encoder_attentions", "decoder_attentions", "cross_attentions", "attentions"):
        found += [maps[0] for maps in getattr(outputs, part, None) or () if isinstance(maps, Tensor)]
    for name in getattr(outputs, "keys", tuple)():
        found += [maps[0] for maps in getattr(outputs[name], "attentions", None) or () if isinstance(maps, Tensor)]
    # Families list their maps in orders of their own, and not always all of them, or others besides: each of the fewer
    # has one among the more.
    fewer, more = sorted([found, [site.attentions() for site in trace.sites]], key=len)
    worst = 0.0
    for one in fewer:
        same = [other for other in more if other.shape == one.shape]
        if not same:
            return None
        worst = max(worst, min(float((one - other).abs().max()) for other in same))
    return worst if fewer else None
