"""Whether there is room for what a trace keeps, asked before the pass that would make it."""

from typing import Any

from identiscope.capture.batch import Batch
from identiscope.capture.models import Model
from identiscope.linalg import free_memory as memory
from identiscope.linalg.free_memory import check_free


def check_room(model: Model, batch: Batch) -> None:
    """Refuse texts of which the queries, keys, values, contexts and hidden states alone do not fit into memory.

    Counted from the configuration, and from it alone; a model without one is not refused.
    """
    numbers = kept_numbers(model.config)
    tokens = max((value.numel() for name, value in batch.arguments.items() if name.endswith("input_ids")), default=0)
    if not numbers or not tokens:
        return
    each = numbers * model.dtype.itemsize
    check_free(
        each * tokens, model.device, f"a trace of {model.name} on {tokens:,} tokens",
        "Give a shorter text, fewer texts at a time (batch_size), or identiscope.stream, which keeps one layer"
        " at a time.",
    )  # fmt: skip


def kept_numbers(config: Any) -> int:
    """How many numbers a trace keeps of each token; 0 where the configuration does not say."""
    config = getattr(config, "text_config", None) or config
    layers, width, heads = (
        _count(config, name) for name in ("num_hidden_layers", "hidden_size", "num_attention_heads")
    )
    if not (layers and width and heads):
        return 0
    # Query and context, key and value, and a hidden state; the logits once.
    logits = _count(config, "vocab_size") if _has_logits(config) else 0
    return sum(_of_layer(one, width, heads) for one in _layers(config, layers)) + logits


def _layers(config: Any, layers: int) -> list[Any]:
    """The configuration of each layer; where layers differ, what they differ in is not in the model's own."""
    each = list(getattr(config, "per_layer_config", None) or ())
    return each if len(each) == layers else [config] * layers


def _of_layer(config: Any, width: int, heads: int) -> int:
    heads = _count(config, "num_attention_heads") or heads
    channels = _count(config, "head_dim") or width // heads
    value_heads = _count(config, "num_key_value_heads") or heads
    return 2 * channels * (heads + value_heads) + width


def _count(config: Any, name: str) -> int:
    try:
        number = getattr(config, name, None)
    except RuntimeError:  # transformers, of what differs between layers
        return 0
    return number if isinstance(number, int) and number > 0 else 0


def _has_logits(config: Any) -> bool:
    architecture = (getattr(config, "architectures", None) or [""])[0]
    return str(architecture).endswith(("LMHeadModel", "ForCausalLM", "ForMaskedLM"))


def free_on_cpu() -> str:
    """How much memory is free, to be read; empty where it cannot be told."""
    free = memory.free_memory()
    return "" if free is None else memory.in_words(free)
