"""The audits of the arena on planted models, where the right verdict is known, both ways."""

import copy
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import identiscope
import rewritable
from identiscope.capture.outcome.texts import similarity_to_ids
from identiscope.judge.arena.asking import Judged
from identiscope.judge.audits.alternatives import ALTERNATIVES, other_attention
from identiscope.judge.audits.gauge import gauge
from identiscope.judge.audits.null import null
from identiscope.judge.audits.redrawn import left_by_chance, redrawn
from identiscope.judge.case import Case
from identiscope.judge.truths.inputs import COMPILED, planted_inputs
from identiscope.linalg.tolerance import SAME_ANSWER


def by_input(model: Any, ids: Any, runs: Any) -> np.ndarray:
    """A scorer that looks at the text alone."""
    return np.array([1.0 + token for token in ids])


def cases(task: str, methods: tuple[str, ...], count: int = 1) -> list[tuple[str, Case]]:
    judged = Judged(methods, {"by_input": by_input})
    return [
        (one.version, judged.case(one.trace, one.outcome, players=one.players, number=number)[0])
        for number, one in enumerate(planted_inputs({task: COMPILED[task]}, count))
    ]


def test_attention_of_silent_heads_is_free_and_what_they_write_is_not() -> None:
    """Three heads of four write nothing, so that their attention may be anything: what is made of it must move. What
    weighs it by what is written, and what is left of it that has an effect, must stay. A gradient reads none of it."""
    methods = ("attention", "weighted_norm", "effective_simplex_span", "gradient_input")
    for _, case in cases("copy", methods):
        judgement = null(case)
        moved = dict(zip(case.names, judgement.values["change"], strict=True))
        assert moved["attention"] > 0.1
        assert moved["weighted_norm"] < SAME_ANSWER and moved["effective_simplex_span"] < SAME_ANSWER
        assert np.isnan(moved["gradient_input"]) and np.isnan(moved["by_input"])
        assert judgement.ceiling["change"] == 0.0 and judgement.chance["change"] > 0.1


def test_what_is_free_among_copies_is_told_from_what_is_free_between_words() -> None:
    """Without positions copies have the same states. Of two words alone nothing is then free but among copies, which a
    reader does not see; of more words than a head has channels something is."""
    module = rewritable.model("bert")
    torch.nn.init.zeros_(module.embeddings.position_embeddings.weight)
    words = np.random.default_rng(0).permutation(np.repeat(np.arange(5, 15), 2)).tolist()
    judged = {}
    for text in ([5, 17] * 5, words):
        case, _, _ = Judged(("attention", "effective_simplex_span")).case(identiscope.trace(module, text), _length)
        judged[len(set(text))] = case, null(case)
    case, judgement = judged[2]
    assert judgement.values["change"][0] > 0.01 and judgement.chance["change"] > 0.1
    assert judgement.values.keys() == judgement.chance.keys() == judgement.ceiling.keys() == {"change", "top_survives"}
    case, judgement = judged[10]
    assert judgement.values["merged_change"][1] < 1e-6 < 0.01 < judgement.values["merged_change"][0]
    assert judgement.values["merged_change"][0] < judgement.values["change"][0]
    # What is known of equal tokens, in plain words: the share of each word, and how far these have moved at most.
    largest, before = 0.0, case.scores[0]
    for how in ALTERNATIVES:
        other = other_attention(case.trace, case.runs.outcome.stream, how, token=int(before.argmax()), starts=0)
        after = case.ask(other.trace)[0]
        shares = [[scores[np.array(words) == word].sum() / scores.sum() for word in set(words)]
                  for scores in (before, after)]  # fmt: skip
        largest = max(largest, 0.5 * sum(abs(one - two) for one, two in zip(*shares, strict=True)))
    assert judgement.values["merged_change"][0] == pytest.approx(largest, abs=1e-9)
    assert judgement.ceiling["merged_change"] == 0.0 < judgement.chance["merged_change"] < judgement.chance["change"]


def _length(run: Any) -> torch.Tensor:
    """An outcome of a model without a head: how long the first state is."""
    return run.hidden_states[-1][0].norm()


def test_where_a_constant_is_counted_is_a_matter_of_writing_and_a_gradient_is_not() -> None:
    """Rewritten, the function is the same: gradients by the input and attention must stay. Where a constant is added to
    the values and taken off behind them, what weighs attention by values must move."""
    one = next(iter(planted_inputs({"look_up": COMPILED["look_up"]}, 1)))
    assert one.trace.model is not None and one.trace.main.ids is not None
    # Its norms divide by a great number, and are rotated exactly in float64 alone.
    wide = identiscope.load(copy.deepcopy(one.trace.model.module).double())
    judged = Judged(("attention", "gradient_input", "weighted_norm"), {"by_input": by_input})
    seen = identiscope.trace(wide, list(one.trace.main.ids))
    assert seen.logits is not None
    case, _, _ = judged.case(seen, f"logit:id:{int(seen.logits[-1].argmax())}", players=one.players)
    judgement = gauge(case)
    moved = dict(zip(case.names, judgement.values["change"], strict=True))
    assert max(moved["attention"], moved["gradient_input"], moved["by_input"]) < SAME_ANSWER
    assert moved["weighted_norm"] > 0.1 and moved["random"] > 0.1


def test_what_a_planted_model_uses_is_gone_with_its_layers_and_what_is_about_the_text_stays() -> None:
    """With random layers the mechanism is no more: the gradient, which has found it, must say other things."""
    left: dict[str, list[float]] = {}
    for _, case in cases("look_up", ("gradient_input",), 6):
        judgement = redrawn(case)
        assert np.array_equal(judgement.values["left"], np.abs(judgement.values["rank_correlation"]))
        for name, value in zip(case.names, judgement.values["rank_correlation"], strict=True):
            left.setdefault(name, []).append(float(value))
    assert np.mean(left["by_input"]) == pytest.approx(1.0)
    assert np.mean(left["gradient_input"]) < 0.5


def test_what_chance_leaves_is_the_mean_over_all_orders() -> None:
    sizes = [abs(stats.spearmanr(range(5), order).statistic) for order in permutations(range(5))]
    assert left_by_chance(5) == pytest.approx(np.mean(sizes), abs=0.02)


def test_what_a_pair_is_like_is_read_again_by_the_rewritten_model(minilm: identiscope.Model) -> None:
    """Coordinates of its states are permuted, and so must be those of the second text; else the question is another."""
    second = minilm.tokenizer("At sunrise the ship returned.")["input_ids"]
    seen = identiscope.trace(minilm, "The boat came home at dawn.")
    judged = Judged(("gradient_input", "weighted_norm"))
    case, _, _ = judged.case(seen, similarity_to_ids(second))
    gradient, norm, _ = gauge(case).values["change"]
    assert gradient < 1e-4 < 0.1 < norm
    # An outcome that knows nothing of the rewriting is found out.
    fixed, _, _ = judged.case(seen, replace(case.runs.outcome))
    assert "of the rewritten model" in gauge(fixed).undecided
