"""How far a method's scores are those of causal yardsticks: Shapley values, single tokens, and patching."""

import numpy as np
import torch

from identiscope.judge.case import Case, Judgement, Numbers
from identiscope.judge.truths.patching import other_words, patched
from identiscope.judge.truths.perturbed import masked
from identiscope.judge.truths.shapley_values import shapley_values
from identiscope.stats.rank_correlation import spearman

#: Up to so many tokens Shapley values are exact: 2ⁿ texts are run.
EXACT = 12
#: Other words for each token that patching puts in its place.
_WORDS = 2
_FLOOR = 1e-12


def causal(case: Case) -> Judgement:
    """Spearman's correlation of a method's scores with each yardstick, over the players; signs are kept.

    `shapley`: exact Shapley values with a special token in the place of those that are not there, for texts of at most
    twelve tokens. `leave_one_out`: what the outcome loses without a token. `activation` and `attribution`: what it
    loses if a token's embedding is that of another word, so that two texts differ in one word, measured by running
    (activation patching) and to first order (attribution patching); the mean over words that are drawn.
    """
    names = ("shapley", "leave_one_out", "activation", "attribution")
    values = {name: np.full(len(case.names), np.nan) for name in names}
    chance, ceiling = dict.fromkeys(names, float("nan")), dict.fromkeys(names, float("nan"))
    count = int(case.players.sum())
    if count < 3:
        return Judgement(values, undecided=f"{count} tokens have no ranking to speak of")
    budget = 2**EXACT if case.budget is None else case.budget
    outcome = masked(case)
    known = outcome.passes
    yardsticks: dict[str, Numbers] = {}
    if count <= EXACT and 2**count <= budget:
        yardsticks["shapley"] = shapley_values(outcome, count)
    alone = outcome(np.concatenate([np.ones((1, count), bool), ~np.eye(count, dtype=bool)]))
    yardsticks["leave_one_out"] = alone[0] - alone[1:]
    before = case.runs.passes
    yardsticks["activation"], yardsticks["attribution"] = _patching(case)
    for name, truth in yardsticks.items():
        # A yardstick that does not vary orders nothing.
        if np.isnan(spearman(truth, truth, floor=_FLOOR)):
            continue
        for row in np.flatnonzero(case.heard):
            values[name][row] = _agreement(case, case.scores[row], truth)
        own = np.zeros(len(case.players))
        own[case.players] = truth
        chance[name], ceiling[name] = 0.0, _agreement(case, own, truth)
    why = ""
    if count > EXACT:
        why = f"{count} tokens are too many for exact Shapley values"
    elif "shapley" not in yardsticks:
        why = f"a budget of {budget} passes is too small for exact Shapley values of {count} tokens"
    return Judgement(values, chance, ceiling, outcome.passes - known + case.runs.passes - before, why)


def _agreement(case: Case, scores: Numbers, truth: Numbers) -> float:
    """Spearman's correlation of scores [input] with a yardstick [player]. Equal scores order nothing: over orders of
    these the correlation is zero on average."""
    correlation = spearman(scores[case.players], truth)
    return 0.0 if np.isnan(correlation) else correlation


def planned(tokens: int, methods: int, budget: int | None) -> int:
    """Every set of a short text; single tokens; and the words of patching, with one backward pass."""
    exact = 2**tokens if tokens <= EXACT and 2**tokens <= (2**EXACT if budget is None else budget) else 0
    return exact + 1 + tokens + _WORDS * (tokens + 1) + 3


def _patching(case: Case) -> tuple[Numbers, Numbers]:
    """What the outcome loses by another word in each player's place, run and to first order, [player]."""
    generator = np.random.default_rng((case.seed, _PATCHED))
    players = torch.from_numpy(np.flatnonzero(case.players))
    drawn = [patched(case.runs, other_words(case, generator), players) for _ in range(_WORDS)]
    return np.mean([one.activation for one in drawn], 0), np.mean([one.attribution for one in drawn], 0)


_PATCHED = 3
