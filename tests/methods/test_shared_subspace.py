"""The shared subspace R: hard and soft, streamed, merged, stored, and what one sample ignores of it."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference_structure as reference
from identiscope.errors import InputError
from identiscope.methods.maps.effective_structural import effective_structural, ignored_directions
from identiscope.methods.structure.shared_subspace import (
    SharedSubspace,
    chance_spectrum,
    from_arrays,
    no_samples,
    own_basis,
    shared_subspace,
)

PROPERTY = settings(max_examples=40, deadline=None, derandomize=True)

HEADS, MODEL = 3, 10


@st.composite
def corpora(draw: st.DrawFn) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Values [1 kv head, n, d_v] of some texts of one length, and the projections of three heads that share them."""
    keys, channels = draw(st.integers(2, 12)), draw(st.integers(1, 4))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    projection = torch.randn(HEADS, channels, MODEL, generator=generator, dtype=torch.float64)
    # With few kinds of token the texts share directions; as many as there are positions, they are free.
    tokens = torch.randn(draw(st.integers(1, 6)), channels, generator=generator, dtype=torch.float64)
    values = [
        tokens[torch.randint(len(tokens), (1, keys), generator=generator)]
        if draw(st.booleans())
        else torch.randn(1, keys, channels, generator=generator, dtype=torch.float64)
        for _ in range(draw(st.integers(1, 7)))
    ]
    return values, projection


def subspace_of(values: list[torch.Tensor], projection: torch.Tensor) -> SharedSubspace:
    found = no_samples(HEADS, values[0].shape[1])
    for value in values:
        found = found.add(value, projection)
    return found


def transformed(values: list[torch.Tensor], projection: torch.Tensor, head: int) -> list[np.ndarray]:
    return [(value[0] @ projection[head]).numpy() for value in values]


@PROPERTY
@given(corpora())
def test_equals_the_draft_s_definition(case: tuple[list[torch.Tensor], torch.Tensor]) -> None:
    values, projection = case
    found = subspace_of(values, projection)
    for head in range(HEADS):
        samples = transformed(values, projection, head)
        basis = found.basis(head).numpy()
        assert np.allclose(basis @ basis.T, reference.hard_subspace(samples), atol=1e-7)
        assert np.allclose(found.mean_projector[head], reference.mean_projector(samples), atol=1e-10)
        ranks = [np.linalg.matrix_rank(np.hstack(samples[:count]), tol=1e-9) for count in range(1, len(samples) + 1)]
        assert int(found.span.dimension[head]) == ranks[-1]
        full = [number for number, rank in enumerate(ranks, 1) if rank == values[0].shape[1]]
        assert int(found.span.filled_at[head]) == (full[0] if full else 0)


@PROPERTY
@given(corpora(), st.lists(st.integers(0, 7), max_size=3))
def test_streamed_in_shards_equals_at_once(case: tuple[list[torch.Tensor], torch.Tensor], splits: list[int]) -> None:
    values, projection = case
    whole = subspace_of(values, projection)
    merged = no_samples(HEADS, values[0].shape[1])
    for begin, end in pairwise(sorted({0, len(values), *(min(split, len(values)) for split in splits)})):
        shard = subspace_of(values[begin:end], projection)
        merged = merged.merge(from_arrays(shard.arrays()))
    assert merged.samples == whole.samples == len(values)
    assert torch.allclose(merged.projector_sum, whole.projector_sum, atol=1e-10, rtol=0)
    assert torch.allclose(merged.soft.eigenvalues, whole.soft.eigenvalues, atol=1e-10, rtol=0)
    assert torch.equal(merged.span.origin, whole.span.origin)
    for head in range(HEADS):
        one, other = merged.basis(head), whole.basis(head)
        # What a direction of strength s is known to: rounding over s.
        least = float(whole.span.strength[head][whole.span.origin[head] > 0].min())
        assert torch.allclose(one @ one.mT, other @ other.mT, atol=max(1e-10, 1e-13 / least), rtol=0)


