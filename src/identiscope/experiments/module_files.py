"""A small PyTorch module as one safetensors file, with what it takes to build it again in the header."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import nn

from identiscope.errors import InputError
from identiscope.files import write_file

Module = TypeVar("Module", bound=nn.Module)


def save_module(module: nn.Module, path: str | Path, kind: str, about: Mapping[str, Any]) -> Path:
    """Write the weights of a module; kind: the name of the format, about: what goes into the header as JSON."""
    header = {"format": kind, **{name: json.dumps(value) for name, value in about.items()}}
    tensors = {name: value.contiguous() for name, value in module.state_dict().items()}
    return write_file(path, save(tensors, metadata=header))


def load_module(
    path: str | Path, kind: str, what: str, build: Callable[[dict[str, Any]], Module]
) -> tuple[Module, dict[str, Any]]:
    """Read what `save_module` wrote: the module that `build` makes of the header, with its weights, and the header.

    what: in words, for errors.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"there is no file {path}.")
    try:
        with safe_open(str(path), framework="pt") as file:
            header = file.metadata() or {}
        if header.pop("format", None) != kind:
            raise InputError(f"{path} is a safetensors file, but not {what} ({kind}).")
        about = {name: json.loads(value) for name, value in header.items()}
        module = build(about)
        module.load_state_dict(load_file(str(path)))
    except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{path} is damaged, or not {what}: {str(error)[:200]}.") from error
    return module.eval(), about
