"""Erasure: orders, curves and their normalisation against brute force, and verdicts that are known beforehand."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import identiscope
from identiscope.judge.arena.asking import Judged
from identiscope.judge.case import RANDOM
from identiscope.judge.truths.erasure import BUDGET, erasure, planned
from identiscope.judge.truths.inputs import COMPILED, planted_input, planted_inputs
from identiscope.judge.truths.orderings import (
    all_tops,
    area,
    beam_extremes,
    exact_extremes,
    levels,
    orders_of,
)
from identiscope.judge.truths.perturbed import deleted, masked, resampled


def random_outcome(tokens: int, seed: int) -> Any:
    worth = np.random.default_rng(seed).normal(size=2**tokens)
    return lambda kept: np.array([worth[sum(1 << place for place in np.flatnonzero(row))] for row in kept])


def curve_area(outcome: Any, order: tuple[int, ...]) -> float:
    """The area under the curve of an order, token by token, as it is defined."""
    tokens = len(order)
    values = []
    for gone in range(tokens + 1):
        kept = np.ones((1, tokens), bool)
        kept[0, list(order[:gone])] = False
        values.append(float(outcome(kept)[0]))
    return sum((values[place] + values[place + 1]) / 2 / tokens for place in range(tokens))


@settings(max_examples=25)
@given(st.integers(2, 5), st.integers(0, 2**20))
def test_the_dynamic_program_finds_the_best_and_the_worst_of_all_orders(tokens: int, seed: int) -> None:
    outcome = random_outcome(tokens, seed)
    areas = {order: curve_area(outcome, order) for order in permutations(range(tokens))}
    extremes = exact_extremes(outcome, tokens)
    assert extremes.least == pytest.approx(min(areas.values())) and extremes.most == pytest.approx(max(areas.values()))
    assert curve_area(outcome, tuple(extremes.falling)) == pytest.approx(extremes.least)
    assert curve_area(outcome, tuple(extremes.rising)) == pytest.approx(extremes.most)


@settings(max_examples=25)
@given(st.integers(3, 7), st.integers(0, 2**20), st.integers(0, 3))
def test_a_beam_bounds_all_its_candidates_and_stays_within_what_is_true(tokens: int, seed: int, width: int) -> None:
    outcome = random_outcome(tokens, seed)
    generator = np.random.default_rng(seed)
    orders = [generator.permutation(tokens) for _ in range(3)]
    at = levels(tokens, 12)
    beam, exact = beam_extremes(outcome, orders, orders, at, width), exact_extremes(outcome, tokens)
    for order in orders:
        for one in (order, order[::-1]):
            assert beam.least - 1e-12 <= curve_area(outcome, tuple(one)) <= beam.most + 1e-12
    assert exact.least - 1e-12 <= beam.least <= beam.most <= exact.most + 1e-12
    assert curve_area(outcome, tuple(beam.falling)) == pytest.approx(beam.least)
    assert curve_area(outcome, tuple(beam.rising)) == pytest.approx(beam.most)


@settings(max_examples=30)
@given(st.lists(st.integers(0, 2), min_size=2, max_size=5), st.data())
def test_equal_scores_are_every_order_of_theirs(given_scores: list[int], data: st.DataObject) -> None:
    scores = np.array(given_scores, float)
    count = data.draw(st.integers(0, len(scores)))
    tops = {
        frozenset(order[:count])
        for order in permutations(range(len(scores)))
        if all(scores[order[place]] >= scores[order[place + 1]] for place in range(len(scores) - 1))
    }
    sets = all_tops(scores, count)
    assert {frozenset(np.flatnonzero(row).tolist()) for row in sets} == tops and len(sets) == len(tops)
    for order in orders_of(scores, np.random.default_rng(0), 4):
        assert (np.diff(scores[order]) <= 0).all()


def test_levels_and_areas() -> None:
    assert levels(3, 12) == [0, 1, 2, 3]
    assert levels(30, 5) == [0, 6, 12, 18, 24, 30]
    assert area(np.array([1.0, 0.0]), [0, 4]) == 0.5


def test_attention_that_is_drawn_to_distractors_is_found_out_and_the_gradient_is_not() -> None:
    judged = Judged(("attention", "gradient_input"))
    scores: dict[str, list[np.ndarray]] = {"": [], "distracted_": []}
    for one in planted_inputs({"copy": COMPILED["copy"]}, 3):
        case, _, _ = judged.case(one.trace, one.outcome, players=one.players)
        judgement = erasure(case)
        assert [judgement.ceiling[name] for name in ("most_first", "least_first")] == pytest.approx([1.0, 1.0])
        assert judgement.chance["most_first"] == pytest.approx(0.5)
        for values in judgement.values.values():
            assert np.isfinite(values).all()
        for name in ("most_first", "least_first"):
            assert (judgement.values[name] <= 1 + 1e-9).all() and (judgement.values[name] >= -1e-9).all()
        scores[one.version].append(judgement.values["most_first"])
        # Nothing but the copied letter counts, so that its loss is the whole logit.
        assert judgement.values["comprehensiveness"][1] == pytest.approx(40, rel=1e-4)
        assert judgement.values["sufficiency"][1] == pytest.approx(0, abs=1e-3)
    assert (np.array(scores[""])[:, :2] > 0.99).all()
    distracted = np.array(scores["distracted_"])
    assert (distracted[:, 0] < 0.95).all() and (distracted[:, 1] > 0.99).all()


def test_a_text_that_nothing_changes_decides_nothing() -> None:
    """Distractors alone are erased, and the logit is the same whatever they are."""
    one = planted_input(COMPILED["copy"], COMPILED["copy"].examples(1)[0], False)
    case, _, _ = Judged(("attention",)).case(one.trace, one.outcome, players=one.players & ~one.truth)
    judgement = erasure(case)
    assert np.isnan(judgement.values["most_first"]).all()
    assert np.isnan(judgement.chance["most_first"]) and np.isnan(judgement.ceiling["most_first"])


def test_one_token_has_no_order_and_a_small_budget_is_said() -> None:
    example = COMPILED["copy"].examples(1)[0]
    one = planted_input(COMPILED["copy"], example, False)
    alone = np.zeros(len(one.players), bool)
    alone[0] = True
    case, _, _ = Judged(("attention",)).case(one.trace, one.outcome, players=alone)
    assert "no order" in erasure(case).undecided
    case, _, _ = Judged(("attention",)).case(one.trace, one.outcome, players=one.players, budget=3)
    assert "budget of 3 passes" in erasure(case).undecided


def test_perturbed_texts_are_those_that_were_meant(minilm: identiscope.Model) -> None:
    """Against texts that are put together by hand and run one after the other."""
    trace = identiscope.trace(minilm, "The old cat sat there.")
    outcome = "similarity:A dog lay on the floor."
    case, _, _ = Judged(("attention",)).case(trace, outcome)
    ids = list(trace.main.ids or ())
    kept = np.ones((2, int(case.players.sum())), bool)
    kept[0, [1, 3]] = False
    places = np.flatnonzero(case.players)[[1, 3]]
    by_mask = [minilm.tokenizer.mask_token_id if at in places else token for at, token in enumerate(ids)]
    by_deletion = [token for at, token in enumerate(ids) if at not in places]
    for way, other in ((masked, by_mask), (deleted, by_deletion)):
        values = way(case)(kept)
        own = identiscope.trace(minilm, other).outcome(outcome).value
        assert values[0] == pytest.approx(own, abs=1e-5)
        assert values[1] == pytest.approx(case.runs.outcome.value, abs=1e-5)
    draw = resampled(case)
    assert draw(kept)[0] == resampled(case)(kept)[0] and draw.passes == 2
    assert draw(kept)[0] != pytest.approx(masked(case)(kept)[0], abs=1e-6)


def test_a_pair_takes_at_most_the_passes_that_are_planned(minilm: identiscope.Model) -> None:
    judged = Judged(("attention", "rollout", "gradient_input"))
    trace = identiscope.trace(minilm, "The council voted to close the old bridge to cars and open it.")
    case, failed, passes = judged.case(trace, "similarity:The bridge was shut.", budget=450)
    assert not failed and passes["gradient_input"] == 3 and passes[RANDOM] == 0
    judgement = erasure(case)
    count = int(case.players.sum())
    assert count > 10 and judgement.passes <= planned(count, len(judged.names), 450) <= 450
    for name in ("most_first", "least_first"):
        assert ((judgement.values[name] >= -1e-9) & (judgement.values[name] <= 1 + 1e-9)).all()
        assert judgement.ceiling[name] == pytest.approx(1.0)


def test_no_plan_goes_beyond_its_budget() -> None:
    for tokens in (2, 10, 11, 25, 60, 200):
        for methods in (2, 13, 30):
            assert planned(tokens, methods, None) <= BUDGET
            assert planned(tokens, methods, 300) <= 300
    # The fast methods on texts as long as those of the built-in pairs have curves, whatever they cost.
    assert planned(25, 13, None) > 0