@PROPERTY
@given(corpora())
def test_one_sample_s_soft_subspace_is_its_projector(case: tuple[list[torch.Tensor], torch.Tensor]) -> None:
    values, projection = case
    found = shared_subspace(values[0], projection)
    for head in range(HEADS):
        (sample,) = transformed(values[:1], projection, head)
        assert np.allclose(found.mean_projector[head], reference.projector(sample), atol=1e-10)
        hard, soft = found.basis(head), found.basis(head, cut=0.5)
        assert torch.allclose(hard @ hard.mT, soft @ soft.mT, atol=1e-10)


@PROPERTY
@given(corpora())
def test_eigenvalues_are_shares_and_sum_to_the_mean_rank(case: tuple[list[torch.Tensor], torch.Tensor]) -> None:
    values, projection = case
    found = subspace_of(values, projection)
    eigenvalues = found.soft.eigenvalues
    assert float(eigenvalues.min()) >= 0 and float(eigenvalues.max()) <= 1
    assert bool((eigenvalues.diff(dim=1) <= 1e-12).all())
    for head in range(HEADS):
        ranks = [np.linalg.matrix_rank(sample, tol=1e-9) for sample in transformed(values, projection, head)]
        assert float(eigenvalues[head].sum()) == pytest.approx(np.mean(ranks), abs=1e-9)
        # A direction that any sample uses is in the hard R: both have the same dimension.
        assert int((eigenvalues[head] > 1e-6).sum()) <= int(found.span.dimension[head])


@PROPERTY
@given(corpora(), st.integers(0, 2**31))
def test_projection_on_r_keeps_every_sample_s_output(case: tuple[list[torch.Tensor], torch.Tensor], seed: int) -> None:
    values, projection = case
    found = subspace_of(values, projection)
    keys = values[0].shape[1]
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(keys, keys, generator=generator, dtype=torch.float64)
    causal = torch.ones(keys, keys, dtype=torch.bool).tril()
    masked: list[tuple[Any, torch.Tensor]] = [
        (None, logits.softmax(-1)),
        ("causal", logits.masked_fill(~causal, -torch.inf).softmax(-1)),
    ]
    for allowed, attention in masked:
        for head in range(HEADS):
            seen = effective_structural(attention, found.basis(head), allowed=allowed)
            if allowed:
                assert not bool(seen[~causal].any())
            for value in values:
                output = value[0] @ projection[head]
                assert torch.allclose(seen @ output, attention @ output, atol=1e-6)


def test_generic_values_fill_the_space_after_n_over_d_samples() -> None:
    generator = torch.Generator().manual_seed(0)
    projection = torch.randn(2, 4, 16, generator=generator)
    found = no_samples(2, 10)
    dimensions = []
    for _ in range(4):
        found = found.add(torch.randn(1, 10, 4, generator=generator), projection)
        dimensions.append(found.span.dimension.tolist())
    assert dimensions == [[4, 4], [8, 8], [10, 10], [10, 10]]
    assert found.span.filled_at.tolist() == [3, 3] and not bool(found.span.uncertain.any())


def test_float32_noise_is_not_taken_for_new_directions() -> None:
    """The same space again and again, each time with the rounding of a float32 product."""
    generator = torch.Generator().manual_seed(1)
    shared = torch.randn(1, 12, 4, generator=generator, dtype=torch.float64)
    projection = torch.randn(1, 4, 16, generator=generator)
    found = no_samples(1, 12)
    for _ in range(50):
        mixed = shared @ torch.randn(4, 4, generator=generator, dtype=torch.float64)
        found = found.add(mixed.float(), projection)
    assert int(found.span.dimension[0]) == 4


