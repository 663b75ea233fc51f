"""Probes: gradients and steps against the papers, all probes together against one alone, and the direct fits."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import reference_tokens as reference
from identiscope.corpus.splits import split_sentences
from identiscope.errors import InputError
from identiscope.linalg.rank.least_squares import cosine_fit, gram, least_squares
from identiscope.methods.tokens import training as token_training
from identiscope.methods.tokens.direct_fit import fit_linear_directly
from identiscope.methods.tokens.identification import random_guess, score
from identiscope.methods.tokens.neighbours import Metric
from identiscope.methods.tokens.pairs import Pairs
from identiscope.methods.tokens.probes import (
    Kind,
    Probe,
    ProbeSet,
    Recipe,
    adam_step,
    gradients,
    predict,
    start_weights,
    zero_moments,
)
from identiscope.methods.tokens.sentences import Sentences, Split
from identiscope.methods.tokens.training import fit_probes

WIDTH = 24


def corpus(noise: float = 0.0, sentences: int = 120, seed: int = 0, layers: int = 1) -> Pairs:
    """Random inputs x of sentences of 2 to 12 tokens, and hidden states x·M + noise with M orthogonal."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, 13, (sentences,), generator=generator)
    inputs = torch.randn(int(lengths.sum()), WIDTH, generator=generator)
    states = []
    for _ in range(layers):
        rotation = torch.linalg.qr(torch.randn(WIDTH, WIDTH, generator=generator))[0]
        states.append(inputs @ rotation + noise * torch.randn(inputs.shape, generator=generator))
    return Pairs(states, [inputs], Sentences(lengths))


def rate_of(probes: ProbeSet, pairs: Pairs, splits: list[Split]) -> float:
    return score(lambda fold: probes.probe(0, fold), pairs.states[0], pairs, 0, [split.test for split in splits]).rate


@pytest.mark.parametrize("kind", ["linear", "mlp"])
@pytest.mark.parametrize("loss", ["cosine", "l2"])
def test_gradients_match_differences_of_the_loss(kind: Kind, loss: Metric) -> None:
    draw = np.random.default_rng(0)
    recipe = Recipe(hidden_width=3)
    many = [start_weights(kind, 4, 5, recipe, seed) for seed in (0, 1)]
    stacked = {name: torch.stack([one[name] for one in many]).double() for name in many[0]}
    if kind == "mlp":
        stacked["bias_in"] += 0.1
        stacked["bias_out"] -= 0.2
    x, y = draw.standard_normal((2, 6, 4)), draw.standard_normal((2, 6, 5))
    targets = torch.tensor(y)
    if loss == "cosine":
        targets = torch.nn.functional.normalize(targets, dim=-1)
    found = gradients(kind, loss, stacked, torch.tensor(x), targets)
    for index in range(2):
        one = {name: weight[index].numpy().copy() for name, weight in stacked.items()}
        expected = reference.numerical_gradient(one, x[index], y[index], loss)
        for name, gradient in expected.items():
            np.testing.assert_allclose(found[name][index].numpy(), gradient, atol=1e-7)
        np.testing.assert_allclose(
            predict(kind, {name: weight[index] for name, weight in stacked.items()}, torch.tensor(x[index])),
            reference.predict(one, x[index]),
            atol=1e-12,
        )


def test_adam_matches_its_paper_with_a_rate_for_each_probe() -> None:
    draw = np.random.default_rng(0)
    weight, slopes = draw.standard_normal((2, 3, 4)), draw.standard_normal((5, 2, 3, 4))
    rates = [0.1, 0.003]
    moved = {"weight": torch.tensor(weight)}
    moments = zero_moments(moved)
    for step, slope in enumerate(slopes, 1):
        column = torch.tensor(rates, dtype=torch.float64)[:, None, None]
        adam_step(moved, {"weight": torch.tensor(slope)}, moments, column, step, Recipe())
    for index, rate in enumerate(rates):
        np.testing.assert_allclose(
            moved["weight"][index].numpy(), reference.adam(weight[index], slopes[:, index], rate), rtol=1e-10
        )


