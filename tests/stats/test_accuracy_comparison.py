"""Intervals over seeds and the criterion of equal accuracy: by hand, by simulation, by what must hold."""

import math
import statistics
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from identiscope.errors import InputError
from identiscope.stats.accuracy_comparison import accuracy_comparison, mean_interval


def test_student_s_interval_by_hand() -> None:
    found = mean_interval(np.array([0.80, 0.82, 0.84, 0.90]))
    reach = 3.182446305 * statistics.stdev([0.80, 0.82, 0.84, 0.90]) / 2  # t of three degrees of freedom, from a table
    assert math.isclose(found.mean, 0.84)
    assert math.isclose(found.low, 0.84 - reach, rel_tol=1e-8) and math.isclose(found.high, 0.84 + reach, rel_tol=1e-8)
    assert math.isnan(mean_interval(np.array([0.5])).low)


def literal(correct: np.ndarray, reference: np.ndarray) -> tuple[float, float]:
    """Mean and squared standard error, cell by cell."""
    seeds, texts = correct.shape
    cells = [[float(correct[s][t]) - float(reference[s][t]) for t in range(texts)] for s in range(seeds)]
    rows = [sum(row) / texts for row in cells]
    columns = [sum(cells[s][t] for s in range(seeds)) / seeds for t in range(texts)]
    return sum(rows) / seeds, statistics.variance(rows) / seeds + statistics.variance(columns) / texts


@given(arrays.arrays(bool, (2, 3, 7)))
def test_difference_against_a_literal_one(answers: np.ndarray) -> None:
    found = accuracy_comparison(answers[0], answers[1])
    mean, variance = literal(answers[0], answers[1])
    reach = 4.302652729911275 * math.sqrt(variance)  # t of two degrees of freedom
    assert math.isclose(found.difference, mean, abs_tol=1e-12)
    assert math.isclose(found.high - found.low, 2 * reach, rel_tol=1e-8, abs_tol=1e-12)
    turned = accuracy_comparison(answers[1], answers[0])
    assert math.isclose(turned.low, -found.high, abs_tol=1e-12)


@given(arrays.arrays(bool, (2, 4, 9)), st.floats(0.001, 1), st.floats(1, 10))
def test_a_wider_margin_takes_back_no_equality(answers: np.ndarray, margin: float, factor: float) -> None:
    narrow = accuracy_comparison(answers[0], answers[1], margin=margin).answer
    wide = accuracy_comparison(answers[0], answers[1], margin=margin * factor).answer
    assert wide == narrow or wide == "equally accurate"


def simulated(difference: float, runs: int, seeds: int = 5, texts: int = 400) -> list[Any]:
    """Answers of two kinds of model whose accuracies differ by `difference` in truth; texts and seeds both matter."""
    generator = np.random.default_rng(0)
    found = []
    for _ in range(runs):
        hard = generator.normal(1.0, 1.0, texts)
        kinds = []
        for shift in (0.0, difference):
            ease = hard + generator.normal(0, 0.1, (seeds, 1)) + generator.normal(0, 0.7, (seeds, texts))
            kinds.append(generator.random((seeds, texts)) < 1 / (1 + np.exp(-1.5 * ease)) + shift)
        found.append(accuracy_comparison(kinds[1], kinds[0], margin=0.02))
    return found


def test_the_interval_covers_and_the_answers_are_right() -> None:
    equal = simulated(0.0, 200)
    covered = np.mean([one.low <= 0 <= one.high for one in equal])
    assert covered >= 0.93  # 95 % or more: it is rather too wide
    worse = simulated(-0.15, 100)
    assert np.mean([one.answer == "less accurate" for one in worse]) > 0.9
    # At the margin itself equality must be claimed seldom: that is the size of the test.
    assert np.mean([one.answer == "equally accurate" for one in simulated(-0.04, 200)]) < 0.05
    assert all(one.answer == "equally accurate" for one in [accuracy_comparison(np.eye(3), np.eye(3))])


def test_more_less_and_undecided() -> None:
    right, wrong = np.ones((3, 40)), np.zeros((3, 40))
    assert accuracy_comparison(right, wrong).answer == "more accurate"
    assert accuracy_comparison(wrong, right).answer == "less accurate"
    half = np.tile(np.arange(40) % 2, (3, 1))
    assert accuracy_comparison(half, 1 - half).answer == "undecided"
    assert accuracy_comparison(right[:1], right[:1]).answer == "undecided"  # one seed says nothing of others


def test_refusals() -> None:
    with pytest.raises(InputError, match="expected one shape"):
        accuracy_comparison(np.ones((2, 3)), np.ones((2, 4)))
    with pytest.raises(InputError, match="margin above 0"):
        accuracy_comparison(np.ones((2, 3)), np.ones((2, 3)), margin=0)
    with pytest.raises(InputError, match="on 1 axes"):
        mean_interval(np.ones((2, 2)))
    with pytest.raises(InputError, match="confidence"):
        mean_interval(np.ones(2), confidence=1)