def test_what_a_sample_ignores() -> None:
    generator = torch.Generator().manual_seed(2)
    projection = torch.randn(1, 2, 8, generator=generator, dtype=torch.float64)
    values = [torch.randn(1, 7, 2, generator=generator, dtype=torch.float64) for _ in range(3)]
    found = no_samples(1, 7)
    for value in values:
        found = found.add(value, projection)
    attention = torch.rand(7, 7, generator=generator, dtype=torch.float64)
    basis, own = found.basis(0), own_basis(values[0], projection)[0]
    ignored = ignored_directions(attention, basis, own)
    assert (basis.shape[1], own.shape[1], ignored.dimension) == (6, 2, 4)
    # Inside R, orthogonal to col(T): another text's output hears it, this one's does not.
    assert torch.allclose(ignored.directions.mT @ (values[0][0] @ projection[0]), torch.zeros(4, 8).double(), atol=1e-9)
    assert torch.allclose(basis @ (basis.mT @ ignored.directions), ignored.directions, atol=1e-12)
    assert float((ignored.directions.mT @ (values[1][0] @ projection[0])).abs().max()) > 0.1
    part = attention @ ignored.directions
    assert ignored.attention == pytest.approx(float(part.square().sum() / attention.square().sum()), rel=1e-12)
    # Share by share: what of each direction the sample's own projector does not keep.
    outside = basis - torch.from_numpy(reference.projector((values[0][0] @ projection[0]).numpy())) @ basis
    assert torch.allclose(ignored.share, outside.square().sum(0), atol=1e-10)
    assert float(ignored.share.sum()) == pytest.approx(4, abs=1e-10)


def test_value_bias_can_be_left_out() -> None:
    generator = torch.Generator().manual_seed(3)
    plain = torch.randn(1, 6, 2, generator=generator, dtype=torch.float64)
    bias = torch.randn(1, 2, generator=generator, dtype=torch.float64)
    projection = torch.randn(1, 2, 8, generator=generator, dtype=torch.float64)
    found = shared_subspace(plain + bias[:, None], projection, value_bias=bias)
    assert torch.allclose(found.projector_sum, shared_subspace(plain, projection).projector_sum, atol=1e-10)


@pytest.mark.parametrize("samples", [2, 5, 40])
def test_values_that_share_nothing_have_the_spectrum_of_chance(samples: int) -> None:
    generator = torch.Generator().manual_seed(samples)
    found = no_samples(9, 24)
    for _ in range(samples):
        value = torch.randn(9, 24, 8, generator=generator, dtype=torch.float64)
        found = found.add(value, torch.eye(8, dtype=torch.float64).expand(9, 8, 8))
    chance = chance_spectrum(24, 8, samples)
    assert float(chance.sum()) == pytest.approx(8) and bool((chance.diff() <= 1e-12).all())
    assert torch.allclose(found.soft.eigenvalues.mean(0), chance, atol=0.05)


def test_refuses_other_lengths_and_bad_cuts() -> None:
    one = shared_subspace(torch.eye(4, 2)[None], torch.eye(2, 6)[None])
    with pytest.raises(InputError, match="another space"):
        one.add(torch.eye(5, 2)[None], torch.eye(2, 6)[None])
    with pytest.raises(InputError, match="expected the same heads and length"):
        one.merge(no_samples(1, 5))
    with pytest.raises(InputError, match="share of the samples"):
        one.basis(0, cut=2)
    with pytest.raises(InputError, match="some that fit"):
        chance_spectrum(3, 4, 1)
    with pytest.raises(InputError, match="head 3 was asked for"):
        one.basis(3)
    with pytest.raises(InputError, match="no sample has been added"):
        _ = no_samples(1, 3).mean_projector
    with pytest.raises(InputError, match="too"):
        from_arrays({"basis": np.zeros(1)})
    with pytest.raises(InputError, match="another length"):
        effective_structural(torch.eye(4), torch.eye(5))
    with pytest.raises(InputError, match="expected the same keys"):
        ignored_directions(torch.eye(4), torch.eye(4), torch.eye(5))
