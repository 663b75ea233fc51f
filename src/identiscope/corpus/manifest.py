"""The manifest of a Run: of which model, tokenizer, corpus, options and versions its numbers are."""

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from identiscope import __version__
from identiscope.capture.models import Model
from identiscope.corpus.hidden_state_cache import model_hash, tokenizer_hash
from identiscope.corpus.run_batch import Shape
from identiscope.corpus.run_options import RunOptions
from identiscope.errors import InputError

FORMAT = "identiscope-run-1"
NAME = "manifest.json"
_PACKAGES = ("numpy", "pyarrow", "safetensors", "tokenizers", "transformers")


@dataclass(frozen=True)
class CorpusFacts:
    """What a first pass over a corpus found."""

    name: str
    texts: int
    hash: str


def environment() -> dict[str, str]:
    """Versions and the processor's instructions: what the last bits of a number depend on."""
    versions = {name: version(name) for name in _PACKAGES}
    return versions | {
        "identiscope": __version__,
        "python": ".".join(platform.python_version_tuple()[:2]),
        "torch": str(torch.__version__),
        "processor": torch.backends.cpu.get_cpu_capability(),
    }


def make_manifest(
    model: Model, loading: Mapping[str, Any], shape: Shape, corpus: CorpusFacts, options: RunOptions
) -> dict[str, Any]:
    """A manifest; `run` is the hash of all that decides the numbers, which the shards repeat."""
    decides: dict[str, Any] = {
        "model": {
            "weights": model_hash(model),
            "class": type(model.module).__name__,
            "dtype": str(model.dtype).removeprefix("torch."),
            "layers": list(shape.layers),
            "heads": list(shape.heads),
        },
        "tokenizer": tokenizer_hash(model),
        "corpus": {"texts": corpus.texts, "hash": corpus.hash},
        "options": options.described(),
        "environment": environment(),
    }
    return {
        "format": FORMAT,
        **decides,
        "shards": -(-corpus.texts // options.shard_size),
        "names": {"model": model.name, "corpus": corpus.name, "loading": dict(loading)},
        "run": hashlib.sha256(canonical(decides)).hexdigest(),
    }


def canonical(value: Any) -> bytes:
    """The one way a JSON value is written to be hashed."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()


def manifest_bytes(manifest: Mapping[str, Any]) -> bytes:
    """As written to disk."""
    return (json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def read_manifest(directory: Path) -> dict[str, Any]:
    """The manifest of a Run directory, checked."""
    path = directory / NAME
    if not path.is_file():
        raise InputError(f"{directory} has no {NAME}: it is no Run directory.")
    try:
        manifest = json.loads(path.read_bytes())
        decides = {name: manifest[name] for name in ("model", "tokenizer", "corpus", "options", "environment")}
        good = manifest["format"] == FORMAT and manifest["run"] == hashlib.sha256(canonical(decides)).hexdigest()
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is damaged or not the manifest of a Run ({FORMAT}): {error}.") from error
    if not good:
        raise InputError(f"{path} was changed, or is not the manifest of a Run ({FORMAT}).")
    assert isinstance(manifest, dict)
    return manifest


def check_same(directory: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse to continue a Run with anything else than it was begun with, and say what differs."""
    differing = [
        f"{name} (there: {there}, now: {here})"
        for name, there, here in _differences(found, wanted)
        if not name.startswith(("names", "run", "shards"))
    ]
    if differing:
        raise InputError(
            f"{directory} holds a Run that was begun otherwise: {'; '.join(differing)}. Continue it as it was begun, or"
            " name another directory."
        )


def _differences(one: Any, other: Any, name: str = "") -> list[tuple[str, str, str]]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        keys = sorted({*one, *other})
        return [found for key in keys for found in _differences(one.get(key), other.get(key), f"{name} {key}".strip())]
    return [] if one == other else [(name, _short(one), _short(other))]


def _short(value: Any) -> str:
    shown = "all" if value is None else str(value)
    return shown if len(shown) <= 40 else f"{shown[:12]}…"
