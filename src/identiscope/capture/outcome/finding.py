"""Find an outcome that is asked for in words (a word, a class, a difference, `similarity:TEXT`) or as a function."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from identiscope.capture.outcome.logits import outcome_of_logits
from identiscope.capture.outcome.outcome import Outcome, Seen
from identiscope.capture.outcome.texts import loss, similarity
from identiscope.capture.substitution import Rerun
from identiscope.errors import InputError

if TYPE_CHECKING:
    from identiscope.capture.trace import Trace

_SIMILAR_TO_IDS = re.compile(r"similarity-ids:\d+( \d+)*")
#: The mean loss of the next token, of a model that predicts it.
LOSS = "loss"
#: What an outcome may be given as: words, the number of a class, or a function from what a run returned.
Given = str | int | Callable[[Rerun], Tensor] | None


def find_outcome(trace: "Trace", given: Given = None) -> Outcome:
    """The outcome that was asked for, or the usual one of such a model.

    >>> find_outcome(trace, "Paris").name
    "log-probability of ' Paris' as the next token"
    """
    if trace.model is None or trace.batch is None:
        raise InputError("a trace made from arrays has no model, and so no outcome.")
    if isinstance(given, Outcome):
        return given
    if callable(given):
        return Outcome(f"{getattr(given, '__name__', 'a function')}, as given", "number", _called(given), trace)
    if isinstance(given, str) and given.startswith("similarity:"):
        return similarity(trace, given.removeprefix("similarity:").strip())
    if isinstance(given, str) and _SIMILAR_TO_IDS.fullmatch(given):
        return similarity(trace, [int(token) for token in given.split(":")[1].split()])
    if given == LOSS:
        return loss(trace)
    if not (given is None or isinstance(given, (str, int))) or isinstance(given, bool):
        raise InputError(f"outcome={given!r} was given; expected words, the number of a class, or a function.")
    if trace.logits is None:
        raise InputError(
            f"{trace.model.name} ({type(trace.model.inner).__name__}) returns hidden states and no logits, so there is"
            f" no usual outcome{'' if given is None else f' and no {given!r}'}. Say what is to be explained:"
            " similarity:TEXT, the cosine with another text (--outcome 'similarity:A second text.'), or in Python a"
            " function of the states."
        )
    return outcome_of_logits(trace, given)


def _called(function: Callable[[Rerun], Tensor]) -> Callable[[Seen], Tensor]:
    def of(seen: Seen) -> Tensor:
        made = seen.forward
        size = next(len(states[0]) for states in made.hidden_states.values() if states)
        numbers = []
        for text in range(size):
            streams = {name: tuple(state[text] for state in states) for name, states in made.hidden_states.items()}
            number = function(Rerun(None if made.logits is None else made.logits[text], streams))
            if not isinstance(number, Tensor) or number.numel() != 1 or not number.is_floating_point():
                raise InputError(
                    f"the outcome's function returned {type(number).__name__}; expected a tensor with one number, made"
                    " of what it was given, so that it can be differentiated."
                )
            numbers.append(number.reshape(()))
        return torch.stack(numbers)

    return of
