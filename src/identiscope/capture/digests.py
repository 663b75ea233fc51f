"""Of what a result is, in a few characters: digests of a model's weights, of how it computes, of what it was given."""

import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from identiscope.capture.additions import additions
from identiscope.capture.models import Model

# What a configuration says that changes no number, or is in the weights already.
_BESIDE_THE_POINT = frozenset(
    {"architectures", "dtype", "torch_dtype", "transformers_version", "use_cache", "output_attentions",
     "output_hidden_states", "return_dict"}
)  # fmt: skip

_Weights = tuple[tuple[str, str, int], ...]
_KNOWN: WeakKeyDictionary[nn.Module, tuple[_Weights, str]] = WeakKeyDictionary()


def model_hash(model: Model) -> str:
    """A hash of the weights, by name: the same for the same checkpoint wherever it was loaded from.

    Where others have put something around them (an adapter and whether it is switched on, hooks, replaced forwards), it
    is a hash of that, too. The last hash of a module is kept, with a checksum of every weight: reading all of them is
    the only way to see that none was changed in place (what is written through `.data` leaves no trace), and a checksum
    takes a third of the time of a hash that is meant to be told to others.
    """
    around = additions(model.module)
    weights = _weights_hash(model)
    if not around:
        return weights
    return hashlib.sha256("\n".join([weights, *around]).encode()).hexdigest()


def _weights_hash(model: Model) -> str:
    weights = [(name, _described(weight), _bytes(weight)) for name, weight in sorted(model.module.state_dict().items())]
    seen = tuple((name, described, zlib.crc32(content)) for name, described, content in weights)
    known = _KNOWN.get(model.module)
    if known is not None and known[0] == seen:
        return known[1]
    read = hashlib.sha256()
    for name, described, content in weights:
        read.update(f"{name} {described}".encode())
        read.update(content)
    _KNOWN[model.module] = seen, read.hexdigest()
    return read.hexdigest()


def configuration_hash(model: Model) -> str:
    """A hash of how the model computes with its weights: class, configuration, and buffers that are not saved."""
    config = model.config
    described = _plain(config.to_dict()) if hasattr(config, "to_dict") else repr(model.module)
    saved = set(model.module.state_dict())
    buffers = [(name, buffer) for name, buffer in model.module.named_buffers() if name not in saved]
    told = [type(model.module).__name__, described, tensors_hash(buffers)]
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()


def tokenizer_hash(model: Model) -> str:
    """A hash of what the tokenizer does, whatever its last call was; empty where there is none."""
    tokenizer = model.tokenizer
    if tokenizer is None:
        return ""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    described = dict(tokenizer.get_vocab()) if backend is None else json.loads(backend.to_str())
    for setting in ("padding", "truncation"):  # of the last call, not of the tokenizer
        described.pop(setting, None)
    return hashlib.sha256(json.dumps([type(tokenizer).__name__, described], sort_keys=True).encode()).hexdigest()


def input_hash(arguments: Mapping[str, Tensor]) -> str:
    """A hash of what one text is to the model: its ids, or pixels, or features, and whatever goes with them.

    The same whether the text was run alone or in a batch: a mask that hides nothing and positions that count from 0 say
    no more than their absence.
    """
    return tensors_hash((name, value) for name, value in sorted(arguments.items()) if not _says_nothing(name, value))


def tensors_hash(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """A hash of tensors and their names, in the order given."""
    read = hashlib.sha256()
    for name, tensor in tensors:
        read.update(f"{name} {_described(tensor)}".encode())
        read.update(_bytes(tensor))
    return read.hexdigest()


def _says_nothing(name: str, value: Tensor) -> bool:
    if name.endswith("attention_mask"):
        return bool((value == 1).all())
    return name.endswith("position_ids") and torch.equal(
        value, torch.arange(value.shape[-1]).expand_as(value).to(value)
    )


def _described(tensor: Tensor) -> str:
    return f"{tensor.dtype} {tuple(tensor.shape)}"


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data


def _plain(config: Any) -> Any:
    """A configuration without names, versions and the kernel it runs on."""
    if not isinstance(config, Mapping):
        return config
    kept = {str(name): value for name, value in config.items() if name not in _BESIDE_THE_POINT}
    return {name: _plain(value) for name, value in kept.items() if not name.startswith("_")}
