"""A small PyTorch module as one safetensors file, with what it takes to build it again in the header."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import save
from torch import Tensor, nn

from identiscope.errors import InputError
from identiscope.files import printable, write_file
from identiscope.tensor_files import read_json, read_tensors

Module = TypeVar("Module", bound=nn.Module)

#: The most that tables which are computed, and not in the file, may take.
MOST_BYTES = 2**30


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
    tensors, header = read_tensors(path, kind, what, "pt")
    whole = printable(path)
    about = {name: read_json(value, whole) for name, value in header.items() if name != "format"}
    try:
        _check_shapes(build, about, tensors)
        module = build(about)
        module.load_state_dict(tensors)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError, InputError) as error:
        raise InputError(f"{whole} is damaged, or not {what}: {str(error)[:200]}.") from error
    return module.eval(), about


def _check_shapes(build: Callable[[dict[str, Any]], Module], about: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """A header may ask for anything: build the module without numbers first, and see whether it is that of the file."""
    with torch.device("meta"):
        planned = build(about)
    wanted = {name: tuple(value.shape) for name, value in planned.state_dict().items()}
    given = {name: tuple(value.shape) for name, value in tensors.items()}
    if wanted != given:
        differing = sorted(name for name in {*wanted, *given} if wanted.get(name) != given.get(name))
        raise InputError(f"its header describes other weights than it has ({', '.join(differing[:3])})")
    extra = sum(buffer.numel() * buffer.element_size() for buffer in planned.buffers())
    if extra > MOST_BYTES:
        raise InputError(f"its header asks for tables of {extra:,} bytes")
