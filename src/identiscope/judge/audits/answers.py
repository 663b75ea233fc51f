"""What a method says of a trace, on its own axes and as a score of the inputs, so that it can be asked again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from identiscope.asking.ask import bound
from identiscope.asking.scoring import answers, converted, own_values
from identiscope.errors import IdentiscopeError
from identiscope.judge.audits.changes import Change, Numbers, change
from identiscope.methods.fields import shared_attention
from identiscope.methods.outcome_runs import OutcomeRuns
from identiscope.methods.registry import Method
from identiscope.methods.trace_fields import runs_of

if TYPE_CHECKING:
    from identiscope.capture import Trace

#: Method → options of it, beside the usual ones.
Options = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, eq=False)
class Answer:
    """score [input]; rows: on the axes of the method's kind, tokens last; passes: its cost; failed: why it has none."""

    score: Numbers
    rows: Numbers
    passes: float
    failed: str = ""


def same_outcome(runs: OutcomeRuns, trace: "Trace") -> OutcomeRuns:
    """The outcome of one trace, of another model's trace of the same text."""
    return runs_of(trace, runs.given_for(trace))


def asked(
    methods: Sequence[Method], trace: "Trace", runs: OutcomeRuns, options: Options | None = None
) -> dict[str, Answer]:
    """What methods say; runs: the outcome, perhaps of another trace of the same pass."""
    stream = trace.streams[runs.outcome.stream].name
    with shared_attention():
        return {one.name: _asked(one, trace, runs, stream, (options or {}).get(one.name, {})) for one in methods}


def _asked(one: Method, trace: "Trace", runs: OutcomeRuns, stream: str, options: Mapping[str, Any]) -> Answer:
    call = bound(one, {})
    known = dict(one.brief) | dict(options)
    known |= {"outcome": runs} if "outcome" in {**call.choices, **call.options} else {}
    before, nothing = runs.passes, np.full(sum(len(part) for part in runs.sources), np.nan)
    try:
        made = list(answers(one, trace, runs, stream, known))
        rows = np.concatenate([own_values(one, result) for result in made])
        score = converted(one, made, runs, stream).score
    except IdentiscopeError as error:
        return Answer(nothing, nothing, runs.passes - before, str(error))
    return Answer(score, rows, runs.passes - before)


def compared(before: Answer, after: Answer, groups: NDArray[np.int64], heads: Numbers | None = None) -> Change:
    """How far the second answer is from the first; heads [layer, head]: which head of the first stands where in the
    second, so that what is said of heads is compared after the relabelling is undone."""
    rows = after.rows
    if heads is not None and rows.ndim == 4:
        rows = np.empty_like(after.rows)
        for layer, order in enumerate(heads):
            rows[layer, order] = after.rows[layer]
    return change(before.score, after.score, (before.rows, rows), groups)


def token_groups(runs: OutcomeRuns) -> NDArray[np.int64]:
    """Which inputs are the same token, [input]: the number of the group of each."""
    number: dict[str, int] = {}
    tokens = [token for part in runs.sources for token in part.tokens]
    return np.array([number.setdefault(token, len(number)) for token in tokens], dtype=np.int64)
