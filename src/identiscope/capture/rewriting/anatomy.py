"""A model of a known family, taken apart into its linear maps and norms, ready to be rewritten in place.

All weights are seen as [input, output], as they are multiplied; what is written into such a view is written into the
model.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from identiscope.capture.rewriting.families import FAMILIES, Family
from identiscope.errors import ModelError

#: Heads that read the stream, seen from the whole model; and the module of the model without a head that does.
_HEADS = ("lm_head", "score", "classifier", "qa_outputs", "cls.predictions.transform.dense")
_POOLER = "pooler.dense"


@dataclass(frozen=True, eq=False)
class Map:
    """One linear map: weight [input, output] and bias [output], if it has one, as views of a module's own."""

    weight: Tensor
    bias: Tensor | None


@dataclass(frozen=True, eq=False)
class Gain:
    """A norm: its gain as it multiplies, if it has one, and its bias; centred: it takes the mean off first."""

    module: nn.Module

    @property
    def centred(self) -> bool:
        """Whether the mean is taken off."""
        return isinstance(self.module, nn.LayerNorm)

    @cached_property
    def _offset(self) -> float:
        """Gemma's norms multiply by one plus their weight."""
        return 1.0 if type(self.module).__name__.startswith("Gemma") else 0.0

    @property
    def gain(self) -> Tensor | None:
        """What it multiplies by, [model]."""
        weight = getattr(self.module, "weight", None)
        return None if weight is None else weight.data + self._offset

    @property
    def bias(self) -> Tensor | None:
        """What it adds, [model], as a view."""
        bias = getattr(self.module, "bias", None)
        return None if bias is None else bias.data

    def set_gain(self, gain: Tensor) -> None:
        """Let it multiply by this."""
        weight = self.module.weight
        assert isinstance(weight, Tensor)
        weight.data.copy_(gain - self._offset)


@dataclass(frozen=True, eq=False)
class Attention:
    """One layer's attention. Weights of heads are views: what reads is [model, head, channel], the output
    [head, channel, model]."""

    query: Map
    key: Map
    value: Map
    output: Map
    heads: int
    groups: int
    query_norm: Gain | None = None
    key_norm: Gain | None = None

    @property
    def shared(self) -> int:
        """How many heads share keys and values."""
        return self.heads // self.groups

    def read(self, part: Map, count: int) -> tuple[Tensor, Tensor | None]:
        """A map that reads the stream by head: weight [model, head, channel], bias [head, channel]."""
        bias = None if part.bias is None else part.bias.unflatten(0, (count, -1))
        return part.weight.unflatten(1, (count, -1)), bias

    @property
    def written(self) -> Tensor:
        """The output projection by head, [head, channel, model]."""
        by_head: Tensor = self.output.weight.unflatten(0, (self.heads, -1))
        return by_head


@dataclass(frozen=True, eq=False)
class Layer:
    """One block: its attention, its feed-forward maps, and its norms."""

    attention: Attention
    up: Map
    gate: Map | None
    down: Map
    read_norms: tuple[Gain, ...]
    inner_norms: tuple[Gain, ...]
    outer_norms: tuple[Gain, ...]

    @property
    def read_by(self) -> tuple[tuple[Map, ...], tuple[Map, ...]]:
        """The maps that attention and the feed-forward part read the stream with."""
        attention = self.attention
        gate = () if self.gate is None else (self.gate,)
        return (attention.query, attention.key, attention.value), (self.up, *gate)


