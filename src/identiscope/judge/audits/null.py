"""Null audit: the same text, other attention with the same output. Does a method say the same?"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from identiscope.asking.ask import bound, outcome_facts
from identiscope.asking.explaining import chosen_methods
from identiscope.asking.provenance import trace_provenance
from identiscope.judge.audits.alternatives import ALTERNATIVES, Alternative, OtherAttention, other_attention
from identiscope.judge.audits.answers import Answer, Options, asked, compared, token_groups
from identiscope.judge.audits.changes import CEILING, RULE, Numbers, chance, scores_compared
from identiscope.judge.audits.findings import NOT_APPLICABLE, UNDECIDED, Findings
from identiscope.judge.audits.intervals import top_intervals
from identiscope.judge.case import RANDOM, Case, Judgement
from identiscope.linalg.tolerance import SAME_ANSWER
from identiscope.methods.fields import SEE_WEIGHTS
from identiscope.methods.outcome_runs import OutcomeRuns
from identiscope.methods.registry import METHODS, Method
from identiscope.methods.trace_fields import runs_of
from identiscope.progress import Progress, part_of

if TYPE_CHECKING:
    from identiscope.capture import Trace


#: Arrays of exact bounds.
_ENDS = ("top_value", "top_lower", "top_upper")
#: What names begin with of what is said of equal tokens added up.
_MERGED = "merged_"


def sees_weights(one: Method) -> bool:
    """Whether a method reads the weights of attention themselves, by what its function asks for."""
    return bool(SEE_WEIGHTS & set(bound(one, {}).fields))


def null_audit(
    trace: "Trace",
    methods: str | Sequence[str] = "all",
    outcome: str | int | Callable[..., Any] | None = None,
    *,
    alternatives: Sequence[Alternative] = ALTERNATIVES,
    options: Options | None = None,
    starts: int = 1,
    intervals: int = 8,
    seed: int = 0,
    progress: Progress | None = None,
) -> xr.Dataset:
    """What methods say of a text with other attention that gives every head the same output.

    >>> audit = identiscope.null_audit(trace, ["attention", "rollout"], "similarity:A boat came.")
    >>> audit["verdict"], audit["total_variation"]

    All heads of all layers are given other maps at once, so that every hidden state stays what it is: the farthest that
    is found, one that avoids the answer's own strongest token (with its copies), and the shortest. Gradients are those
    of the pass itself, which are the same at all of these. A method that does not read attention, by what its function
    asks for, is not applicable. Numbers are [method, alternative], as `Change` says; `distance` and `merged_distance`
    say how far the attention itself has moved. Where that is next to nothing (a text with fewer tokens than a head has
    channels), nothing is decided. `merged_verdict` is the same with what is said of equal tokens added up.

    Of answers that are linear in attention `top_value` is the mean value of the strongest token of a row, or the score
    of the strongest input, and `top_lower` and `top_upper` are exact bounds of it over all attention with this output;
    `merged_top_…` are the same of equal tokens added up.

    methods: as for `explain`. options: of methods, by their name. starts: searches for the farthest. intervals: rows of
    each head of which bounds are taken, evenly spread; 0 for none. seed: of the searches.
    """
    chosen, runs = chosen_methods(methods), runs_of(trace, outcome)
    facts = outcome_facts(runs)
    able = [one for one in chosen if sees_weights(one)]
    findings = Findings([one.name for one in chosen], list(alternatives))
    for one in chosen:
        if one not in able:
            findings.said[one.name] = NOT_APPLICABLE
            findings.failed[one.name] = "it does not read attention"
    before = asked(able, trace, runs, options)
    found = _Alternatives(trace, runs.outcome.stream, starts, seed)
    groups = token_groups(runs)
    moved = np.full((2, len(chosen), len(alternatives)), np.nan)
    steps = max(1, len(able) * len(alternatives))
    for done, (one, at, how) in enumerate((one, at, how) for one in able for at, how in enumerate(alternatives)):
        answer = before[one.name]
        findings.failed[one.name] = answer.failed
        if answer.failed:
            continue
        other = found.of(how, answer.score, part_of(progress, done, steps, f"{one.name}, {how}: "))
        moved[:, chosen.index(one), at] = other.distance, other.merged_distance
        after = asked([one], other.trace, runs, options)[one.name]
        findings.failed[one.name] = after.failed
        if not after.failed:
            findings.add(one.name, how, compared(answer, after, groups), after.passes)
    for place, one in enumerate(chosen):
        if one in able and not np.nanmax(moved[0, place], initial=0.0) > SAME_ANSWER:
            findings.said[one.name] = UNDECIDED
            findings.failed[one.name] = findings.failed[one.name] or "no attention but its own gives this output here"
        elif one in able and not np.nanmax(moved[1, place], initial=0.0) > SAME_ANSWER:
            # What moves among copies alone is no freedom that a reader would see.
            findings.merged[one.name] = UNDECIDED
    own, equal = (
        _ends(chosen, able, before, trace, runs, found, options, intervals, some)
        for some in (np.arange(len(groups)), groups)
    )
    ends = own | {f"{_MERGED}{name}": values for name, values in equal.items()}
    origin = trace_provenance(trace, methods=[one.name for one in chosen], alternatives=list(alternatives), seed=seed)
    more: dict[str, tuple[Sequence[str], Any]] = {
        "distance": (("method", "alternative"), moved[0]),
        "merged_distance": (("method", "alternative"), moved[1]),
        **{name: (("method",), values) for name, values in ends.items()},
    }
    origin |= {"rule": RULE, "says": "what each method says with other attention of the same output"}
    origin |= {name: value for name, value in facts.items() if name != "passes"}
    return findings.result("null_audit", "alternative", origin, more)


class _Alternatives:
    """Traces with other attention, each made once; what is to be avoided differs by method."""

    def __init__(self, trace: "Trace", stream: str, starts: int, seed: int) -> None:
        self.trace, self.stream, self.starts, self.seed = trace, stream, starts, seed
        self.made: dict[tuple[str, int | None], OtherAttention] = {}

    def of(self, how: Alternative, score: Numbers, progress: Progress | None = None) -> OtherAttention:
        """The alternative for a method that gave this score [input]."""
        token = self._top(score) if how == "avoid" else None
        if (how, token) not in self.made:
            self.made[how, token] = other_attention(
                self.trace, self.stream, how, token=token, starts=self.starts, seed=self.seed, progress=progress
            )
        return self.made[how, token]

    def _top(self, score: Numbers) -> int:
        """The strongest input of the stream; what an encoder brings stands before those of its decoder."""
        own = score[len(score) - len(self.trace.streams[self.stream]) :]
        return int(np.nanargmax(np.abs(own)))


def _ends(
    chosen: Sequence[Method], able: Sequence[Method], before: dict[str, Answer], trace: "Trace", runs: OutcomeRuns,
    found: _Alternatives, options: Options | None, rows: int, groups: NDArray[np.int64],
) -> dict[str, Numbers]:  # fmt: skip
    """Exact bounds of linear answers, by name of the array [method]."""
    ends = np.full((len(_ENDS), len(chosen)), np.nan)
    for place, one in enumerate(chosen if rows else ()):
        if one in able and not before[one.name].failed and found.made:
            others = [other.trace for other in found.made.values()]
            bounds = top_intervals(one, trace, others, runs, (options or {}).get(one.name, {}), rows, groups)
            ends[:, place] = np.nan if bounds is None else bounds
    return dict(zip(_ENDS, ends, strict=True))


def null(case: Case) -> Judgement:
    """The largest change of each method's score over the alternatives, and whether its strongest token stays; the same
    with equal tokens added up, unless what is free is free among copies alone."""
    able = np.array([name == RANDOM or (name in METHODS and sees_weights(METHODS[name])) for name in case.names])
    found = _Alternatives(case.trace, case.runs.outcome.stream, 0, case.seed)
    groups = token_groups(case.runs)
    said: dict[int, Numbers] = {}
    values = {f"{merged}{name}": np.full(len(case.names), np.nan) for merged in ("", _MERGED) for name in CEILING}
    for place in np.flatnonzero(able & case.heard):
        changes = []
        for how in ALTERNATIVES:
            other = found.of(how, case.scores[place])
            if id(other) not in said:
                said[id(other)] = case.ask(other.trace)
            changes.append(scores_compared(case.scores[place], said[id(other)][place], groups))
        values["change"][place] = max(one.total_variation for one in changes)
        values["top_survives"][place] = min(one.top_survives for one in changes)
        values[f"{_MERGED}change"][place] = max(one.merged_total_variation for one in changes)
        values[f"{_MERGED}top_survives"][place] = min(one.merged_top_survives for one in changes)
    if max((other.distance for other in found.made.values()), default=0.0) <= SAME_ANSWER:
        return Judgement({}, undecided="no attention but its own gives this output")
    inputs, asked_again = case.scores.shape[1], len(ALTERNATIVES)
    drawn, ceiling = chance(inputs, asked_again, case.seed), dict(CEILING)
    if max(other.merged_distance for other in found.made.values()) > SAME_ANSWER:
        merged = chance(inputs, asked_again, case.seed, groups)
        drawn |= {f"{_MERGED}{name}": value for name, value in merged.items()}
        ceiling |= {f"{_MERGED}{name}": value for name, value in CEILING.items()}
    return Judgement({name: values[name] for name in ceiling}, drawn, ceiling)


def planned(tokens: int, methods: int, budget: int | None) -> int:
    """One pass of each method at each alternative; what is to be avoided differs by method."""
    return (len(ALTERNATIVES) - 1 + methods) * methods
