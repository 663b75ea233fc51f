"""Causal yardsticks against their definitions, and the judge's verdict by them on planted models."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

import identiscope
from identiscope.errors import InputError
from identiscope.judge.arena.asking import Judged
from identiscope.judge.truths.causal import causal, planned
from identiscope.judge.truths.inputs import COMPILED, planted_inputs
from identiscope.judge.truths.patching import patched, patched_texts
from identiscope.judge.truths.shapley_values import shapley_values


@settings(max_examples=20)
@given(st.integers(1, 5), st.integers(0, 2**20))
def test_shapley_values_are_the_mean_gain_over_all_orders(players: int, seed: int) -> None:
    worth = np.random.default_rng(seed).normal(size=2**players)
    gains = np.zeros(players)
    orders = list(permutations(range(players)))
    for order in orders:
        there = 0
        for player in order:
            gains[player] += (worth[there | 1 << player] - worth[there]) / len(orders)
            there |= 1 << player

    def outcome(kept: Any) -> np.ndarray:
        return np.array([worth[sum(1 << at for at in np.flatnonzero(row))] for row in kept])

    np.testing.assert_allclose(shapley_values(outcome, players), gains, atol=1e-12)


def test_of_two_texts_that_differ_in_one_word_its_place_is_the_whole_of_the_change(minilm: identiscope.Model) -> None:
    outcome = "similarity:A dog lay on the floor."
    traces = [identiscope.trace(minilm, text) for text in ("The cat sat there.", "The dog sat there.")]
    case, _, _ = Judged(("attention",)).case(traces[0], outcome)
    other = traces[1].main.embeddings
    places = torch.arange(len(traces[0].tokens))
    one = patched(case.runs, other, places)
    change = traces[0].outcome(outcome).value - traces[1].outcome(outcome).value
    differing = [
        at for at, (a, b) in enumerate(zip(*(trace.main.ids or () for trace in traces), strict=True)) if a != b
    ]
    assert len(differing) == 1
    assert one.activation[differing[0]] == pytest.approx(change, abs=1e-5)
    assert np.abs(np.delete(one.activation, differing)).max() < 1e-6
    assert np.abs(np.delete(one.attribution, differing)).max() < 1e-6


def gpt2_logit(module: Any, x: Tensor, layer: int, place: int, state: Tensor | None, word: int) -> Tensor:
    """A GPT-2 block by block, with another state [model] put in at a place before some layer: the logit of a word."""
    for number, block in enumerate(module.transformer.h):
        if number == layer and state is not None:
            x = torch.cat([x[:place], state[None], x[place + 1 :]])
        x = _first(block(x[None]))[0]
    if layer == len(module.transformer.h) and state is not None:
        x = torch.cat([x[:place], state[None], x[place + 1 :]])
    return module.lm_head(module.transformer.ln_f(x))[-1, word]


def _first(output: Any) -> Tensor:
    return output if isinstance(output, Tensor) else output[0]


def test_patching_by_layers_is_the_model_block_by_block() -> None:
    """Every state of the other text put into this one's run by hand; first orders against central differences."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=11, n_embd=8, n_layer=3, n_head=2, n_positions=8, initializer_range=0.4)
    module = transformers.GPT2LMHeadModel(config).double().eval()
    model = identiscope.load(module)
    texts = [3, 7, 1, 4], [3, 9, 1, 4]
    word = 5
    this, that = (identiscope.trace(model, text) for text in texts)
    found = patched_texts(this, that, outcome=f"logit:id:{word}")
    with torch.no_grad():
        starts = [
            module.transformer.wte(torch.tensor(text)) + module.transformer.wpe(torch.arange(4)) for text in texts
        ]
        own, other = ([start] for start in starts)
        for block in module.transformer.h:
            for states in (own, other):
                states.append(_first(block(states[-1][None]))[0])
        plain = gpt2_logit(module, starts[0], -1, 0, None, word)
        activation, attribution = np.zeros((4, 4)), np.zeros((4, 4))
        for layer in range(4):
            for place in range(4):
                mine, theirs, step = own[layer][place], other[layer][place], 1e-5
                patch = gpt2_logit(module, starts[0], layer, place, theirs, word)
                activation[layer, place] = plain - patch
                ends = [gpt2_logit(module, starts[0], layer, place, mine + sign * step * (mine - theirs), word)
                        for sign in (1, -1)]  # fmt: skip
                attribution[layer, place] = (ends[0] - ends[1]) / (2 * step)
    np.testing.assert_allclose(found.activation, activation, atol=1e-12)
    np.testing.assert_allclose(found.attribution, attribution, atol=1e-8)
    # Nothing has happened yet before the word, and what is behind the last layer is read at the last place alone.
    assert np.abs(found.activation[:, 0]).max() == 0 and np.abs(found.activation[3, :3]).max() == 0
    assert found.activation[0, 1] == pytest.approx(found.activation[3, 3], abs=1e-12) and found.activation[0, 1] != 0


