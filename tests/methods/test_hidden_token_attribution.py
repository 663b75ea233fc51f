"""The method against hand-derived Jacobians, against jacrev, against itself: exact, estimated, interrupted."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import reference_attribution as reference
from identiscope.errors import InputError
from identiscope.linalg.jacobian.probes import orthogonal_probes
from identiscope.methods.mixtures.attribution.contributions import mean_relative_error
from identiscope.methods.mixtures.hidden_token_attribution import hidden_token_attribution

Replay = Callable[[Tensor], Sequence[Tensor]]


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def linear(tokens: int, width: int, layers: int = 2) -> tuple[Replay, Tensor]:
    """A replay that is one matrix on all coordinates for each layer, and its Jacobian [layer, out, d, in, d]."""
    matrices = random(layers, tokens, width, tokens, width)

    def replay(x: Tensor) -> tuple[Tensor, ...]:
        return (x, *(torch.einsum("joic,ic->jo", matrix, x) for matrix in matrices))

    return replay, matrices


def curved(tokens: int, width: int, seed: int = 3) -> Replay:
    mix, inner = random(tokens, tokens, seed=seed), random(width, width, seed=seed + 1)
    return lambda x: (x, torch.tanh(mix @ x @ inner), torch.sin(mix.T @ x) * (x @ inner))


@pytest.mark.parametrize("norm", ["frobenius", "spectral", "ones"])
def test_linear_replay_has_the_norms_of_its_matrices(norm: Any) -> None:
    replay, matrices = linear(tokens=4, width=3)
    found = hidden_token_attribution(replay, random(4, 3, seed=9), norm=norm)
    for layer, matrix in enumerate(matrices):
        norms, shares = reference.contributions(matrix.numpy(), norm)
        np.testing.assert_allclose(found.norm[layer].numpy(), norms, rtol=1e-12)
        np.testing.assert_allclose(found.contribution[layer].numpy(), shares, rtol=1e-12)
    assert found.complete and found.layers == (0, 1)
    assert not found.contribution_error.any() and not found.norm_error.any()


@pytest.mark.parametrize("norm", ["frobenius", "spectral", "ones"])
def test_toy_attention_has_the_jacobian_derived_by_hand(norm: Any) -> None:
    x, query, key, value = random(5, 4), random(3, 4, seed=1), random(3, 4, seed=2), random(6, 4, seed=3)

    def replay(inputs: Tensor) -> tuple[Tensor, ...]:
        logits = (inputs @ query.T) @ (inputs @ key.T).T / 3**0.5
        return inputs, torch.softmax(logits, -1) @ (inputs @ value.T)

    output, jacobian = reference.toy_attention(*(part.numpy() for part in (x, query, key, value)))
    np.testing.assert_allclose(replay(x)[1].numpy(), output, rtol=1e-12)
    found = hidden_token_attribution(replay, x, norm=norm)
    norms, shares = reference.contributions(jacobian, norm)
    np.testing.assert_allclose(found.norm[0].numpy(), norms, rtol=1e-10)
    np.testing.assert_allclose(found.contribution[0].numpy(), shares, rtol=1e-10)


def test_a_layer_is_a_block_counted_from_0() -> None:
    replay, x = curved(3, 4), random(3, 4)
    every, last = hidden_token_attribution(replay, x), hidden_token_attribution(replay, x, layers=[1])
    assert every.layers == (0, 1) and last.layers == (1,)
    assert torch.equal(last.norm[0], every.norm[1])
    alone = hidden_token_attribution(lambda inputs: (inputs, replay(inputs)[2]), x)
    torch.testing.assert_close(last.norm, alone.norm)


@settings(max_examples=25, deadline=None)
@given(tokens=st.integers(1, 5), width=st.integers(2, 6), seed=st.integers(0, 99))
def test_contributions_are_shares(tokens: int, width: int, seed: int) -> None:
    x = random(tokens, width, seed=seed)
    found = hidden_token_attribution(curved(tokens, width, seed), x)
    assert bool((found.contribution >= 0).all())
    torch.testing.assert_close(found.contribution.sum(1), torch.ones(2, tokens, dtype=torch.float64))


@settings(max_examples=25, deadline=None)
@given(width=st.integers(1, 40), cut=st.integers(0, 40), seed=st.integers(0, 10**6))
def test_probes_are_orthogonal_and_go_on_where_they_ended(width: int, cut: int, seed: int) -> None:
    like = torch.ones(1, dtype=torch.float64)
    cut = min(cut, width)
    every = orthogonal_probes(width, 0, width, seed=seed, like=like)
    torch.testing.assert_close(every @ every.T, width * torch.eye(width, dtype=torch.float64), rtol=0, atol=1e-10)
    parts = [orthogonal_probes(width, *part, seed=seed, like=like) for part in ((0, cut), (cut, width))]
    assert torch.equal(torch.cat(parts, 1), every)


@pytest.mark.parametrize("norm", ["frobenius", "ones"])
def test_estimate_ends_exact(norm: Any) -> None:
    replay, x = curved(5, 9), random(5, 9)
    exact = hidden_token_attribution(replay, x, norm=norm)
    found = hidden_token_attribution(replay, x, norm=norm, mode="estimate", probes=9)
    torch.testing.assert_close(found.norm, exact.norm, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(found.contribution, exact.contribution, rtol=1e-12, atol=1e-14)
    assert not found.contribution_error.any() and not found.norm_error.any()


def test_estimate_is_unbiased_in_the_square_and_its_error_shrinks() -> None:
    replay, _ = linear(tokens=3, width=24, layers=1)
    x = random(3, 24)
    exact = hidden_token_attribution(replay, x).norm
    few = [hidden_token_attribution(replay, x, mode="estimate", probes=4, seed=seed) for seed in range(300)]
    squares = torch.stack([found.norm.square() for found in few])
    error = squares.std(0) / 300**0.5
    assert bool(((squares.mean(0) - exact.square()).abs() < 4.5 * error).all())
    # The standard error that is told is the spread there is.
    told = torch.stack([found.norm_error.square() for found in few]).mean(0).sqrt()
    spread = torch.stack([found.norm for found in few]).std(0)
    assert float((told / spread).mean()) == pytest.approx(1, abs=0.15)
    many = hidden_token_attribution(replay, x, mode="estimate", probes=20)
    assert mean_relative_error(many) < 0.5 * mean_relative_error(few[0])


def test_estimate_goes_on_from_where_it_stopped() -> None:
    replay, x = curved(12, 40), random(12, 40)
    straight = hidden_token_attribution(replay, x, mode="estimate", probes=24, seed=5)
    first = hidden_token_attribution(replay, x, mode="estimate", probes=8, seed=5)
    on = hidden_token_attribution(replay, x, mode="estimate", probes=24, seed=5, resume=first)
    assert first.probes == 8 and on.probes == 24
    torch.testing.assert_close(on.contribution, straight.contribution, rtol=1e-13, atol=0)
    torch.testing.assert_close(on.contribution_error, straight.contribution_error, rtol=1e-10, atol=0)
    for same, other in zip(on.interval(), straight.interval(), strict=True):
        torch.testing.assert_close(same, other, rtol=1e-10, atol=0)


@pytest.mark.parametrize("mode", ["exact", "estimate"])
def test_only_the_same_replay_embeddings_and_options_are_resumed(mode: Any) -> None:
    replay, x = curved(6, 10), random(6, 10)
    options: dict[str, Any] = {"mode": mode} | ({"probes": 4} if mode == "estimate" else {})
    found = hidden_token_attribution(replay, x, **options)
    assert torch.equal(hidden_token_attribution(replay, x, resume=found, **options).norm, found.norm)
    nearly = x.clone()
    nearly[3] *= 1.01
    for function, inputs in ((replay, nearly), (curved(6, 10, seed=4), x), (lambda y: (y, *replay(1.1 * y)[1:]), x)):
        with pytest.raises(InputError, match="not of this replay and these embeddings"):
            hidden_token_attribution(function, inputs, resume=found, **options)
    with pytest.raises(InputError, match=r"another seed \(there: 0, now: 1\)"):
        hidden_token_attribution(replay, x, resume=found, seed=1, **options)
    with pytest.raises(InputError, match=r"another norm \(there: frobenius, now: ones\)"):
        hidden_token_attribution(replay, x, resume=found, norm="ones", **options)


def test_estimate_stops_at_the_tolerance_or_when_time_is_up() -> None:
    replay, x = linear(12, 64)[0], random(12, 64)
    loose = hidden_token_attribution(replay, x, mode="estimate", tolerance=0.2)
    tight = hidden_token_attribution(replay, x, mode="estimate", tolerance=0.01)
    assert mean_relative_error(loose) <= 0.2 and mean_relative_error(tight) <= 0.01
    assert loose.probes < tight.probes <= 64
    soon = hidden_token_attribution(replay, x, mode="estimate", probes=64, seconds=1e-9)
    assert soon.probes == 8


@pytest.mark.parametrize("mode", ["exact", "estimate"])
def test_an_interrupt_keeps_what_is_done(mode: Any) -> None:
    replay, x = curved(14, 20), random(14, 20)
    options: dict[str, Any] = {"mode": mode, "memory": 40_000} | ({"probes": 20} if mode == "estimate" else {})
    seen: list[tuple[int, int]] = []

    def stop(done: int, total: int) -> None:
        seen.append((done, total))
        if done * 2 >= total:
            raise KeyboardInterrupt

    part = hidden_token_attribution(replay, x, progress=stop, **options)
    assert not part.complete and len(seen) > 1
    assert seen == sorted(seen) and all(total == 14 * 20 for _, total in seen)
    whole = hidden_token_attribution(replay, x, **options)
    reached = part.followed > 0
    assert bool(reached.any())
    if mode == "exact":
        assert not bool(reached.all())
        assert bool(part.norm[:, ~reached].isnan().all())
        assert torch.equal(part.norm[:, reached], whole.norm[:, reached])
    on = hidden_token_attribution(replay, x, resume=part, **options)
    assert on.complete
    torch.testing.assert_close(on.norm, whole.norm, rtol=1e-13, atol=0)


def test_chunks_do_not_change_the_result() -> None:
    replay, x = curved(7, 12), random(7, 12)
    whole = hidden_token_attribution(replay, x)
    for memory in (12_000, 30_000, 100_000):
        torch.testing.assert_close(
            hidden_token_attribution(replay, x, memory=memory).norm, whole.norm, rtol=1e-13, atol=1e-15
        )
    with pytest.raises(InputError, match="allow more memory"):
        hidden_token_attribution(replay, x, memory=100)


def test_intervals_cover_and_are_shares() -> None:
    replay, x = linear(12, 40)[0], random(12, 40)
    exact = hidden_token_attribution(replay, x).contribution
    inside = []
    for seed in range(40):
        found = hidden_token_attribution(replay, x, mode="estimate", probes=10, seed=seed)
        low, high = found.interval()
        assert bool((low >= 0).all()) and bool((high <= 1).all())
        inside.append(((low <= exact) & (exact <= high)).double().mean())
        narrow = found.interval(0.5)
        assert bool((narrow[0] >= low).all()) and bool((narrow[1] <= high).all())
    assert 0.9 <= float(torch.stack(inside).mean()) <= 0.99


def test_what_inputs_have_in_common_cancels() -> None:
    """Blocks that differ in size alone: the same probes for every input give their shares without any error."""
    mix, inner = random(4, 4), random(15, 15, seed=1)
    x = random(4, 15, seed=2)
    exact = hidden_token_attribution(lambda x: (x, mix @ x @ inner), x)
    found = hidden_token_attribution(lambda x: (x, mix @ x @ inner), x, mode="estimate", probes=3)
    torch.testing.assert_close(found.contribution, exact.contribution, rtol=1e-12, atol=0)
    assert float(found.contribution_error.max()) < 1e-12 < float(found.norm_error.min())
    assert not torch.allclose(found.norm, exact.norm, rtol=1e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm": "nuclear"}, "there are frobenius, spectral, ones"),
        ({"mode": "guess"}, "there are exact and estimate"),
        ({"probes": 4}, "are for mode='estimate'"),
        ({"mode": "estimate", "norm": "spectral"}, "do not estimate the spectral norm"),
        ({"mode": "estimate", "probes": 1}, "at least 2"),
        ({"mode": "estimate", "tolerance": 0.0}, "positive relative error"),
        ({"memory": 0}, "number of bytes"),
        ({"layers": [3]}, "there are 0"),
        ({"layers": []}, "there are 0"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        hidden_token_attribution(curved(3, 4), random(3, 4), **options)


def test_bad_inputs_are_named() -> None:
    with pytest.raises(InputError, match=r"\[token, model\]"):
        hidden_token_attribution(curved(3, 4), random(1, 3, 4))
    with pytest.raises(InputError, match="expected"):
        hidden_token_attribution(lambda x: (x, x[None]), random(3, 4))
    first = hidden_token_attribution(curved(3, 4), random(3, 4), mode="estimate", probes=2)
    with pytest.raises(InputError, match="to resume"):
        hidden_token_attribution(curved(3, 4), random(3, 4), resume=first)
