"""Refuse a configuration of absurd size before it is built: its numbers, and what they ask for beside what is there."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from identiscope.errors import ModelError
from identiscope.linalg.free_memory import check_free, in_words

#: More layers than any model has; to build so many takes minutes.
MOST_LAYERS = 2048
#: What is counted in configurations, by the names that families have for it.
_COUNTS = frozenset(
    ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers", "num_decoder_layers",
     "num_attention_heads", "num_key_value_heads", "num_heads", "n_head", "n_heads", "encoder_attention_heads",
     "decoder_attention_heads", "hidden_size", "d_model", "n_embd", "head_dim"),
)  # fmt: skip
#: How many times the bytes of its files a model may take in memory: they may hold four bits where memory holds 32.
MOST_TIMES = 16
#: What a model may take in any case, such as for tables that are computed and not saved.
ALWAYS = 2**30


def check_size(config: Any, known: Any, source: str, name: str, dtype: torch.dtype | None = None) -> None:
    """Refuse a configuration with too many layers, or that asks for far more memory than the weights have bytes.

    Refused, too, is what does not fit into the memory that is free: as it is saved, or in the dtype given.
    """
    described = config.to_dict()
    for key, count in _whole_numbers(described):
        if "layer" in key and count > MOST_LAYERS:
            raise ModelError(
                f"the configuration of {name} says {key} = {count}; at most {MOST_LAYERS:,} layers are taken. Check its"
                " config.json."
            )
        if key in _COUNTS and count < 0:
            raise ModelError(
                f"the configuration of {name} says {key} = {count}; expected a count, which is never negative. Check"
                " its config.json."
            )
    folder = Path(source)
    if not folder.is_dir():
        return
    there = sum(path.stat().st_size for path in folder.iterdir() if path.suffix in (".safetensors", ".bin", ".gguf"))
    try:
        with torch.device("meta"):
            planned = known(config) if hasattr(known, "config_class") else known.from_config(config)
        needed = sum(part.numel() * part.element_size() for part in (*planned.parameters(), *planned.buffers()))
    except (RuntimeError, OverflowError, MemoryError) as error:
        # Sizes whose product is no number of 64 bits.
        raise ModelError(f"the configuration of {name} cannot be built: {str(error)[:200]}.") from error
    if needed > max(MOST_TIMES * there, ALWAYS):
        raise ModelError(
            f"the configuration of {name} describes a model of {needed / 2**30:,.1f} GiB, and its weights have"
            f" {there / 2**30:,.3f}. They do not belong together: check its config.json."
        )
    _check_fits(planned, config, name, dtype)


def _check_fits(planned: nn.Module, config: Any, name: str, dtype: torch.dtype | None) -> None:
    """Refuse weights for which there is not enough memory; they are read to the CPU, wherever they go then."""
    saved = getattr(config, "dtype", None)
    kept = next((one for one in (dtype, saved) if isinstance(one, torch.dtype)), torch.float32)
    numbers = sum(part.numel() for part in planned.parameters())
    half = f"dtype='float16' ({in_words(numbers * 2)}), " if kept.itemsize > 2 else ""
    check_free(
        numbers * kept.itemsize, "cpu", f"loading {name} ({numbers:,} weights in {str(kept).removeprefix('torch.')})",
        f"Give {half}a smaller model, or end what else is running.", ModelError,
    )  # fmt: skip


def _whole_numbers(described: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """The whole numbers of a configuration and of those inside it, by name."""
    for key, value in described.items():
        if isinstance(value, Mapping):
            yield from _whole_numbers({str(name): part for name, part in value.items()})
        elif isinstance(value, int) and not isinstance(value, bool):
            yield key, value
