"""What an outcome allows the weights of a row to be, to first order: closed forms, for a whole layer at once."""

import torch
from torch import Tensor

from identiscope.methods.attention_runs import LayerMaps


def first_order_bounds(layer: LayerMaps, gradients: Tensor, groups: Tensor, limit: float) -> tuple[Tensor, Tensor]:
    """The least and the most [head, query, group] that the keys of a group may weigh together in their row, so that no
    number moves by more than the limit to first order; gradients [number, head, query, key], groups [key].

    A group that a row does not see has zeros; one that is all that it sees is the whole row.
    """
    count = int(groups.max()) + 1
    heads, queries, _ = layer.raw.shape
    total, at = layer.raw.sum(-1), (gradients * layer.raw).sum(-1)
    lower = layer.raw.new_zeros(heads, queries, count)
    upper = lower.clone()
    for group in range(count):
        own, other = layer.allowed & (groups == group), layer.allowed & (groups != group)
        seen, alone = own.any(-1), ~other.any(-1)
        inside_low, inside_high = _range(gradients, own)
        outside_low, outside_high = _range(gradients, other)
        # w·g + (s − w)·g' must come below at + limit for the smallest g and g', and above at − limit for the largest.
        ends = [
            _between(inside_low - outside_low, at + limit - total * outside_low),
            _between(outside_high - inside_high, total * outside_high - at + limit),
        ]
        least = torch.stack([end[0] for end in ends]).amax((0, 1)).clamp(min=0.0)
        most = torch.minimum(torch.stack([end[1] for end in ends]).amin((0, 1)), total)
        lower[..., group] = torch.where(seen, torch.where(alone, total, torch.minimum(least, most)), 0.0)
        upper[..., group] = torch.where(seen, torch.where(alone, total, most), 0.0)
    return lower, upper


def _range(gradients: Tensor, cells: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the most of derivatives over some cells, [number, head, query]; zero where there are none."""
    there = cells.any(-1)
    low = torch.where(cells, gradients, torch.inf).amin(-1)
    high = torch.where(cells, gradients, -torch.inf).amax(-1)
    return torch.where(there, low, 0.0), torch.where(there, high, 0.0)


def _between(slope: Tensor, room: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the most w with slope·w ≤ room."""
    ratio = room / torch.where(slope == 0, 1.0, slope)
    return torch.where(slope < 0, ratio, -torch.inf), torch.where(slope > 0, ratio, torch.inf)


def removal_effect(layer: LayerMaps, gradients: Tensor) -> Tensor:
    """By how much a number moves at most, to first order, when a token leaves a row and the others are scaled up:
    [head, query, group]. A token that is all there is leaves nothing that could be scaled."""
    shape = (*layer.raw.shape[:2], int(layer.copies.max()) + 1)
    weights = layer.raw.new_zeros(shape).index_add_(2, layer.copies, layer.raw)
    share = weights / layer.raw.sum(-1, keepdim=True).clamp(min=1e-300)
    # (a − own)/(1 − share) − a = (share·a − own)/(1 − share)
    scale = torch.where(share < 1 - 1e-12, 1 - share, torch.inf)
    largest = torch.zeros_like(weights)
    for slope in gradients:
        parts = slope * layer.raw
        own = layer.raw.new_zeros(shape).index_add_(2, layer.copies, parts)
        largest = torch.maximum(largest, ((share * parts.sum(-1, keepdim=True) - own) / scale).abs())
    return largest