@dataclass(eq=False)
class Anatomy:
    """A model of a known family, ready to be rewritten in place; its weights are in float64.

    heads [layer, head] says where what stands in each head's place came from; order and sign [model] the same of the
    coordinates of the stream: state'[k] = sign[k]·state[order[k]].
    """

    module: Any
    family: Family
    name: str
    heads: Tensor = field(init=False)
    order: Tensor = field(init=False)
    sign: Tensor = field(init=False)

    def __post_init__(self) -> None:
        own = self.layers[0].attention.heads
        self.heads = torch.arange(own).expand(len(self.layers), own).clone()
        self.order = torch.arange(self.width)
        self.sign = torch.ones(self.width, dtype=torch.float64)

    @property
    def config(self) -> Any:
        """transformers' configuration."""
        return self.module.config

    @property
    def base(self) -> nn.Module:
        """The model without its head."""
        base = self.module.base_model
        assert isinstance(base, nn.Module)
        return base

    @property
    def width(self) -> int:
        """The width of the stream."""
        return int(self.layers[0].attention.output.weight.shape[1])

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """Every block."""
        return tuple(self._layer(block) for block in _inside(self.base, self.family.layers))

    def _layer(self, block: nn.Module) -> Layer:
        family = self.family

        def norms(names: tuple[str, ...]) -> tuple[Gain, ...]:
            return tuple(Gain(_inside(block, name)) for name in names)

        heads = int(self.config.num_attention_heads)
        groups = int(getattr(self.config, "num_key_value_heads", None) or heads)
        names = (family.query, family.key, family.value)
        query, key, value = (
            _map(_inside(block, name), part if family.joined else None) for part, name in enumerate(names)
        )
        attention = Attention(
            query,
            key,
            value,
            _map(_inside(block, family.output)),
            heads,
            groups,
            Gain(_inside(block, family.query_norm)) if family.query_norm else None,
            Gain(_inside(block, family.key_norm)) if family.key_norm else None,
        )
        return Layer(
            attention,
            _map(_inside(block, family.up)),
            _map(_inside(block, family.gate)) if family.gate else None,
            _map(_inside(block, family.down)),
            norms(family.read_norms),
            norms(family.inner_norms),
            norms(family.outer_norms),
        )

    @property
    def final_norm(self) -> Gain | None:
        """The norm before the head, if there is one."""
        norm = _inside(self.base, self.family.final_norm) if self.family.final_norm else None
        return None if norm is None else Gain(norm)

    @property
    def embedding_norm(self) -> Gain | None:
        """The norm behind the embeddings, if there is one."""
        return Gain(_inside(self.base, self.family.embedding_norm)) if self.family.embedding_norm else None

    def readers(self) -> list[Map]:
        """The maps of the head that read the last states."""
        pooler = _inside(self.base, _POOLER)
        readers = [] if pooler is None else [_map(pooler)]
        if self.module is not self.base:
            # What stands behind a pooler reads that, and not the stream.
            names = [name for name in _HEADS if not (readers and name == "classifier")]
            readers += [_map(head) for name in names if isinstance(head := _inside(self.module, name), nn.Module)]
        return readers

    def written_first(self) -> Iterator[Tensor]:
        """What the embeddings write, as views whose last axis is the stream."""
        for name in self.family.embeddings:
            part = _inside(self.base, name)
            if isinstance(part, nn.Conv2d):
                yield part.weight.data.movedim(0, -1)
                if part.bias is not None:
                    yield part.bias.data
            elif isinstance(part, nn.Embedding):
                yield part.weight.data
            elif isinstance(part, Tensor):
                yield part.data


def anatomy(module: Any, name: str) -> Anatomy:
    """The anatomy of a model whose weights are in float64, or an error that says why there is none."""
    config = getattr(module, "config", None)
    kind = getattr(config, "model_type", None)
    family = next((one for one in FAMILIES if kind in one.types), None)
    if family is None:
        known = ", ".join(kind for one in FAMILIES for kind in one.types)
        raise ModelError(
            f"{name} ({kind or type(module).__name__}) is of no family whose rewritings are known; known are {known}."
        )
    if getattr(config, "add_cross_attention", False):
        raise ModelError(f"{name} reads a second text (cross-attention), and rewritings are known of one stream only.")
    try:
        made = Anatomy(module, family, name)
    except (AttributeError, IndexError, RuntimeError, AssertionError) as error:
        raise ModelError(f"{name} does not have the modules of its family ({kind}): {str(error)[:200]}.") from error
    return made


def _inside(root: Any, path: str) -> Any:
    """A module or parameter inside another by its path; None where it is not there."""
    for name in path.split("."):
        root = getattr(root, name, None)
        if root is None:
            return None
    return root


def _map(module: Any, part: int | None = None) -> Map:
    """A module's linear map; part: which third of its outputs."""
    assert isinstance(module, nn.Module)
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.dim() != 2 or not weight.is_floating_point():
        raise AttributeError(f"{type(module).__name__} is no plain linear map")
    # transformers' Conv1D holds its weight as it is multiplied, [input, output]; Linear transposed.
    view = weight.data if type(module).__name__ == "Conv1D" else weight.data.T
    bias = getattr(module, "bias", None)
    bias = None if bias is None else bias.data
    if part is not None:
        third = view.shape[1] // 3
        own = slice(part * third, (part + 1) * third)
        view, bias = view[:, own], None if bias is None else bias[own]
    return Map(view, bias)
