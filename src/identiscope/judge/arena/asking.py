"""What every method says of a text, with the random scorer among them: the cases that tests are given."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from identiscope.asking.explaining import scores_of
from identiscope.errors import IdentiscopeError, InputError
from identiscope.judge.arena.columns import word_of
from identiscope.judge.case import CEILING, CHANCE, RANDOM, Case, Numbers
from identiscope.methods.outcome_runs import OutcomeRuns
from identiscope.methods.registry import METHODS

if TYPE_CHECKING:
    from identiscope.capture import Trace

#: From a model, the ids of a text and the outcome that is explained to a score for each token.
Scorer = Callable[[Any, Sequence[int], OutcomeRuns], Any]


@dataclass(frozen=True, eq=False)
class Judged:
    """The methods under judgement: names of the registry, and scorers of others by the names they are to have."""

    methods: tuple[str, ...]
    others: Mapping[str, Scorer] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        names = (*METHODS, *(alias for one in METHODS.values() for alias in one.aliases), *self.methods)
        taken = {word_of(name): name for name in (*names, RANDOM, CHANCE, CEILING)}
        for name in self.others:
            if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > _LONGEST:
                raise InputError(
                    f"a method of others was called {name!r:.80}; expected letters of a to z, digits, _, - and ., at"
                    f" most {_LONGEST} of them, and not - or . at the beginning."
                )
            if (other := taken.get(word_of(name))) is not None:
                raise InputError(
                    f"a method of others was called {name!r}, and another one is called {other} (capitals, - and . do"
                    f" not tell names apart); give another name, such as my_{name}."
                )
            taken[word_of(name)] = name

    @property
    def names(self) -> tuple[str, ...]:
        """All that are judged, the random scorer last."""
        return (*self.methods, *self.others, RANDOM)

    def case(
        self,
        trace: "Trace",
        outcome: Any = None,
        *,
        truth: NDArray[np.bool_] | None = None,
        players: NDArray[np.bool_] | None = None,
        version: str = "",
        budget: int | None = None,
        number: int = 0,
    ) -> tuple[Case, dict[str, str], dict[str, float]]:
        """The case of a text; why methods failed, by name; and what each took, in passes.

        players: the tokens that are judged; by default all that are not special. number: of the text, for what is
        drawn.
        """
        runs, scores, failed, passes = self._asked(trace, outcome, (self.seed, number, 0))
        special = np.array([flag for part in runs.sources for flag in part.special], bool)
        drawn = 0

        def ask(other: "Trace") -> Numbers:
            nonlocal drawn
            drawn += 1
            return self._asked(other, runs.given_for(other), (self.seed, number, drawn))[1]

        judged = ~special if players is None else players
        case = Case(trace, runs, self.names, scores, judged, ask, truth, version, budget, self.seed + number)
        for place in np.flatnonzero(~case.heard):
            # Such as attention of a decoder, of what the encoder reads.
            silent = int((~np.isfinite(scores[place, judged])).sum())
            words = f"it says nothing of {silent} of the {int(judged.sum())} tokens that are judged"
            failed.setdefault(self.names[place], words)
        return case, failed, passes

    def _asked(
        self, trace: "Trace", outcome: Any, key: tuple[int, ...]
    ) -> tuple[OutcomeRuns, Numbers, dict[str, str], dict[str, float]]:
        runs, answers = scores_of(trace, outcome, self.methods, dict(self.options))
        failed = {answer.name: answer.failed for answer in answers if answer.failed}
        passes = {answer.name: answer.passes for answer in answers}
        count = sum(len(part) for part in runs.sources)
        rows = [answer.scored.score for answer in answers]
        for name, scorer in self.others.items():
            try:
                rows.append(_checked(name, scorer(trace.model, _ids(runs), runs), count))
            except Exception as error:  # somebody else's function may raise anything; all others are judged
                ours = isinstance(error, IdentiscopeError)
                failed[name] = str(error) if ours else f"{name} failed: {type(error).__name__}: {error}"
                rows.append(np.full(count, np.nan))
            passes[name] = float("nan")
        rows.append(np.random.default_rng(key).random(count))
        passes[RANDOM] = 0.0
        return runs, np.stack(rows), failed, passes


#: Of methods of others; they are shown on pages and terminals.
_NAME, _LONGEST = re.compile("[A-Za-z0-9_][A-Za-z0-9_.-]*"), 48


def _ids(runs: OutcomeRuns) -> list[int]:
    return [token for part in runs.sources for token in (part.ids or ())]


def _checked(name: str, scores: Any, count: int) -> Numbers:
    """Scores that somebody else's function gave, as numbers; anything that is not one for each token is refused."""
    given = plain_numbers(scores)
    if given.shape != (count,):
        raise InputError(f"{name} gave scores of shape {list(given.shape)}; expected one for each of {count} tokens.")
    if not np.isfinite(given).all():
        raise InputError(f"{name} gave scores that are not finite for {int((~np.isfinite(given)).sum())} tokens.")
    return given


def plain_numbers(scores: Any) -> Numbers:
    """Numbers of another tool, in whatever precision and wherever they are, such as bfloat16, which NumPy has not."""
    given = scores.detach().cpu().double() if hasattr(scores, "detach") else scores
    return np.asarray(given, dtype=np.float64)
