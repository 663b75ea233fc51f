"""Weights of planted models that were trained once, kept in the user's cache directory with a digest."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from identiscope.errors import IdentiscopeError
from identiscope.files import make_directory, write_file


def cache_directory() -> Path:
    """Where this user's programs keep what can be made again."""
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or str(Path.home() / ".cache")
    return Path(base) / "identiscope" / "planted"


def kept_weights(name: str, key: str) -> Mapping[str, torch.Tensor] | None:
    """The weights that were kept under a name and a key, if they are there and as they were written."""
    path = cache_directory() / f"{name}-{key[:16]}.safetensors"
    try:
        data = path.read_bytes()
        digest = path.with_suffix(".sha256").read_text(encoding="ascii").strip()
        if hashlib.sha256(data).hexdigest() != digest:
            return None
        return load(data)
    except (OSError, ValueError, SafetensorError):
        return None


def keep_weights(name: str, key: str, weights: Mapping[str, torch.Tensor]) -> None:
    """Keep weights, the digest last; where nothing can be written, they are made again the next time."""
    path = cache_directory() / f"{name}-{key[:16]}.safetensors"
    data = save(dict(weights))
    try:
        make_directory(path.parent)
        write_file(path, data)
        write_file(path.with_suffix(".sha256"), hashlib.sha256(data).hexdigest().encode("ascii"))
    except (OSError, IdentiscopeError):
        return
