"""Rewritings of the feed-forward part: its units in another order, and at another scale where that is free."""

import torch

from identiscope.capture.rewriting.anatomy import Anatomy, Map
from identiscope.capture.rewriting.matrices import factors, other_order, signs


def feed_forward(model: Anatomy, generator: torch.Generator) -> None:
    """Units permuted; gated: a scale for each unit from `up` to `down`, of either sign; ReLU: a positive one."""
    for layer in model.layers:
        units = layer.down.weight.shape[0]
        order = other_order(units, generator)
        for part in (layer.up, *([] if layer.gate is None else [layer.gate])):
            part.weight.copy_(part.weight[:, order])
            if part.bias is not None:
                part.bias.copy_(part.bias[order])
        layer.down.weight.copy_(layer.down.weight[order])
        if layer.gate is not None:
            _scale(layer.up, layer.down, factors((units,), generator) * signs(units, generator))
        elif _activation(model) == "relu":
            _scale(layer.up, layer.down, factors((units,), generator))


def _scale(up: Map, down: Map, scales: torch.Tensor) -> None:
    up.weight.mul_(scales)
    if up.bias is not None:
        up.bias.mul_(scales)
    down.weight.div_(scales[:, None])


def _activation(model: Anatomy) -> str:
    names = ("hidden_act", "hidden_activation", "activation_function")
    return next((str(found) for name in names if (found := getattr(model.config, name, None)) is not None), "")
