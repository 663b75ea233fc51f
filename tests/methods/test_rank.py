"""Ranks, null spaces and their bounds, in every precision."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import identiscope
import reference
from identiscope.errors import InputError
from identiscope.methods.freedom.null_space_basis import null_space_basis
from identiscope.methods.heads.attention_rank import attention_rank
from identiscope.methods.heads.layer_rank import layer_rank
from identiscope.methods.heads.row_rank import row_rank

EPSILON = {torch.float64: 2.0**-52, torch.float32: 2.0**-23, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}


def low_rank_values(seed, keys, channels, rank, width=48):
    """Embeddings and value weights of an exact rank, well conditioned so that every precision resolves it."""
    generator = torch.Generator().manual_seed(seed)
    embedding = torch.randn(keys, width, generator=generator, dtype=torch.float64)
    first, second = (torch.randn(n, n, generator=generator, dtype=torch.float64) for n in (width, channels))
    return embedding, torch.linalg.qr(first).Q[:, :rank] @ torch.linalg.qr(second).Q[:rank]


@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 8), st.integers(1, 10), st.booleans())
@settings(max_examples=80, deadline=None, derandomize=True)
def test_dimensions_and_bounds(seed, keys, channels, model, float32):
    generator = np.random.default_rng(seed)
    value, projection = generator.standard_normal((1, keys, channels)), generator.standard_normal((2, channels, model))
    found = attention_rank(
        torch.from_numpy(value), torch.from_numpy(projection), precision=torch.float32 if float32 else torch.float64
    )
    for head in range(2):
        transformed = value[0] @ projection[head]
        rank = reference.rank_of(transformed, 1e-9)
        assert int(found.spectrum.rank[head]) == rank
        assert int(found.null_dimension[head]) == keys - rank
        assert int(found.simplex_null_dimension[head]) == reference.left_null_basis(
            reference.with_ones(transformed)
        ).shape[1]  # fmt: skip
        values = np.linalg.svd(transformed, compute_uv=False)[: min(keys, channels)]
        ours = found.spectrum.singular_values[head].numpy()[: len(values)]
        assert np.abs(ours - values).max() < 1e-6 * values[0]
        assert np.abs(ours - values)[:rank].max() < 1e-10 * values[0]
    assert int(found.spectrum.rank.max()) <= found.rank_bound == min(keys, channels, model)
    assert int(found.null_dimension.min()) >= found.null_dimension_bound == max(keys - min(channels, model), 0)
    assert int(found.simplex_null_dimension.min()) >= found.simplex_null_dimension_bound


@pytest.mark.parametrize("precision", list(EPSILON))
@pytest.mark.parametrize("keys", [60, 150, 600])
@pytest.mark.parametrize("rank", [1, 7, 16])
def test_rank_survives_the_noise_of_the_pass(precision, keys, rank):
    """Values of known rank, computed in each precision as a model would, then handed over in float64."""
    embedding, weight = low_rank_values(0, keys, 16, rank)
    if precision in (torch.float16, torch.bfloat16):
        # Half-precision products are summed in float32 and rounded once; written out, since not every
        # processor multiplies in half precision.
        value = (embedding.to(precision).float() @ weight.float()).to(precision).double()
    else:
        value = (embedding.to(precision) @ weight.to(precision)).double()
    projection = torch.linalg.qr(torch.randn(48, 16, generator=torch.Generator().manual_seed(1)).double()).Q.mT[None]
    found = attention_rank(value[None], projection, precision=precision)
    assert found.spectrum.rank.tolist() == [min(rank, keys)]
    assert found.null_dimension.tolist() == [keys - min(rank, keys)]


@pytest.mark.parametrize("precision", list(EPSILON))
def test_near_duplicate_tokens(precision):
    """Tokens that differ by less than the precision resolves add no rank; ones that differ by more do."""
    generator = torch.Generator().manual_seed(3)
    few = torch.randn(3, 8, generator=generator, dtype=torch.float64)
    noise = torch.randn(90, 8, generator=generator, dtype=torch.float64)
    tokens = few.repeat(30, 1)
    projection = torch.randn(1, 8, 64, generator=generator, dtype=torch.float64)
    below = attention_rank((tokens + 0.1 * EPSILON[precision] * noise)[None], projection, precision=precision)
    assert below.spectrum.rank.tolist() == [3]
    assert below.simplex_spectrum.rank.tolist() == [3]
    size = (100 if precision in (torch.float16, torch.bfloat16) else 5000) * EPSILON[precision]
    above = attention_rank((tokens + size * noise)[None], projection, precision=precision)
    assert above.spectrum.rank.tolist() == [8]


def test_exact_duplicates_and_equal_tokens():
    found = attention_rank(torch.ones(1, 9, 4) * torch.tensor([1.0, -3.0, 0.1, 7.0]), torch.eye(4, 12)[None])
    assert found.spectrum.rank.tolist() == [1]
    # The row sum says nothing new when all tokens are equal: 1 is already in the span.
    assert found.simplex_spectrum.rank.tolist() == [1]
    assert found.simplex_null_dimension.tolist() == [8]
    single = attention_rank(torch.ones(1, 1, 4), torch.eye(4, 12)[None])
    assert single.null_dimension.tolist() == single.simplex_null_dimension.tolist() == [0]


def test_identifiable_on_the_simplex_with_one_key_more_than_channels():
    value = torch.randn(1, 9, 8, generator=torch.Generator().manual_seed(0))
    found = attention_rank(value, torch.eye(8, 20)[None])
    assert found.null_dimension.tolist() == [1]
    assert found.simplex_null_dimension.tolist() == [0]


@pytest.mark.parametrize("size", [0.1, 1.0, 30.0])
def test_value_bias_moves_the_null_space_of_t_but_not_that_of_t_and_one(size):
    generator = torch.Generator().manual_seed(5)
    value = torch.randn(1, 40, 6, generator=generator, dtype=torch.float64)
    value[..., 5] = value[..., 4]
    projection = torch.randn(1, 6, 20, generator=generator, dtype=torch.float64)
    bias = size * torch.randn(1, 6, generator=generator, dtype=torch.float64)
    plain, biased = value, value + bias[:, None]
    options: dict[str, Any] = {"precision": torch.float32}
    assert attention_rank(plain, projection, **options).spectrum.rank.tolist() == [5]
    with_bias = attention_rank(biased, projection, **options)
    assert with_bias.spectrum.rank.tolist() == [6]
    assert attention_rank(biased, projection, value_bias=bias, **options).spectrum.rank.tolist() == [5]
    assert with_bias.simplex_null_dimension.tolist() == [34]
    assert attention_rank(plain, projection, **options).simplex_null_dimension.tolist() == [34]
    bases = [null_space_basis(x, projection, head=0, precision=torch.float32) for x in (plain, biased)]
    assert float((bases[0].mT @ bases[0] - bases[1].mT @ bases[1]).abs().max()) < 1e-11


def test_the_rounding_of_a_subtracted_bias_stays_and_is_not_rank():
    """Values of rank 5 with a bias a thousand times larger, rounded to float32 as a pass would."""
    generator = torch.Generator().manual_seed(11)
    value = torch.randn(1, 40, 6, generator=generator, dtype=torch.float64)
    value[..., 5] = value[..., 4]
    bias = 1000 * torch.randn(1, 6, generator=generator, dtype=torch.float64)
    projection = torch.randn(1, 6, 20, generator=generator, dtype=torch.float64)
    produced = (value + bias[:, None]).float()
    assert attention_rank(produced, projection, value_bias=bias).spectrum.rank.tolist() == [5]
    assert row_rank(produced, projection, value_bias=bias).rank[0].tolist() == [1, 2, 3, 4] + [5] * 36


def test_no_gap_is_said():
    value = torch.diag(torch.logspace(0, -9, 30, dtype=torch.float64))[None].repeat(1, 4, 1)
    projection = torch.eye(30, 120, dtype=torch.float64)[None]
    with pytest.warns(UserWarning, match="uncertain"):
        found = attention_rank(value, projection, precision=torch.float32)
    assert bool(found.spectrum.uncertain[0])
    assert float(found.spectrum.gap[0]) < 3


def test_the_warning_names_layer_and_heads_and_the_line_that_asked():
    clear = torch.diag(torch.ones(30, dtype=torch.float64)).repeat(4, 1)
    unclear = torch.diag(torch.logspace(0, -9, 30, dtype=torch.float64)).repeat(4, 1)
    value, projection = torch.stack([clear, unclear]), torch.eye(30, 120, dtype=torch.float64).repeat(2, 1, 1)
    with pytest.warns(UserWarning, match=r"heads \[7\] of layer 3 is uncertain.*`gap` is below 3") as said:
        attention_rank(value, projection, precision=torch.float32, layer=3, heads=[5, 7])
    assert [warning.filename for warning in said] == [__file__]
    # From however deep inside the package it comes.
    attention = torch.full((1, 2, 120, 120), 1 / 120)
    trace = identiscope.from_arrays(attention, value[None].float(), projection=projection[None].float())
    with pytest.warns(UserWarning, match=r"heads \[1\].* is uncertain") as said:
        result = identiscope.attention_identifiability(trace)
    assert {warning.filename for warning in said} == {__file__}
    assert {"gap", "singular_values", "cutoff"} <= set(result.data_vars)


def test_the_basis_is_public_and_taken_from_a_trace(minilm):
    trace = identiscope.trace(minilm, "One, two, three. " * 12)
    site = trace.site(2)
    basis = torch.from_numpy(identiscope.null_space_basis(trace, 2, 3).null_space_basis.values)
    result = identiscope.attention_identifiability(trace, layers=[2])
    assert len(basis) == int(result["simplex_null_dimension"].sel(layer=2, head=3)[0]) > 0
    output = site.value_of(3).double() @ site.projection[3].double()
    assert float((basis @ output).abs().max() / output.abs().max()) < 1e-5
    assert float(basis.sum(1).abs().max()) < 1e-5


def test_projection_that_loses_directions():
    generator = torch.Generator().manual_seed(6)
    value = torch.randn(1, 30, 6, generator=generator)
    projection = torch.randn(2, 6, 40, generator=generator)
    projection[1, 0] = projection[1, 1] + projection[1, 2]
    assert attention_rank(value, projection).spectrum.rank.tolist() == [6, 5]


def test_a_projection_that_hides_the_strongest_values():
    """T may be far smaller than V and H: the Gram matrix of V then says nothing, and is not used."""
    generator = torch.Generator().manual_seed(7)
    value = torch.randn(1, 100, 4, generator=generator, dtype=torch.float64)
    value[..., 0] *= 1e7
    projection = torch.randn(1, 4, 100, generator=generator, dtype=torch.float64)
    projection[:, 0] = 0
    # Turned, so that the strong direction cancels in the product and not term by term.
    turn = torch.linalg.qr(torch.randn(4, 4, generator=generator, dtype=torch.float64)).Q
    value, projection = value @ turn, turn.mT @ projection
    found = attention_rank(value, projection, precision=torch.float32).spectrum
    expected = np.linalg.svd((value[0] @ projection[0]).numpy(), compute_uv=False)[:3]
    assert found.rank.tolist() == [3]
    assert np.abs(found.singular_values[0, :3].numpy() / expected - 1).max() < 1e-6


def test_row_ranks_follow_the_prefix():
    generator = torch.Generator().manual_seed(8)
    value = torch.randn(1, 20, 4, generator=generator)
    value[0, 3] = value[0, 1]
    found = row_rank(value, torch.randn(2, 4, 16, generator=generator))
    for head in range(2):
        assert found.rank[head].tolist() == [1, 2, 3, 3] + [4] * 16
        assert found.null_dimension[head].tolist() == [0, 0, 0, 1, *range(1, 17)]
        assert found.simplex_null_dimension[head].tolist() == [0, 0, 0, 1, 1, *range(1, 16)]
    assert found.null_dimension_bound.tolist() == [0, 0, 0, 0, *range(1, 17)]


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 4), st.integers(1, 3), st.integers(1, 14))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_layer_rank_is_that_of_the_stacked_heads(seed, keys, channels, heads, model):
    generator = np.random.default_rng(seed)
    value, projection = (
        generator.standard_normal((1, keys, channels)),
        generator.standard_normal((heads, channels, model)),
    )
    found = layer_rank(torch.from_numpy(value), torch.from_numpy(projection))
    parts = [value[0] @ projection[head] for head in range(heads)]
    stacked = np.concatenate(parts)
    ones = np.kron(np.eye(heads), np.ones((keys, 1)))
    assert found.null_dimension == reference.left_null_basis(stacked).shape[1]
    assert found.simplex_null_dimension == reference.left_null_basis(np.hstack([stacked, ones])).shape[1]
    assert found.separate_null_dimension == sum(reference.left_null_basis(part).shape[1] for part in parts)
    assert found.null_dimension >= max(found.null_dimension_bound, found.separate_null_dimension)
    assert found.simplex_null_dimension >= max(
        found.simplex_null_dimension_bound, found.separate_simplex_null_dimension
    )
    values = np.linalg.svd(stacked, compute_uv=False)
    ours = found.spectrum.singular_values[0].numpy()
    shared = min(len(values), len(ours))
    assert np.abs(ours[:shared] - values[:shared]).max() < 1e-10 * values[0]


@pytest.mark.parametrize("simplex", [False, True])
def test_basis_spans_the_null_space(simplex):
    generator = np.random.default_rng(9)
    value, projection = generator.standard_normal((1, 15, 4)), generator.standard_normal((2, 4, 9))
    tensors = torch.from_numpy(value), torch.from_numpy(projection)
    basis = null_space_basis(*tensors, head=1, simplex=simplex).numpy()
    own = value[0] @ projection[1]
    expected = reference.left_null_basis(reference.with_ones(own) if simplex else own)
    assert np.abs(basis.T @ basis - expected @ expected.T).max() < 1e-12
    row = null_space_basis(*tensors, head=1, query=8, allowed="causal", simplex=simplex).numpy()
    assert row.shape == (9 - 4 - simplex, 15)
    assert (row[:, 9:] == 0).all()
    assert np.abs(row @ own).max() < 1e-12
    with pytest.raises(InputError, match="query="):
        null_space_basis(*tensors, head=1, allowed="causal")
    with pytest.raises(InputError, match="head 2"):
        null_space_basis(*tensors, head=2)