def test_glorot_bounds() -> None:
    weight = start_weights("linear", 30, 20, Recipe(), 0)["weight"]
    bound = (6 / 50) ** 0.5
    assert float(weight.abs().max()) <= bound and float(weight.abs().max()) > 0.95 * bound
    assert start_weights("mlp", 30, 20, Recipe(), 0)["weight_in"].shape == (30, 1000)


@pytest.mark.parametrize("loss", ["cosine", "l2"])
def test_a_rotation_is_undone_and_the_naive_probe_falls_to_chance(loss: Metric) -> None:
    pairs = corpus()
    splits = split_sentences(pairs.sentences.count, folds=2)
    assert rate_of(fit_linear_directly(pairs, splits, loss=loss), pairs, splits) == 1.0
    recipe = Recipe(learning_rates=(1e-2,), batch_size=64)
    assert rate_of(fit_probes(pairs, splits, loss=loss, recipe=recipe), pairs, splits) == 1.0
    naive = score(lambda _: Probe("naive", loss, {}), pairs.states[0], pairs, 0, [split.test for split in splits])
    guess = random_guess(pairs.targets[0], pairs.sentences.lengths)
    assert naive.interval.low - 0.05 < guess < naive.interval.high + 0.05


@pytest.mark.parametrize("loss", ["cosine", "l2"])
def test_rates_follow_from_the_noise(loss: Metric) -> None:
    """With hidden = x·R + σ·noise the best linear map is Rᵀ/(1+σ²); its rate is simulated and must be reached."""
    previous = 1.1
    for noise in (0.3, 1.0, 3.0):
        pairs = corpus(noise, sentences=400)
        splits = split_sentences(pairs.sentences.count, folds=3)
        rate = rate_of(fit_linear_directly(pairs, splits, loss=loss), pairs, splits)
        generator = torch.Generator().manual_seed(1)
        lengths = torch.randint(2, 13, (2000,), generator=generator)
        inputs = torch.randn(int(lengths.sum()), WIDTH, generator=generator)
        best = (inputs + noise * torch.randn(inputs.shape, generator=generator)) / (1 + noise**2)
        ideal = Pairs([best], [inputs], Sentences(lengths))
        expected = score(lambda _: Probe("naive", loss, {}), best, ideal, 0, [torch.arange(2000)])
        assert rate == pytest.approx(expected.rate, abs=0.04)
        assert rate <= previous
        previous = rate
    assert previous < 0.6


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_probes_trained_together_are_those_trained_alone(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = corpus(0.5, sentences=60, layers=3)
    splits = split_sentences(pairs.sentences.count, folds=2)
    recipe = Recipe(learning_rates=(3e-3,), batch_size=64, patience=3, maximum_epochs=12, hidden_width=16)
    together = fit_probes(pairs, splits, kind=kind, recipe=recipe)
    monkeypatch.setattr(token_training, "TOGETHER", 1)
    alone = fit_probes(pairs, splits, kind=kind, recipe=recipe)
    assert torch.equal(together.epochs, alone.epochs)
    for name, weight in together.weights.items():
        torch.testing.assert_close(weight, alone.weights[name], atol=1e-4, rtol=1e-3)


def test_two_runs_are_the_same_and_seeds_matter() -> None:
    pairs = corpus(0.5, sentences=60, layers=2)
    splits = split_sentences(pairs.sentences.count, folds=2)
    recipe = Recipe(learning_rates=(1e-2, 1e-3), batch_size=64, patience=2, maximum_epochs=8)
    one, other = (fit_probes(pairs, splits, recipe=recipe) for _ in range(2))
    assert torch.equal(one.weights["weight"], other.weights["weight"]) and torch.equal(one.rates, other.rates)
    seeded = fit_probes(pairs, splits, recipe=Recipe(**vars(recipe) | {"seed": 1}))
    assert not torch.equal(one.weights["weight"], seeded.weights["weight"])


def test_training_stops_by_patience_and_keeps_the_best_epoch() -> None:
    pairs = corpus(2.0, sentences=60)
    splits = split_sentences(pairs.sentences.count, folds=1)
    recipe = Recipe(learning_rates=(1e-2,), batch_size=32, patience=4, maximum_epochs=300)
    found = fit_probes(pairs, splits, recipe=recipe)
    assert 5 <= int(found.epochs) < 300
    again = score(lambda fold: found.probe(0, fold), pairs.states[0], pairs, 0, [splits[0].validation])
    assert again.rate == pytest.approx(float(found.validation))
    longer = fit_probes(pairs, splits, recipe=Recipe(**vars(recipe) | {"patience": 8}))
    assert float(longer.validation) >= float(found.validation) and int(longer.epochs) > int(found.epochs)


def test_the_search_keeps_the_best_learning_rate_and_a_race_loses_little() -> None:
    pairs = corpus(0.7, sentences=80, layers=2)
    splits = split_sentences(pairs.sentences.count, folds=2)
    options: dict[str, Any] = {"batch_size": 64, "patience": 5, "maximum_epochs": 60}
    rates = (1e-2, 1e-3, 1e-5)
    raced = fit_probes(pairs, splits, recipe=Recipe(learning_rates=rates, **options))
    full = fit_probes(pairs, splits, recipe=Recipe(learning_rates=rates, race=False, **options))
    each = [fit_probes(pairs, splits, recipe=Recipe(learning_rates=(rate,), **options)) for rate in rates]
    best = torch.stack([one.validation for one in each]).max(0).values
    assert torch.equal(full.validation, best)
    assert bool((raced.validation >= best - 0.01).all())
    assert bool((full.rates > 1e-4).all())


def test_neighbours_are_learnt_when_states_hold_them() -> None:
    """A state that is the next token's input: the probe for offset 1 finds it, the one for offset 0 cannot."""
    inputs, sentences = corpus().targets[0], corpus().sentences
    shifted = inputs.roll(-1, 0)
    splits = split_sentences(sentences.count, folds=1)
    for offset, expected in ((1, 1.0), (0, None)):
        pairs = Pairs([shifted], [inputs], sentences, offset)
        rate = rate_of(fit_linear_directly(pairs, splits), pairs, splits)
        assert rate == 1.0 if expected else rate < 0.5


@settings(deadline=None, max_examples=30)
@given(rows=st.integers(1, 30), width=st.integers(1, 6), rank=st.integers(1, 6), seed=st.integers(0, 999))
def test_least_squares_is_the_minimum_norm_solution(rows: int, width: int, rank: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((rows, rank)) @ draw.standard_normal((rank, width))
    singular = np.linalg.svd(x, compute_uv=False)
    seen = singular[singular > 1e-9 * singular[0]]
    if seen[-1] < 1e-3 * seen[0]:
        return  # too near to a lower rank for a fair comparison
    y = draw.standard_normal((rows, 3))
    found = least_squares(*gram(torch.tensor(x), torch.tensor(y)))
    np.testing.assert_allclose(found.numpy(), np.linalg.pinv(x, rcond=1e-9) @ y, atol=1e-7 / seen[-1] ** 2)


def test_ridge_matches_its_normal_equations() -> None:
    draw = np.random.default_rng(0)
    x, y = draw.standard_normal((20, 4)), draw.standard_normal((20, 3))
    penalty = 0.3 * np.trace(x.T @ x) / 4
    expected = np.linalg.solve(x.T @ x + penalty * np.eye(4), x.T @ y)
    found = least_squares(*gram(torch.tensor(x), torch.tensor(y)), ridge=0.3)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)


def test_a_dead_channel_carries_no_map() -> None:
    x, y = torch.randn(50, 4, generator=torch.Generator().manual_seed(0)), torch.ones(50, 2)
    x[:, 3] *= 1e-17
    assert float(least_squares(*gram(x, y)).abs().max()) < 10


def test_cosine_fit_reaches_what_a_general_minimiser_reaches() -> None:
    draw = np.random.default_rng(0)
    x, y = draw.standard_normal((60, 3)) * [1, 10, 0.1], draw.standard_normal((60, 3))
    y += x @ draw.standard_normal((3, 3))
    found = cosine_fit(
        lambda: [(torch.tensor(x[:35]), torch.tensor(y[:35])), (torch.tensor(x[35:]), torch.tensor(y[35:]))]
    )
    starts = [np.linalg.lstsq(x, y, rcond=None)[0], found.weight.numpy()]
    best = min(
        minimize(lambda w: reference.loss({"weight": w.reshape(3, 3)}, x, y, "cosine"), start.ravel(), tol=1e-12).fun
        for start in starts
    )
    assert found.converged
    assert reference.loss({"weight": found.weight.numpy()}, x, y, "cosine") == pytest.approx(found.loss, abs=1e-12)
    assert best <= found.loss <= best * 1.005


def test_common_parts_of_splits_give_each_splits_own_fit() -> None:
    pairs = corpus(0.5, sentences=40)
    splits = split_sentences(pairs.sentences.count, folds=4)
    together = fit_linear_directly(pairs, splits)
    for fold, split in enumerate(splits):
        rows = pairs.sentences.rows(split.train).numpy()
        x, y = pairs.states[0].double().numpy()[rows], pairs.targets[0].double().numpy()[rows]
        np.testing.assert_allclose(together.weights["weight"][0, fold], np.linalg.lstsq(x, y)[0], atol=1e-5)


def test_adam_gets_no_further_than_the_closed_form() -> None:
    """The L2 loss on the training tokens: Adam approaches the minimum from above."""
    pairs = corpus(1.0, sentences=200)
    splits = split_sentences(pairs.sentences.count, folds=1)
    direct = fit_linear_directly(pairs, splits, loss="l2")
    recipe = Recipe(learning_rates=(1e-2, 1e-3), batch_size=64, patience=40, maximum_epochs=300)
    adam = fit_probes(pairs, splits, loss="l2", recipe=recipe)
    rows = pairs.sentences.rows(splits[0].train)
    x, y = pairs.states[0][rows].double().numpy(), pairs.targets[0][rows].double().numpy()
    losses = [
        reference.loss({"weight": one.weights["weight"][0, 0].double().numpy()}, x, y, "l2") for one in (direct, adam)
    ]
    assert losses[0] <= losses[1] <= 1.1 * losses[0]
    assert rate_of(adam, pairs, splits) == pytest.approx(rate_of(direct, pairs, splits), abs=0.03)


@pytest.mark.parametrize("kind", ["linear", "mlp"])
@pytest.mark.parametrize("loss", ["cosine", "l2"])
def test_states_in_float64_are_trained_in_float64(kind: Kind, loss: Metric) -> None:
    """The same steps, with less rounding: what float32 gives is as near as that allows."""
    single = corpus(noise=0.1, sentences=40)
    double = Pairs([state.double() for state in single.states], [single.targets[0].double()], single.sentences)
    splits = split_sentences(40, folds=1)
    recipe = Recipe(learning_rates=(1e-2,), batch_size=64, maximum_epochs=3, hidden_width=8)
    one, other = (fit_probes(pairs, splits, kind=kind, loss=loss, recipe=recipe) for pairs in (single, double))
    for name, weight in other.weights.items():
        assert weight.dtype == torch.float64
        torch.testing.assert_close(one.weights[name].double(), weight, rtol=1e-2, atol=1e-3)


def test_refusals() -> None:
    pairs = corpus(sentences=20)
    splits = split_sentences(20, folds=1)
    with pytest.raises(InputError, match="nothing to fit"):
        fit_probes(pairs, splits, kind="naive")
    with pytest.raises(InputError, match="probe of naive, linear, mlp"):
        fit_probes(pairs, splits, kind="cubic")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="learning rates"):
        Recipe(learning_rates=())
    with pytest.raises(InputError, match="patience"):
        Recipe(patience=0)
    with pytest.raises(InputError, match="ridge"):
        fit_linear_directly(pairs, splits, loss="cosine", ridge=1.0)
    with pytest.raises(InputError, match="ridge -1"):
        least_squares(torch.eye(2), torch.eye(2), ridge=-1)
    with pytest.raises(InputError, match="one target for all"):
        Pairs(pairs.states, [], pairs.sentences)
