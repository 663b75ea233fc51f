"""Intervals over sentences, lost tokens by group, confusions, and identification against contribution."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference_tokens as reference
from identiscope.errors import InputError
from identiscope.methods.tokens.confusions import (
    REASONS,
    against_contribution,
    confusions,
    frequency_groups,
    position_groups,
    rates_by_group,
    reasons,
)
from identiscope.methods.tokens.identification import Identified
from identiscope.stats.text_bootstrap import sentence_interval


def outcome(nearest: list[int], right: list[bool]) -> Identified:
    rows = torch.arange(len(nearest))
    return Identified(rows, torch.tensor(nearest), torch.tensor(right), torch.zeros(len(nearest), dtype=torch.bool))


def test_the_interval_is_that_of_the_literal_bootstrap() -> None:
    draw = np.random.default_rng(0)
    total = draw.integers(1, 20, 40)
    correct = draw.binomial(total, draw.uniform(0.2, 1, 40))
    found = sentence_interval(torch.tensor(correct).double(), torch.tensor(total).double(), resamples=4000, seed=1)
    low, high = reference.bootstrap(correct.tolist(), total.tolist(), draw.integers(0, 40, (4000, 40)), 0.95)
    spread = high - low
    assert found.low == pytest.approx(low, abs=0.1 * spread) and found.high == pytest.approx(high, abs=0.1 * spread)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    """Sentences that stand or fall together: an interval over tokens would be far too narrow."""
    draw = np.random.default_rng(0)
    covered = 0
    for seed in range(200):
        total = np.full(60, 10.0)
        correct = 10.0 * draw.binomial(1, 0.6, 60)
        found = sentence_interval(torch.tensor(correct), torch.tensor(total), resamples=300, seed=seed)
        covered += found.low <= 0.6 <= found.high
    assert 0.89 <= covered / 200 <= 0.99


@settings(deadline=None, max_examples=30)
@given(correct=st.lists(st.integers(0, 5), min_size=1, max_size=20), seed=st.integers(0, 99))
def test_the_interval_holds_the_rate_and_repeats_itself(correct: list[int], seed: int) -> None:
    identified, counted = torch.tensor(correct).double(), torch.full((len(correct),), 5.0).double()
    one = sentence_interval(identified, counted, resamples=200, seed=seed)
    assert one == sentence_interval(identified, counted, resamples=200, seed=seed)
    assert 0 <= one.low <= one.high <= 1
    everything = sentence_interval(identified, counted, resamples=200, seed=seed, confidence=0.999)
    assert everything.low <= one.low and everything.high >= one.high


def test_sentences_without_tokens_are_left_out() -> None:
    found = sentence_interval(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 0.0]))
    assert (found.low, found.high) == (1.0, 1.0)
    assert math.isnan(sentence_interval(torch.zeros(2), torch.zeros(2)).low)
    with pytest.raises(InputError, match="confidence"):
        sentence_interval(torch.ones(2), torch.ones(2), confidence=1.0)
    with pytest.raises(InputError, match="every sentence"):
        sentence_interval(torch.ones(2), torch.ones(3))


def test_rates_by_group_leave_out_what_has_no_group() -> None:
    found = outcome([0, 0, 2, 3], [True, False, True, True])
    rates = {one.group: one.rate for one in rates_by_group(found, ["DT", "DT", "NN", None])}
    assert rates == {"DT": 0.5, "NN": 1.0}


def test_groups_by_frequency_and_position() -> None:
    types = ["the"] * 5 + ["cat"] * 2 + ["sat"]
    assert frequency_groups(types) == ["4–7"] * 5 + ["2–3"] * 2 + ["1"]
    assert position_groups(torch.tensor([0, 3, 4]), width=4) == ["0–3", "0–3", "4–7"]
    with pytest.raises(InputError, match="at least 1"):
        position_groups(torch.tensor([0]), width=0)


def test_reasons_and_confusions() -> None:
    types = ["[CLS]", "a", "b", "a", "c", "d", "e", "f"]
    special = torch.tensor([True] + [False] * 7)
    #            CLS    a      b      a      c      d      e      f
    nearest = [0, 3, 0, 2, 5, 2, 1, 7]
    right = [True, False, False, False, False, False, False, True]
    found = outcome(nearest, right)
    counts = reasons(found, types, special)
    assert counts == dict(zip(REASONS, (1, 1, 1, 1, 1, 1), strict=True))
    assert ("b", "[CLS]", 1) in confusions(found, types) and len(confusions(found, types)) == 5
    assert len(confusions(found, types, most=2)) == 2


def test_contribution_that_decides_and_contribution_that_does_not() -> None:
    right = [False, False, True, True]
    decides = against_contribution(outcome([0] * 4, right), torch.tensor([0.1, 0.2, 0.3, 0.4]), bins=2)
    assert decides.auc == 1.0 and decides.rate.tolist() == [0.0, 1.0] and decides.tokens.tolist() == [2, 2]
    assert against_contribution(outcome([0] * 4, right), torch.full((4,), 0.5), bins=2).auc == 0.5
    assert math.isnan(against_contribution(outcome([0] * 2, [True, True]), torch.ones(2)).auc)
    with pytest.raises(InputError, match="for each token"):
        against_contribution(outcome([0] * 4, right), torch.ones(2))


@settings(deadline=None, max_examples=30)
@given(values=st.lists(st.integers(0, 4), min_size=2, max_size=15), seed=st.integers(0, 999))
def test_auc_is_the_share_of_pairs(values: list[int], seed: int) -> None:
    right = np.random.default_rng(seed).integers(0, 2, len(values)).astype(bool)
    found = against_contribution(outcome([0] * len(values), right.tolist()), torch.tensor(values).double(), bins=1)
    above = [value for value, flag in zip(values, right, strict=True) if flag]
    below = [value for value, flag in zip(values, right, strict=True) if not flag]
    if not above or not below:
        assert math.isnan(found.auc)
    else:
        wins = np.mean([(one > other) + 0.5 * (one == other) for one in above for other in below])
        assert found.auc == pytest.approx(wins)
