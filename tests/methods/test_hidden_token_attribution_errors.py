"""Errors of estimates: against the formulas written out, and against what intervals must do on models known exactly."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

import identiscope
import reference_attribution as reference
from identiscope.capture.blocks import find_blocks
from identiscope.linalg.jacobian.probes import orthogonal_probes
from identiscope.methods.mixtures.attribution.contributions import interval_factor
from identiscope.methods.mixtures.attribution.error import log_errors
from identiscope.methods.mixtures.attribution.estimate import MOST_GROUPS, Estimate, add_round, empty_estimate
from identiscope.methods.mixtures.attribution.summaries import self_contribution
from identiscope.methods.mixtures.hidden_token_attribution import hidden_token_attribution

OUTPUTS, INPUTS, WIDTH = 3, 4, 40


def responses(probes: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Squared responses [layer, output, input, probe] of two layers, and of an anchor that they follow in part."""
    generator = torch.Generator().manual_seed(seed)
    shared, *own = torch.rand(4, OUTPUTS, INPUTS, probes, generator=generator, dtype=torch.float64) + 0.2
    return torch.stack([shared * own[0], shared * own[1].square()]), shared * own[2]


def in_rounds(probes: int, seed: int, anchored: bool, rounds: list[int]) -> tuple[Estimate, Any, Any]:
    seen, there = responses(probes, seed)
    anchor = there.mean(-1) * 1.1 if anchored else None
    estimate = empty_estimate((2, OUTPUTS, INPUTS), WIDTH, anchor, seen.dtype)
    for part, other in zip(seen.split(rounds, -1), there.split(rounds, -1), strict=True):
        estimate = add_round(estimate, part, other if anchored else None)
    return estimate, seen, there


@settings(max_examples=25, deadline=None)
@given(probes=st.integers(4, 12), seed=st.integers(0, 999), anchored=st.booleans())
def test_errors_are_the_formulas_written_out(probes: int, seed: int, anchored: bool) -> None:
    estimate, seen, there = in_rounds(probes, seed, anchored, [probes])
    norms = estimate.norms
    contribution = norms / norms.sum(-1, keepdim=True)
    found = log_errors(estimate, contribution)
    for layer in range(2):
        slope = reference.pooled_slopes(seen[layer].numpy(), there.numpy()) if anchored else None
        if anchored:
            assert slope is not None
            np.testing.assert_allclose(estimate.slope[layer], slope, rtol=1e-8)
        expected = reference.log_errors(
            seen[layer].numpy(), [1] * probes, contribution[layer].numpy(), slope,
            there.numpy() if anchored else None, there.mean(-1).numpy() * 1.1 if anchored else None, WIDTH,
        )  # fmt: skip
        for (error, freedom), ours, own in zip(
            expected,
            (found.norm[layer], found.contribution[layer]),
            (found.norm_freedom[layer], found.contribution_freedom[layer]),
            strict=True,
        ):
            np.testing.assert_allclose(ours, error, rtol=1e-8)
            assert float(own) == pytest.approx(freedom, rel=1e-8)


@pytest.mark.parametrize("anchored", [False, True])
def test_many_probes_are_kept_in_few_groups(anchored: bool) -> None:
    rounds = [8, 8, 8, 8, 6]
    estimate, seen, there = in_rounds(38, 3, anchored, rounds)
    assert len(estimate.sizes) <= MOST_GROUPS and int(estimate.sizes.sum()) == estimate.probes == 38
    torch.testing.assert_close(estimate.responses, seen.sum(-1), rtol=1e-12, atol=0)
    begins = [0, *estimate.sizes.cumsum(0).tolist()]
    for place, (begin, end) in enumerate(pairwise(begins)):
        torch.testing.assert_close(estimate.grouped[..., place], seen[..., begin:end].sum(-1), rtol=1e-12, atol=0)
        if estimate.anchor_grouped is not None:
            torch.testing.assert_close(
                estimate.anchor_grouped[..., place], there[..., begin:end].sum(-1), rtol=1e-12, atol=0
            )
    norms = estimate.norms
    contribution = norms / norms.sum(-1, keepdim=True)
    found = log_errors(estimate, contribution)
    for layer in range(2):
        expected = reference.log_errors(
            estimate.grouped[layer].numpy(), estimate.sizes.tolist(), contribution[layer].numpy(),
            estimate.slope[layer].numpy(),
            None if estimate.anchor_grouped is None else estimate.anchor_grouped.numpy(),
            there.mean(-1).numpy() * 1.1 if anchored else None, WIDTH,
        )  # fmt: skip
        np.testing.assert_allclose(found.norm[layer], expected[0][0], rtol=1e-8)
        np.testing.assert_allclose(found.contribution[layer], expected[1][0], rtol=1e-8)


