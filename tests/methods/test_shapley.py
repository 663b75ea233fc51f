"""Shapley values, against all orders one after the other, games that are known, and what an error bar promises."""

from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import identiscope
from families import TEXT
from identiscope.errors import InputError
from identiscope.methods.scores.shapley import shapley
from plain_families import model_of, ran
from reference_outcome import read, value
from reference_shapley import game, values_of


@given(seed=st.integers(0, 2**20), count=st.integers(1, 5), idle=st.integers(0, 2))
def test_it_is_the_mean_over_all_orders(seed: int, count: int, idle: int) -> None:
    """A worth for every set of players; those that the baseline leaves as they are take no part."""
    worth = np.random.default_rng(seed).standard_normal(2**count)
    answer, x, baseline, asked = game(worth, count, idle)
    found = shapley(answer, x, baseline)
    expected = values_of(lambda players: worth[sum(1 << player for player in players)], count)
    np.testing.assert_allclose(found.score[:count], expected, atol=1e-12)
    assert not found.score[count:].any()
    assert sum(asked) == 2**count and found.error is None
    assert abs(found.facts["residual"]) < 1e-12 and abs(found.facts["promised_sum"] - (worth[-1] - worth[0])) < 1e-12


@pytest.mark.parametrize(
    ("count", "worth", "expected"),
    [
        # One left glove and two right ones: a pair is worth one.
        (3, lambda players: float(0 in players and len(players) > 1), [4 / 6, 1 / 6, 1 / 6]),
        # Votes 3, 2, 1, 1, four are a majority (Shapley & Shubik 1954).
        (4, lambda players: float(sum((3, 2, 1, 1)[one] for one in players) >= 4), [1 / 2, 1 / 6, 1 / 6, 1 / 6]),
        # A product is shared evenly, a sum by its terms.
        (3, lambda players: 6.0 * (len(players) == 3), [2.0, 2.0, 2.0]),
        (3, lambda players: float(sum((5, -1, 2)[one] for one in players)), [5.0, -1.0, 2.0]),
    ],
)
def test_known_games(count: int, worth: Callable[[set[int]], float], expected: list[float]) -> None:
    every = [worth({one for one in range(count) if number >> one & 1}) for number in range(2**count)]
    answer, x, baseline, _ = game(np.array(every), count)
    np.testing.assert_allclose(shapley(answer, x, baseline).score, expected, atol=1e-12)
    np.testing.assert_allclose(values_of(worth, count), expected, atol=1e-12)


def test_of_a_model_it_is_that_of_its_embeddings() -> None:
    text = TEXT[:4]
    x = ran("GPT-2", tuple(text))[1].embeddings
    baseline = x.mean(0)

    def worth(players: set[int]) -> float:
        return value("GPT-2", torch.stack([x[i] if i in players else baseline for i in range(len(x))]))

    result = identiscope.shapley(identiscope.trace(model_of("GPT-2"), text), outcome=read, baseline="mean")
    np.testing.assert_allclose(result["score"], values_of(worth, len(x)), atol=1e-10)
    assert result.attrs["passes"] == 2 ** len(x) and not result.attrs["sampled"]


def test_drawn_orders_are_right_on_average_and_so_is_their_error() -> None:
    """Mean gains over orders and their reverses of one game, many times over: all add up to what all gain."""
    count, draws = 6, 200
    worth = np.random.default_rng(1).standard_normal(2**count)
    expected = values_of(lambda players: worth[sum(1 << player for player in players)], count)
    answer, x, baseline, asked = game(worth, count)
    off, said = [], []
    for seed in range(draws):
        asked.clear()
        found = shapley(answer, x, baseline, exact=5, budget=82, seed=seed)
        assert sum(asked) <= 82 and found.facts["orders"] == 8 and found.facts["sampled"]
        assert abs(found.facts["residual"]) < 1e-12 and found.error is not None
        off.append(found.score.numpy() - expected)
        said.append(found.error.numpy() ** 2)
    # 200 draws tell a mean to 1/√200 of a deviation, of which four; and a variance to a tenth, of which three.
    deviation = np.std(off, 0)
    assert (np.abs(np.mean(off, 0)) < 4 * deviation / draws**0.5).all()
    assert (np.abs(np.mean(said, 0) / deviation**2 - 1) < 0.3).all()
    covered = np.abs(np.array(off)) < 3 * np.sqrt(said)
    assert covered.mean() > 0.95


def test_an_order_is_followed_step_by_step() -> None:
    """With one pair of orders for each of two, the scores are means of these four, whatever they are."""
    count = 3
    worth = np.random.default_rng(2).standard_normal(2**count)
    answer, x, baseline, _ = game(worth, count)
    found = shapley(answer, x, baseline, exact=2, budget=10, seed=5).score.numpy()
    orders = list(permutations(range(count)))
    means = []
    for one in orders:
        for other in orders:
            gains = np.zeros(count)
            for order in (one, one[::-1], other, other[::-1]):
                before = 0
                for player in order:
                    gains[player] += (worth[before | 1 << player] - worth[before]) / 4
                    before |= 1 << player
            means.append(gains)
    assert min(np.abs(found - mean).max() for mean in means) < 1e-12


def test_a_text_of_nothing_but_its_baseline_scores_zero() -> None:
    def never(texts: Tensor) -> Tensor:
        raise AssertionError("there is nothing to run")

    x = torch.ones(3, 2)
    found = shapley(never, x, x)
    assert not found.score.any() and found.facts["promised_sum"] == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"exact": 21}, r"exact=21 was given; expected 1 to 20 tokens: 2ⁿ texts are run"),
        ({"exact": 0}, r"exact=0 was given"),
        ({"exact": 5, "budget": 21}, r"budget=21 was given; 6 tokens need at least 22 passes"),
    ],
)
def test_what_cannot_be_done_is_said(options: dict[str, int], said: str) -> None:
    answer, x, baseline, _ = game(np.zeros(64), 6)
    with pytest.raises(InputError, match=said):
        shapley(answer, x, baseline, **options)


def test_captum_says_the_same() -> None:
    captum = pytest.importorskip("captum.attr")
    worth = np.random.default_rng(3).standard_normal(16)
    answer, x, baseline, _ = game(worth, 4)
    theirs = captum.ShapleyValues(answer).attribute(x[None, :, 0], baselines=baseline[None, :, 0])
    np.testing.assert_allclose(shapley(answer, x, baseline).score, theirs[0], atol=1e-6)
