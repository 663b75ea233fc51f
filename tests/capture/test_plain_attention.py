"""Attention in plain operations, some rows at a time, is what it is all at once."""

from typing import Any

import pytest
import torch
from torch import Tensor

from identiscope.capture.watch import plain_attention
from identiscope.capture.watch.plain_attention import PlainAttention

QUERIES, KEYS = 11, 13


def given(heads: int, rows: int) -> Tensor:
    generator = torch.Generator().manual_seed(rows + heads)
    return torch.randn(2, heads, rows, 5, dtype=torch.float64, generator=generator)


MASKS: dict[str, dict[str, Any]] = {
    "none": {},
    "causal": {"is_causal": True},
    "cells": {"attn_mask": torch.rand(QUERIES, KEYS, generator=torch.Generator().manual_seed(0)) < 0.7},
    "keys": {"attn_mask": torch.arange(KEYS)[None] < 9},
    "bias": {"attn_mask": torch.linspace(-1, 1, 4 * QUERIES * KEYS, dtype=torch.float64).view(1, 4, QUERIES, KEYS)},
}


@pytest.mark.parametrize("mask", MASKS)
def test_rows_at_a_time_are_all_rows(mask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    query, key, value = given(4, QUERIES), given(2, KEYS), given(2, KEYS).flip(0)

    def attended(query: Tensor) -> Tensor:
        with PlainAttention():
            return torch.nn.functional.scaled_dot_product_attention(
                query, key, value, enable_gqa=True, scale=0.3, **MASKS[mask]
            )

    def moving() -> tuple[Any, ...]:
        return torch.func.jvp(attended, (query,), (query.cos(),))

    whole, moved = moving()
    # Three rows of all texts and heads at once.
    monkeypatch.setattr(plain_attention, "_CELLS", 2 * 4 * KEYS * 3)
    in_parts, moved_in_parts = moving()
    torch.testing.assert_close(in_parts, whole, atol=1e-14, rtol=0)
    torch.testing.assert_close(moved_in_parts, moved, atol=1e-14, rtol=0)


def test_of_a_long_text_no_whole_map_is_held() -> None:
    """The one here has 2**24 cells."""
    largest = 0

    class Watched(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            made = func(*args, **(kwargs or {}))
            for one in made if isinstance(made, (tuple, list)) else [made]:
                largest = max(largest, one.numel() if isinstance(one, Tensor) else 0)
            return made

    one = torch.zeros(1, 1, 4096, 2)
    with torch.no_grad(), PlainAttention(), Watched():
        torch.nn.functional.scaled_dot_product_attention(one, one, one, is_causal=True)
    assert plain_attention._CELLS / 2 < largest <= plain_attention._CELLS
