"""A model whose outcome is a linear function of its attention: what is true to first order is true."""

from collections.abc import Mapping
from functools import cached_property

import torch
from torch import Tensor

from identiscope.methods.attention_runs import Answers, LayerMaps, Maps


class LinearRuns:
    """Stands for `AttentionRuns`: the outcome is Σ slope·A over all layers, and there are no choices.

    slopes [layer, head, query, key]; every query sees all keys up to itself, if causal.
    """

    def __init__(self, seed: int, shape: tuple[int, int, int], causal: bool = False, copies: list[int] | None = None):
        layers, heads, count = shape
        generator = torch.Generator().manual_seed(seed)
        allowed = torch.ones(count, count, dtype=torch.bool)
        allowed = allowed.tril() if causal else allowed
        logits = 2 * torch.randn(layers, heads, count, count, generator=generator, dtype=torch.float64)
        maps = logits.masked_fill(~allowed, -torch.inf).softmax(-1)
        self.slopes = torch.randn(layers, heads, count, count, generator=generator, dtype=torch.float64)
        groups = torch.arange(count) if copies is None else torch.tensor(copies)
        self.layers = [
            LayerMaps(3 + place, tuple(range(heads)), maps[place], allowed, groups) for place in range(layers)
        ]
        self.free_rows = [torch.zeros(count, dtype=torch.bool)] * layers
        self.passes = 0.0

    @cached_property
    def reference(self) -> Answers:
        """With the raw maps."""
        return self.answers({}, 1)

    def answers(self, changed: Mapping[int, Maps], count: int) -> Answers:
        """With other maps."""
        self.passes += count
        total = torch.zeros(count, dtype=torch.float64)
        for place, layer in enumerate(self.layers):
            raw = layer.raw.expand(count, *layer.raw.shape)
            maps: Tensor = changed[place](torch.arange(count)) if place in changed else raw
            assert maps.shape == raw.shape and float(maps.min()) >= -1e-12
            assert float((maps.sum(-1) - raw.sum(-1)).abs().max()) < 1e-9
            assert float(maps.masked_fill(layer.allowed, 0.0).abs().max()) == 0
            total += (self.slopes[place] * maps).sum((1, 2, 3))
        return Answers(total, None)

    def gradients(self, most: int) -> tuple[Tensor, list[Tensor]]:
        """The slopes themselves."""
        return self.reference.value, [slope[None] for slope in self.slopes]
