"""What decides the numbers of a Run, read off a model, a corpus, options and this machine: its manifest."""

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import torch

from identiscope.capture.digests import model_hash, tokenizer_hash
from identiscope.capture.models import Model
from identiscope.files import printable
from identiscope.runs.compute.methods import run_tables
from identiscope.runs.compute.options import RunOptions
from identiscope.runs.format.manifest import make_manifest, shards_hash
from identiscope.runs.format.tables import Shape
from identiscope.version import __version__

_PACKAGES = ("numpy", "pyarrow", "safetensors", "tokenizers", "transformers")


@dataclass(frozen=True)
class CorpusFacts:
    """What reading a corpus showed; shards: the hash of the texts of each shard."""

    name: str
    texts: int
    hash: str
    shards: tuple[str, ...]


def environment() -> dict[str, str]:
    """Versions and the processor's instructions: what the last bits of a number depend on."""
    versions = {name: version(name) for name in _PACKAGES}
    return versions | {
        "identiscope": __version__,
        "python": ".".join(platform.python_version_tuple()[:2]),
        "torch": str(torch.__version__),
        "processor": torch.backends.cpu.get_cpu_capability(),
    }


def run_manifest(
    model: Model,
    loading: Mapping[str, Any],
    shape: Shape,
    corpus: CorpusFacts,
    options: RunOptions,
    device: str | None = None,
) -> dict[str, Any]:
    """The manifest of a Run. device: the kind that workers compute on, if that is not where the model is."""
    there = torch.device(device or model.device.type)
    kinds = {"device": there.type, "analysis_device": model.home(there).type}
    decides: dict[str, Any] = {
        "model": {
            "weights": model_hash(model),
            "class": type(model.module).__name__,
            "dtype": str(model.dtype).removeprefix("torch."),
            # What the last bits depend on; a CPU is described by the environment.
            **({} if set(kinds.values()) == {"cpu"} else kinds),
            "layers": list(shape.layers),
            "heads": list(shape.heads),
        },
        "tokenizer": tokenizer_hash(model),
        "corpus": {"texts": corpus.texts, "hash": corpus.hash, "shards": shards_hash(corpus.shards)},
        "options": options.described(),
        "tables": run_tables(options.chosen),
        "environment": environment(),
    }
    names = {"model": printable(model.name), "corpus": printable(corpus.name), "loading": dict(loading)}
    return make_manifest(decides, names)