def test_intervals_of_an_anchored_estimate_cover_as_often_as_they_say() -> None:
    """A random BERT of 12 layers, known exactly, with four probes; benchmarks/attribution_coverage.py has more."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=99, hidden_size=48, num_hidden_layers=12, num_attention_heads=4, intermediate_size=96,
        initializer_range=0.08,
    )  # fmt: skip
    trace = identiscope.trace(transformers.BertModel(config, add_pooling_layer=False).eval(), [5, 17, 42, 8, 63, 23])
    blocks, x = find_blocks(trace).blocks, trace.embeddings
    exact = hidden_token_attribution(trace.replay, x, blocks=blocks)
    inside = []
    for seed in range(60):
        found = hidden_token_attribution(trace.replay, x, blocks=blocks, mode="estimate", probes=4, seed=seed)
        assert found.estimate is not None and found.estimate.anchor is not None
        pairs = (found.norm_interval(), exact.norm), (found.interval(), exact.contribution)
        inside.append([float(((low <= truth) & (truth <= high))[1:].double().mean()) for (low, high), truth in pairs])
    # Cells of one seed share their probes: the error is that between seeds.
    mean, error = np.mean(inside, 0), np.std(inside, 0, ddof=1) / len(inside) ** 0.5
    assert (error < 0.015).all()
    assert (mean > 0.94 - 2 * error).all() and (mean < 0.96 + 2 * error).all(), (mean, error)


def test_an_interval_is_symmetric_in_the_logarithm_and_a_point_where_all_is_known() -> None:
    matrix = torch.randn(2, 6, 3, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def replay(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x, torch.einsum("joic,ic->jo", matrix, x)

    few = hidden_token_attribution(replay, torch.zeros(3, 6, dtype=torch.float64), mode="estimate", probes=4)
    for values, (low, high) in ((few.norm, few.norm_interval()), (few.contribution, few.interval())):
        inside = high < 1
        torch.testing.assert_close((low * high).sqrt()[inside], values[inside], rtol=1e-12, atol=0)
        assert bool((low < values).all()) and bool((values < high).all())
    factor = interval_factor(0.95, few.norm_freedom.numpy())[:, None, None]
    reach = (few.norm_interval()[1] / few.norm).log().numpy()
    np.testing.assert_allclose(reach, factor * (few.norm_error / few.norm).numpy(), rtol=1e-12)
    every = hidden_token_attribution(replay, torch.zeros(3, 6, dtype=torch.float64), mode="estimate", probes=6)
    assert all(torch.equal(bound, every.contribution) for bound in every.interval())


def test_one_probe_that_has_it_all_has_an_error_that_says_so() -> None:
    """1ᵀJ·v of a column that only one probe meets: the rest is zero, and so would be what is left without it."""
    width = 8
    probes = orthogonal_probes(width, 0, width, seed=0, like=torch.ones(1, dtype=torch.float64))
    row = probes[:, 0] / width

    def replay(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x, torch.outer(x @ row, torch.ones(2, dtype=torch.float64))

    found = hidden_token_attribution(replay, torch.zeros(2, width, dtype=torch.float64), mode="estimate", probes=4)
    own = found.norm_error.diagonal(dim1=1, dim2=2) / found.norm.diagonal(dim1=1, dim2=2)
    assert bool(torch.isfinite(own).all()) and bool((own > 0.4).all())


def test_noise_in_what_is_largest_is_told() -> None:
    """Tokens that are their own largest contributor by little: noise makes some of them not, and says how many."""
    generator = np.random.default_rng(0)
    texts, tokens, spread = 60, 12, 0.06
    logs = generator.normal(0, 0.15, (texts, 1, tokens, tokens))
    places = np.arange(tokens)
    others = logs.copy()
    others[..., places, places] = -np.inf
    logs[..., places, places] = others.max(2) + generator.exponential(0.1, (texts, 1, tokens)) - 0.02
    truth, counted, noise = [], [], []
    for _ in range(5):
        noisy = logs + generator.normal(0, spread, logs.shape)
        shares, seen = (np.exp(one) / np.exp(one).sum(2, keepdims=True) for one in (logs, noisy))
        found = self_contribution(list(seen), errors=list(seen * spread))
        truth.append(self_contribution(list(shares)).not_largest[0])
        counted.append(found.not_largest[0])
        noise.append(found.not_largest_noise[0])
    off = np.mean(counted) - np.mean(truth)
    assert off > 0.05  # it is biased upward
    assert 0.4 * off < np.mean(noise) < 1.3 * off
    exact = self_contribution(list(shares), errors=[np.zeros_like(one) for one in shares])
    assert exact.not_largest_noise[0] == 0 and exact.not_largest[0] == truth[-1]
    assert (self_contribution(list(shares)).not_largest_noise == 0).all()


def test_what_noise_adds_is_what_adding_it_again_adds() -> None:
    """The chances, found by quadrature, against drawing the noise many times over."""
    generator = np.random.default_rng(1)
    shares = generator.dirichlet(np.ones(5), 5).T[None]
    error = shares * generator.uniform(0.05, 0.6, shares.shape)
    error[0, 2] = 0  # one of the inputs is known
    found = self_contribution([shares], errors=[error])
    drawn = [
        self_contribution([shares * np.exp(error / shares * generator.normal(size=shares.shape))]).not_largest[0]
        for _ in range(4000)
    ]
    assert found.not_largest[0] + found.not_largest_noise[0] == pytest.approx(np.mean(drawn), abs=0.01)
