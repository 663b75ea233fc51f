"""Rewritings of attention: values, queries and keys in other coordinates, biases elsewhere, heads in another order."""

import torch
from torch import Tensor

from identiscope.capture.rewriting.anatomy import Anatomy, Attention, Map
from identiscope.capture.rewriting.matrices import commuting_with_rotation, factors, invertible, other_order
from identiscope.errors import ModelError


def value_output(model: Anatomy, generator: torch.Generator) -> None:
    """V → V·M and H → M⁻¹·H, with one M for all heads that share their values."""
    for layer in model.layers:
        own = layer.attention
        weight, bias = own.read(own.value, own.groups)
        matrices = invertible(own.groups, weight.shape[2], generator)
        _turn(weight, bias, matrices)
        written = own.written
        back = torch.linalg.inv(matrices).repeat_interleave(own.shared, 0)
        written.copy_(back @ written)


def value_bias(model: Anatomy, generator: torch.Generator) -> None:
    """b_V → b_V + c and b_O → b_O − Σ_h c·H_h, since rows of attention sum to one."""
    for layer in model.layers:
        own = layer.attention
        _, bias = own.read(own.value, own.groups)
        if bias is None or own.output.bias is None:
            missing = "value bias to shift" if bias is None else "output bias to take the shift off again"
            raise ModelError(f"value_bias is not open to {model.name}: its attention has no {missing}.")
        shift = _of_the_size(own.value, bias, generator)
        bias.add_(shift)
        own.output.bias.sub_(torch.einsum("hc,hcm->m", shift.repeat_interleave(own.shared, 0), own.written))


def query_key(model: Anatomy, generator: torch.Generator) -> None:
    """W_Q → W_Q·N and W_K → W_K·N⁻ᵀ, with one N for all heads that share their keys.

    With rotary positions N commutes with the rotation; behind norms of queries and keys it is a scale between their
    gains.
    """
    for layer in model.layers:
        own = layer.attention
        if own.query_norm is not None and own.key_norm is not None:
            _scale_gains(own, model, generator)
            continue
        size = own.key.weight.shape[1] // own.groups
        draw = commuting_with_rotation if model.family.rotary else invertible
        matrices = draw(own.groups, size, generator)
        _turn(*own.read(own.query, own.heads), matrices.repeat_interleave(own.shared, 0))
        _turn(*own.read(own.key, own.groups), torch.linalg.inv(matrices).mT)


def _scale_gains(own: Attention, model: Anatomy, generator: torch.Generator) -> None:
    assert own.query_norm is not None and own.key_norm is not None
    query, key = own.query_norm.gain, own.key_norm.gain
    if query is None or key is None:
        raise ModelError(
            f"query_key is not open to {model.name}: norms without gains stand between its maps and their product."
        )
    # Channels that are turned together have one scale.
    scale = factors((len(query) // 2,), generator).repeat(2)
    own.query_norm.set_gain(query * scale)
    own.key_norm.set_gain(key / scale)


def key_bias(model: Anatomy, generator: torch.Generator) -> None:
    """b_K → anything: it adds a constant to a row of logits, which the softmax does not see."""
    if model.family.rotary:
        raise ModelError(
            f"key_bias is not open to {model.name}: rotary positions turn keys, so that a bias adds something else for"
            " every distance."
        )
    for layer in model.layers:
        own = layer.attention
        _, bias = own.read(own.key, own.groups)
        if bias is None:
            raise ModelError(f"key_bias is not open to {model.name}: its keys have no bias.")
        bias.copy_(_of_the_size(own.key, bias, generator))


def head_order(model: Anatomy, generator: torch.Generator) -> None:
    """Heads in another order: whole groups, and those within a group."""
    for place, layer in enumerate(model.layers):
        own = layer.attention
        groups = other_order(own.groups, generator)
        within = torch.stack([other_order(own.shared, generator) for _ in range(own.groups)])
        heads = (groups[:, None] * own.shared + within).flatten()
        for part, order in ((own.query, heads), (own.key, groups), (own.value, groups)):
            weight, bias = own.read(part, len(order))
            weight.copy_(weight[:, order])
            if bias is not None:
                bias.copy_(bias[order])
        own.written.copy_(own.written[heads])
        model.heads[place] = model.heads[place][heads]


def _turn(weight: Tensor, bias: Tensor | None, matrices: Tensor) -> None:
    """Channels of every head [model, head, channel] times its matrix [head, channel, channel]."""
    weight.copy_(torch.einsum("mhc,hcd->mhd", weight, matrices))
    if bias is not None:
        bias.copy_(torch.einsum("hc,hcd->hd", bias, matrices))


def _of_the_size(part: Map, bias: Tensor, generator: torch.Generator) -> Tensor:
    """A random bias as large as what the map makes of an input whose coordinates are of size one."""
    size = part.weight.square().sum(0).mean().sqrt()
    return size * torch.randn(bias.shape, generator=generator, dtype=bias.dtype)
