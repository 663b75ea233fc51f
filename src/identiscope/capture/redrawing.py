"""A model whose layers have been drawn anew, from the top: what is left of an answer then is not about its weights."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from identiscope.capture.models import Model
from identiscope.capture.trace import Trace
from identiscope.errors import ModelError


def blocks_of(trace: Trace) -> list[str]:
    """The names of the blocks that a pass went through, in order: of every attention call the outermost list's item."""
    assert trace.model is not None
    names: list[str] = []
    for site in trace.sites:
        parts = site.name.split(".")
        for end in range(1, len(parts)):
            parent, name = ".".join(parts[:end]), ".".join(parts[: end + 1])
            if parts[end].isdigit() and isinstance(trace.model.module.get_submodule(parent), nn.ModuleList):
                names.append(name)
                break
        else:
            raise ModelError(f"{site.name} of {trace.model.name} is in no list of layers that could be drawn anew.")
    return list(dict.fromkeys(names))


def redraw(model: Model, blocks: Sequence[str], seed: int) -> Model:
    """The same model with some blocks drawn anew, as its family begins them; the given one stays as it is."""
    inner: Any = model.inner
    if not model.is_transformers or inner is not model.module:
        raise ModelError(
            f"{model.name} is {type(model.module).__name__}; layers can be drawn anew of models of transformers, which"
            " know how theirs begin."
        )
    module: Any = copy.deepcopy(inner)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        for name in blocks:
            block = module.get_submodule(name)
            for part in (*block.modules(), *block.parameters(), *block.buffers()):
                # What was read from a file is marked, and would be left as it is.
                if hasattr(part, "_is_hf_initialized"):
                    del part._is_hf_initialized
            block.apply(module._init_weights)
    return replace(model, module=module)