def test_patching_by_layers_in_a_model_with_norms_behind_the_sum(minilm: identiscope.Model) -> None:
    """At the embeddings the changed word is all; behind the last layer a patch is one term of a mean over places."""
    outcome = "similarity:A dog lay on the floor."
    texts = "The cat sat there.", "The dog sat there.", "A dog lay on the floor."
    own, other, like = (identiscope.trace(minilm, text) for text in texts)
    found = patched_texts(own, other, outcome)
    assert found.activation.shape == found.attribution.shape == (7, len(own.tokens))
    whole = own.outcome(outcome).value - other.outcome(outcome).value
    assert found.activation[0].sum() == pytest.approx(whole, abs=1e-5)
    mine, theirs, goal = (trace.hidden_states[-1].double().numpy() for trace in (own, other, like))
    for place in range(len(mine)):
        swapped = mine.copy()
        swapped[place] = theirs[place]
        cosines = [
            states.mean(0) @ goal.mean(0) / np.linalg.norm(states.mean(0)) / np.linalg.norm(goal.mean(0))
            for states in (mine, swapped)
        ]
        assert found.activation[-1, place] == pytest.approx(cosines[0] - cosines[1], abs=1e-5)


def test_texts_of_other_lengths_cannot_be_patched(minilm: identiscope.Model) -> None:
    one, two = (identiscope.trace(minilm, text) for text in ("The cat sat there.", "The cat sat."))
    for other in (one, two):
        with pytest.raises(InputError, match="tokens were given"):
            patched_texts(one, other, "similarity:A dog lay.")


def test_to_first_order_it_is_the_derivative(minilm: identiscope.Model) -> None:
    """A small step in the other word's direction changes the outcome as attribution patching says."""
    trace = identiscope.trace(minilm, "The cat sat there.")
    case, _, _ = Judged(("attention",)).case(trace, "similarity:A dog lay on the floor.")
    own = case.runs.embeddings[0]
    other = own + 1e-2 * torch.randn(own.shape, generator=torch.Generator().manual_seed(0))
    one = patched(case.runs, other, torch.arange(len(own)))
    np.testing.assert_allclose(one.attribution, one.activation, atol=2e-4)


def test_the_verdict_is_right_both_ways() -> None:
    """What is copied is the one cause: attention has it until distractors attract it, the gradient in both."""
    judged = Judged(("attention", "gradient_input"))
    for one in planted_inputs({"copy": COMPILED["copy"]}, 2):
        case, _, _ = judged.case(one.trace, one.outcome, players=one.players)
        judgement = causal(case)
        attention, gradient, _ = judgement.values["shapley"]
        assert judgement.ceiling["shapley"] == 1.0 and judgement.chance["shapley"] == 0.0
        assert gradient == pytest.approx(1.0, abs=0.2)
        if one.version:
            assert attention < gradient - 0.3
        else:
            assert attention == pytest.approx(1.0, abs=0.2)
        expected = planned(int(one.players.sum()), 3, None)
        assert judgement.passes <= expected


def test_correlations_are_scipys_and_constant_scores_have_none(minilm: identiscope.Model) -> None:
    judged = Judged(("gradient_input",), {"flat": lambda model, ids, runs: np.ones(len(ids))})
    trace = identiscope.trace(minilm, "The cat sat there.")
    case, _, _ = judged.case(trace, "similarity:A dog lay on the floor.")
    judgement = causal(case)
    truth = identiscope.shapley(trace, outcome="similarity:A dog lay on the floor.", baseline="mask")
    expected = stats.spearmanr(case.scores[0, case.players], truth["score"].values[case.players]).statistic
    assert judgement.values["shapley"][0] == pytest.approx(expected, abs=1e-9)
    assert judgement.values["shapley"][1] == 0.0


def test_long_texts_say_why_shapley_is_undecided(minilm: identiscope.Model) -> None:
    trace = identiscope.trace(minilm, "The old cat sat there on the mat and looked at the very small dog.")
    case, _, _ = Judged(("gradient_input",)).case(trace, "similarity:A dog lay on the floor.")
    judgement = causal(case)
    assert "too many" in judgement.undecided and np.isnan(judgement.values["shapley"]).all()
    assert np.isfinite(judgement.values["leave_one_out"]).all()


def test_a_budget_that_is_too_small_for_shapley_values_is_no_text_that_is_too_long(minilm: identiscope.Model) -> None:
    trace = identiscope.trace(minilm, "The cat sat there.")
    case, _, _ = Judged(("gradient_input",)).case(trace, "similarity:A dog lay on the floor.", budget=20)
    judgement = causal(case)
    assert judgement.undecided == "a budget of 20 passes is too small for exact Shapley values of 5 tokens"
    assert np.isnan(judgement.values["shapley"]).all() and np.isfinite(judgement.values["activation"]).all()
