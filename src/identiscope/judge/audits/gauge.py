"""Gauge audit: the same function, other weights. Does a method say the same of every text?"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import xarray as xr

from identiscope.asking.explaining import chosen_methods
from identiscope.asking.provenance import model_digests, text_digest, texts_provenance
from identiscope.capture.capturing import retrace, trace
from identiscope.capture.models import Model, load
from identiscope.capture.rewriting.rewriting import REWRITINGS, Rewritten, openings, rewrite
from identiscope.errors import InputError, ModelError
from identiscope.judge.audits.answers import Answer, Options, asked, compared, same_outcome, token_groups
from identiscope.judge.audits.changes import CEILING, RULE, chance, scores_compared
from identiscope.judge.audits.findings import Findings
from identiscope.judge.case import Case, Judgement
from identiscope.methods.trace_fields import runs_of
from identiscope.progress import Progress, tell


def gauge_audit(
    model: Any,
    texts: Sequence[Any],
    methods: str | Sequence[str] = "fast",
    outcome: str | int | Callable[..., Any] | None = None,
    *,
    how: Sequence[str] | None = None,
    options: Options | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> xr.Dataset:
    """What methods say of a model that is rewritten into one with the same function.

    >>> audit = identiscope.gauge_audit("minilm", [text], ["effective", "canonical"], "similarity:A boat came.")
    >>> audit["verdict"], audit["row_total_variation"]

    Every rewriting is verified first (`change_in_model` says by how much what the model returns has moved). Numbers are
    [method, rewriting], as `Change` says, the worst over the texts; heads that changed places are put back before
    maps are compared. `merged_verdict` is of the same with equal tokens added up. Rewritings that the family does not
    allow are in the attribute `refused`, each with the reason.

    texts: at least one. methods: as for `explain`. outcome: the same word or class is explained in both models. how:
    rewritings (of `rewrite`), several at once with commas between them; by default each that the family allows.
    options: of methods, by their name. seed: of the rewritings.
    """
    loaded, chosen = load(model), chosen_methods(methods)
    if isinstance(texts, str) or not len(texts):
        raise InputError(f"texts={texts!r} was given; expected a list of texts, at least one.")
    allowed, refused = openings(loaded) if how is None else (tuple(how), {})
    if not allowed:
        raise ModelError(f"no rewriting is open to {loaded.name}: {' '.join(refused.values())}")
    findings = Findings([one.name for one in chosen], list(allowed))
    traces = [trace(loaded, text) for text in texts]
    runs = [runs_of(one, outcome) for one in traces]
    before: list[dict[str, Answer]] = []
    steps, done = len(traces) * (1 + len(allowed)), 0
    for one, run in zip(traces, runs, strict=True):
        tell(progress, "the model as it is", done, steps)
        before.append(asked(chosen, one, run, options))
        done += 1
    moved = []
    for name in allowed:
        other = rewrite(loaded, name, seed)
        moved.append(other.change)
        for one, run, answers in zip(traces, runs, before, strict=True):
            tell(progress, name, done, steps)
            again = retrace(one, other)
            new = same_outcome(run, again)
            groups = token_groups(run)
            for method, answer in asked(chosen, again, new, options).items():
                failed = answers[method].failed or answer.failed
                findings.failed[method] = findings.failed.get(method) or failed
                if not failed:
                    change = compared(answers[method], answer, groups, other.heads.numpy())
                    findings.add(method, name, change, answer.passes)
            done += 1
    tell(progress, "", steps, steps)
    origin = texts_provenance(loaded, [text_digest(one) for one in traces], how=list(allowed), seed=seed)
    origin |= {"rule": RULE, "refused": refused, "outcome": runs[0].outcome.name, **model_digests(loaded)}
    origin |= {"says": "what each method says of the same function with other weights"}
    return findings.result("gauge_audit", "rewriting", origin, {"change_in_model": (("rewriting",), np.array(moved))})


#: An outcome of the rewritten model that is farther off is another question.
_SAME_OUTCOME = 1e-3


#: The model that was rewritten last, and what it became: texts come one after the other.
_LAST: list[tuple[Model, Rewritten]] = []


def _all_at_once(model: Model, text: Sequence[int] | None) -> Rewritten:
    """A model rewritten in every way that its family allows, one after the other, and verified on a text."""
    if not _LAST or _LAST[0][0] is not model:
        allowed, refused = openings(model)
        if not allowed:
            raise ModelError(f"no rewriting is open to {model.name}: {' '.join(refused.values())}")
        names = [name for name in REWRITINGS if name in allowed]
        _LAST[:] = [(model, rewrite(model, names, 0, texts=None if text is None else [list(text)]))]
    return _LAST[0][1]


def gauge(case: Case) -> Judgement:
    """The change of each method's score in the model rewritten in every way at once; does its strongest token stay?"""
    model = case.trace.model
    assert model is not None
    again = retrace(case.trace, _all_at_once(model, case.trace.main.ids))
    own, other = case.runs.outcome.value, same_outcome(case.runs, again).outcome.value
    if not abs(own - other) <= _SAME_OUTCOME * max(1.0, abs(own)):
        return Judgement({}, undecided=f"the outcome is {own:.4g}, and {other:.4g} of the rewritten model")
    after = case.ask(again)
    groups = token_groups(case.runs)
    values = {name: np.full(len(case.names), np.nan) for name in CEILING}
    for place in np.flatnonzero(case.heard):
        change = scores_compared(case.scores[place], after[place], groups)
        values["change"][place], values["top_survives"][place] = change.total_variation, change.top_survives
    return Judgement(values, chance(case.scores.shape[1], 1, case.seed), CEILING, passes=1.0)


def planned(tokens: int, methods: int, budget: int | None) -> int:
    """One pass of the rewritten model, and one of each method there."""
    return 1 + methods
