"""The rank of all heads of a layer stacked, counted without a spectrum, against the stacked matrix written out."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference_prefixes
from identiscope.linalg.rank import stacked
from identiscope.linalg.rank.coordinates import coordinates
from identiscope.linalg.rank.projection_factor import projection_factor
from identiscope.linalg.rank.stacked import stacked_ranks


def literal(values, projections, group, with_ones):
    """T of all heads below each other; with ones, each head has a column of its own."""
    blocks = []
    for head, projection in enumerate(projections):
        value = values[head // group]
        added = np.zeros((len(value), len(projections) if with_ones else 0))
        if with_ones:
            added[:, head] = reference_prefixes.scale_of_ones(value, projection)
        blocks.append(np.concatenate([value @ projection, added], 1))
    return np.concatenate(blocks)


def ranks_of(values, projections, precision):
    factor = projection_factor(torch.from_numpy(projections))
    plain, with_ones = (
        coordinates(torch.from_numpy(values), factor, precision, with_ones=flag) for flag in (False, True)
    )
    return stacked_ranks(plain, with_ones, torch.from_numpy(projections))


@given(
    st.integers(0, 10**6), st.integers(1, 25), st.integers(1, 6), st.sampled_from([(1, 1), (1, 3), (2, 4)]),
    st.sampled_from([5, 16, 200]), st.sampled_from(["plain", "low rank", "equal", "shared output"]), st.integers(1, 9),
    st.sampled_from(["float32", "bfloat16", "float64"]),
)  # fmt: skip
@settings(max_examples=300, deadline=None, derandomize=True)
def test_ranks_are_those_of_the_matrix_written_out(seed, keys, channels, heads, model, kind, power, precision):
    generator = np.random.default_rng(seed)
    value_heads, count = heads
    values = generator.standard_normal((value_heads, keys, channels))
    projections = generator.standard_normal((count, channels, model))
    if kind == "low rank":
        values[..., -1] = values[..., 0] + 10.0**-power * values[..., -1]
    elif kind == "equal":
        values = values[:, generator.integers(0, max(1, keys // 2), keys)]
    elif kind == "shared output":
        projections = projections[:1] + 10.0**-power * projections
    found = ranks_of(values, projections, getattr(torch, precision))
    for rank, with_ones in zip(found, (False, True), strict=True):
        whole = literal(values, projections, count // value_heads, with_ones)
        singular = np.linalg.svd(whole, compute_uv=False)
        relative = reference_prefixes.relative_cutoff(count * keys, model, precision)
        cutoff = relative * singular[0]
        if (np.abs(singular - cutoff) > 1e-9 * cutoff + 20 * 2.0**-52 * singular[0]).all():
            assert rank == (singular > cutoff).sum()


@pytest.mark.parametrize("side", [-1, 1])
def test_beside_the_cutoff_the_spectrum_decides(side, monkeypatch):
    asked = []
    spectrum = stacked.stacked_spectrum

    def counted(*given: Any) -> Any:
        asked.append(1)
        return spectrum(*given)

    monkeypatch.setattr(stacked, "stacked_spectrum", counted)
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((40, 2)))[0]
    relative = reference_prefixes.relative_cutoff(40, 300, "float32")
    found = ranks_of((basis * [1.0, relative * (1 + side * 1e-8)])[None], np.eye(2, 300)[None], torch.float32)
    assert asked and found[0] == (2 if side > 0 else 1)
    asked.clear()
    assert ranks_of(basis[None], np.eye(2, 300)[None], torch.float32) == (2, 3) and not asked


@pytest.mark.parametrize("side", [-1, 1])
def test_a_cutoff_far_above_rounding_leaves_little_in_doubt(side, monkeypatch):
    """A spectrum without gaps, as that of a wide layer, has values near any cutoff: they are counted all the same."""
    monkeypatch.setattr(stacked, "stacked_spectrum", lambda *given: pytest.fail("a spectrum was asked for"))
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((4000, 2)))[0]
    relative = reference_prefixes.relative_cutoff(4000, 300, "float32")
    assert relative > 1e-4
    found = ranks_of((basis * [1.0, relative * (1 + side * 1e-4)])[None], np.eye(2, 300)[None], torch.float32)
    assert found[0] == (2 if side > 0 else 1)
