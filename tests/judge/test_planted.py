"""Planted models: their truth is proven by intervention, and the judge's verdict on them is known beforehand."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from identiscope.errors import InputError, MathError
from identiscope.judge.arena.asking import Judged
from identiscope.judge.case import RANDOM
from identiscope.judge.truths import mechanisms
from identiscope.judge.truths.inputs import COMPILED, planted_input, planted_inputs
from identiscope.judge.truths.planted import mass, planted, precision, reciprocal_rank
from identiscope.judge.truths.tasks import Task, proven, proven_examples

#: Small alphabets, of which every text is run.
SMALL = (
    mechanisms.copy(3, 3), mechanisms.reverse(3, 3), mechanisms.count(2, 4), mechanisms.add(3, 4),
    mechanisms.look_up(3, 3, 2),
)  # fmt: skip


@pytest.mark.parametrize("task", SMALL, ids=lambda task: task.name)
@pytest.mark.parametrize("distracting", [False, True])
def test_distractors_have_no_effect_whatever_they_are(task: Task, distracting: bool) -> None:
    for example in task.examples(12):
        proof = proven(task.model(distracting), example)
        assert proof.texts == np.prod([len(words) for words in example.others.values()])
        assert proof.apart <= 1e-6 and proof.answered and proof.needed


@pytest.mark.parametrize("task", COMPILED.values(), ids=lambda task: task.name)
def test_so_it_is_at_the_size_that_is_judged(task: Task) -> None:
    generator = np.random.default_rng(1)
    for example in task.examples(3, seed=7):
        for distracting in (False, True):
            proof = proven(task.model(distracting), example, list(example.drawn_variants(generator, 200)))
            assert proof.apart <= 1e-6 and proof.answered and proof.needed


def test_a_truth_that_is_none_is_not_proven() -> None:
    """A true token among the distractors, and a distractor among the true ones."""
    task = SMALL[0]
    example = task.examples(1)[0]
    other = next(iter(example.others))
    letters = example.others[other]
    place = example.truth[0]
    moved = type(example)(example.words, example.answer, (), {**example.others, place: letters}, {})
    assert not proven(task.model(False), moved).answered
    added = type(example)(
        example.words, example.answer, (*example.truth, other),
        {at: words for at, words in example.others.items() if at != other},
        {**example.wrong, other: tuple(letter for letter in letters if letter != example.words[other])},
    )  # fmt: skip
    assert not proven(task.model(False), added).needed
    # Such inputs are not judged: the next is taken, and where there is none that is said.
    given = iter([added, moved, *task.examples(2)])
    mixed = replace(task, draw=lambda generator: next(given))
    assert proven_examples(mixed, 2) == task.examples(2)
    with pytest.raises(MathError, match="proven for 0 of 2 inputs"):
        proven_examples(replace(task, draw=lambda generator: added), 1)


@pytest.mark.parametrize("task", COMPILED.values(), ids=lambda task: task.name)
def test_distractors_attract_attention_in_one_version_and_logits_are_the_same(task: Task) -> None:
    for example in task.examples(3, seed=2):
        both = [planted_input(task, example, distracting) for distracting in (False, True)]
        assert all(one.trace.verify().verified for one in both)
        logits = [one.trace.logits[-1].numpy() for one in both]  # type: ignore[index]
        np.testing.assert_allclose(logits[0], logits[1], rtol=1e-6, atol=1e-4)
        shares = []
        for one in both:
            site = one.trace.sites[-1]
            last = np.mean([site.attention(head)[-1].numpy() for head in site.heads], 0)
            shares.append(last[one.players & ~one.truth].sum())
        assert shares[1] >= 0.74 > shares[0]


def test_the_verdict_is_right_both_ways() -> None:
    """Raw attention finds what is copied, and no more where distractors attract it; the gradient does in both."""
    judged = Judged(("attention", "weighted_norm", "gradient_input"))
    precisions: dict[str, list[np.ndarray]] = {}
    for one in planted_inputs({"copy": COMPILED["copy"]}, 6):
        case, failed, _ = judged.case(one.trace, one.outcome, truth=one.truth, players=one.players, version=one.version)
        assert not failed
        judgement = planted(case)
        name = f"{one.version}precision"
        precisions.setdefault(name, []).append(judgement.values[name])
        assert judgement.ceiling[name] == 1.0
        assert judgement.chance[name] == pytest.approx(1 / one.players.sum())
    plain, distracted = (np.mean(precisions[name], 0) for name in ("precision", "distracted_precision"))
    assert plain[:3].tolist() == [1.0, 1.0, 1.0]
    assert distracted[:3].tolist() == [0.0, 1.0, 1.0]
    assert judged.names[3] == RANDOM and plain[3] < 1


def test_a_text_without_a_truth_is_refused() -> None:
    one = planted_input(COMPILED["copy"], COMPILED["copy"].examples(1)[0], False)
    case, _, _ = Judged(("attention",)).case(one.trace, one.outcome)
    with pytest.raises(InputError, match="planted truth"):
        planted(case)


@settings(max_examples=60)
@given(st.lists(st.integers(0, 2), min_size=2, max_size=5), st.data())
def test_equal_scores_have_the_mean_over_all_orders(given_sizes: list[int], data: st.DataObject) -> None:
    sizes = np.array(given_sizes, float)
    count = len(sizes)
    true = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=count))
    truth = np.isin(np.arange(count), list(true))
    precisions, ranks = [], []
    for order in permutations(range(count)):
        if any(sizes[order[place]] < sizes[order[place + 1]] for place in range(count - 1)):
            continue
        first = order[: len(true)]
        precisions.append(sum(place in true for place in first) / len(true))
        ranks.append(1 / (1 + min(place for place, token in enumerate(order) if token in true)))
    assert precision(sizes, truth) == pytest.approx(np.mean(precisions))
    assert reciprocal_rank(sizes, truth) == pytest.approx(np.mean(ranks))
    expected = sum(sizes[list(true)]) / sizes.sum() if sizes.sum() else len(true) / count
    assert mass(sizes, truth) == pytest.approx(expected)
