"""Randomisation: layers drawn anew from the top, one after another. An answer that stays is about the input."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import xarray as xr

from identiscope.asking.ask import outcome_facts
from identiscope.asking.explaining import chosen_methods
from identiscope.asking.provenance import trace_provenance
from identiscope.capture.capturing import retrace, trace
from identiscope.capture.models import Model, load
from identiscope.capture.redrawing import blocks_of, redraw
from identiscope.judge.audits.answers import Options, asked, same_outcome
from identiscope.judge.audits.changes import Numbers
from identiscope.judge.audits.findings import STAYS, SURVIVES, UNDECIDED, in_words
from identiscope.judge.case import Case, Judgement
from identiscope.linalg.tolerance import VARIANCE_FLOOR
from identiscope.methods.trace_fields import runs_of
from identiscope.progress import Progress, tell
from identiscope.results import make_result
from identiscope.stats.rank_correlation import spearman

#: Two-sided 5 % of a normal distribution: beyond it a rank correlation is more than chance, of either sign.
_MORE_THAN_CHANCE = 1.96
_LEAST_TOKENS = 6
#: Orders from which is told what chance leaves.
_DRAWN = 2000
RULE = (
    "a method survives if its answer does not: with all layers drawn anew, the rank correlation with the original"
    " answer, mean over the draws, is at most as large, of either sign, as what chance exceeds in 5 % of cases,"
    " 1.96/√((tokens − 1)·draws)"
)


def randomisation(
    model: Any,
    text: Any,
    methods: str | Sequence[str] = "fast",
    outcome: str | int | Callable[..., Any] | None = None,
    *,
    draws: int = 3,
    steps: int | None = None,
    options: Options | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> xr.Dataset:
    """What is left of answers as the layers of a model are drawn anew, from the top, one after another.

    >>> left = identiscope.randomisation("smollm2", text, ["saliency", "rollout"])
    >>> left["rank_correlation"].mean("draw")

    Adebayo et al. 2018 (cascading): a method that says the same of a model of random weights speaks of the input.
    `rank_correlation` [method, redrawn, draw] is Spearman's between the sizes of the scores, special tokens left out,
    ties sharing their ranks; not a number where an answer does not vary. `verdict` follows the attribute `rule`.

    outcome: the same word or class in all models. draws: how often each model is drawn. steps: at most so many numbers
    of layers, evenly spread up to all; by default each. options: of methods, by their name. seed: of the draws.
    """
    loaded, chosen = load(model), chosen_methods(methods)
    first = trace(loaded, text)
    runs = runs_of(first, outcome)
    facts = outcome_facts(runs)
    before = asked(chosen, first, runs, options)
    blocks = blocks_of(first)
    counts = _counts(len(blocks), steps)
    ordinary = ~np.array([flag for part in runs.sources for flag in part.special], bool)
    ordinary = ordinary if ordinary.sum() >= _LEAST_TOKENS else np.ones_like(ordinary)
    table = np.full((len(chosen), len(counts), draws), np.nan)
    failed = {one.name: before[one.name].failed for one in chosen}
    passes = dict.fromkeys(failed, 0.0)
    for draw in range(draws):
        for at, count in enumerate(counts):
            tell(progress, f"{count} of {len(blocks)} layers drawn anew", draw * len(counts) + at, draws * len(counts))
            other = redraw(loaded, blocks[len(blocks) - count :], seed + draw)
            again = retrace(first, other)
            for place, (name, answer) in enumerate(asked(chosen, again, same_outcome(runs, again), options).items()):
                failed[name] = failed[name] or answer.failed
                passes[name] += answer.passes
                table[place, at, draw] = left_over(before[name].score, answer.score, ordinary)
    tell(progress, "", draws * len(counts), draws * len(counts))
    verdicts = [_verdict(row, int(ordinary.sum())) for row in table[:, -1]]
    origin = trace_provenance(first, methods=list(failed), draws=draws, steps=steps, seed=seed)
    origin |= {"verdict": in_words(dict(zip(failed, verdicts, strict=True)))}
    origin |= {"kind": "audit", "rule": RULE, "says": "what is left of answers as layers are drawn anew from the top"}
    origin |= {name: value for name, value in facts.items() if name != "passes"}
    return make_result(
        "randomisation",
        {
            "rank_correlation": (("method", "redrawn", "draw"), table),
            "verdict": (("method",), np.array(verdicts, dtype=object)),
            "failed": (("method",), np.array(list(failed.values()), dtype=object)),
            "passes": (("method",), np.array(list(passes.values()))),
        },
        coordinates={"method": list(failed), "redrawn": counts, "draw": list(range(draws))},
        provenance=origin,
    )


def left_over(before: Numbers, after: Numbers, judged: np.ndarray) -> float:
    """Spearman's correlation of the sizes of two scores [input], over the inputs that are judged."""
    both = judged & np.isfinite(before) & np.isfinite(after)
    return spearman(np.abs(before[both]), np.abs(after[both]), floor=VARIANCE_FLOOR)


def chance_bound(tokens: int, draws: int) -> float:
    """What the size of the mean of so many rank correlations of unrelated answers exceeds in 5 % of cases."""
    return float(_MORE_THAN_CHANCE / np.sqrt((tokens - 1) * draws))


def _verdict(last: Numbers, tokens: int) -> str:
    """Of the correlations [draw] with all layers drawn anew."""
    known = last[np.isfinite(last)]
    if not len(known) or tokens < _LEAST_TOKENS:
        return UNDECIDED
    # An answer that is turned around is not gone either.
    return SURVIVES if abs(known.mean()) <= chance_bound(tokens, len(known)) else STAYS


def _counts(blocks: int, steps: int | None) -> list[int]:
    """How many layers are drawn anew, one after another, all in the end."""
    if steps is None or steps >= blocks:
        return list(range(1, blocks + 1))
    return sorted({round(share) for share in np.linspace(blocks / steps, blocks, steps)})


@lru_cache(maxsize=1)
def _all_redrawn(model: Model, blocks: tuple[str, ...], seed: int) -> Model:
    return redraw(model, blocks, seed)


def redrawn(case: Case) -> Judgement:
    """The rank correlation of each method's score with that of the model whose layers are all drawn anew.

    `left` is its size: an answer that is turned around is not gone either.
    """
    values = np.full(len(case.names), np.nan)
    model = case.trace.model
    assert model is not None
    other = _all_redrawn(model, tuple(blocks_of(case.trace)), 0)
    after = case.ask(retrace(case.trace, other))
    for place in np.flatnonzero(case.heard):
        values[place] = left_over(case.scores[place], after[place], case.players)
    chance = {"left": left_by_chance(int(case.players.sum())), "rank_correlation": 0.0}
    return Judgement({"left": np.abs(values), "rank_correlation": values}, chance=chance, passes=1.0)


@lru_cache
def left_by_chance(tokens: int) -> float:
    """The mean size of the rank correlation of two orders that have nothing to do with each other."""
    generator = np.random.default_rng(tokens)
    order = np.arange(tokens, dtype=np.float64)
    drawn = [spearman(order, generator.permutation(order)) for _ in range(_DRAWN)] if tokens > 1 else [np.nan]
    return float(np.mean(np.abs(drawn)))


def planned(tokens: int, methods: int, budget: int | None) -> int:
    """One pass of the re-drawn model, and one of each method there."""
    return 1 + methods
