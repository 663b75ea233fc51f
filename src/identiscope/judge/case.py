"""What a test of the judge is given, and what it gives: one text with what every method says of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from identiscope.methods.outcome_runs import OutcomeRuns

if TYPE_CHECKING:
    from identiscope.capture import Trace

Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Case:
    """One text under judgement.

    names: the methods, with the random scorer (`RANDOM`) among them. scores [method, input]: what each says of each
    input, with its sign; NaN where it says nothing. players [input]: the inputs that are judged, special tokens left
    out. ask: the same methods of another trace, [method, input]; the random scorer draws anew. runs: the outcome, which
    can be asked again. truth [input]: the inputs that a planted model truly uses; version: which of its measures such a
    case is for, as their names begin. budget: at most so many passes for
    this text in each test, where a test can do with less. seed: of what is drawn.
    """

    trace: "Trace"
    runs: OutcomeRuns
    names: tuple[str, ...]
    scores: Numbers
    players: NDArray[np.bool_]
    ask: "Callable[[Trace], Numbers]"
    truth: NDArray[np.bool_] | None = None
    version: str = ""
    budget: int | None = None
    seed: int = 0

    @property
    def heard(self) -> NDArray[np.bool_]:
        """Which methods say something of every player, [method]; of the others nothing can be judged."""
        return np.asarray(np.isfinite(self.scores[:, self.players]).all(1))


@dataclass(frozen=True, eq=False)
class Judgement:
    """What a test says of one text, by the names of its measures.

    values [method]: NaN is undecided. chance: what a scorer that knows nothing has on this text, on average. ceiling:
    the best there is on this text, by the scores that the test knows to be right and that went the way of all others.
    Both NaN where the test has no such control. passes: runs of the model. undecided: why, where nothing is decided.
    """

    values: Mapping[str, Numbers]
    chance: Mapping[str, float] = field(default_factory=dict)
    ceiling: Mapping[str, float] = field(default_factory=dict)
    passes: float = 0.0
    undecided: str = ""


#: The control that knows nothing; drawn anew for every text.
RANDOM = "random"
#: Rows of every table beside the methods: what a scorer that knows nothing would have, and the best there is.
CHANCE, CEILING = "chance", "ceiling"
