"""`judge` in a Run: every method under every test on each text of a corpus. Importing this brings it."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from identiscope.asking.explaining import chosen_methods
from identiscope.capture import Trace, trace
from identiscope.capture.outcome.texts import similarity_to_ids
from identiscope.errors import IdentiscopeError, InputError
from identiscope.judge.arena.asking import Judged, Scorer
from identiscope.judge.arena.columns import columns
from identiscope.judge.arena.judging import Row, judged_row
from identiscope.judge.arena.score_files import read_scores
from identiscope.judge.registry import Test, chosen_tests
from identiscope.numbers import whole_number
from identiscope.runs.compute.filling import FromTrace, RunMethod
from identiscope.runs.compute.methods import BROUGHT, Brought

#: The name of the method of a Run, and of this module, which workers import.
JUDGE, MODULE = "judge", __name__
#: The outcome that a text of two parts has: how like the second the first is.
SIMILARITY = "similarity"
_SETTINGS = ("methods", "tests", "outcome", "budget", "scores", "digest", "others", "code")
#: Functions of others, for as long as a Run of this process lasts.
_OTHERS: dict[str, Scorer] = {}


@contextmanager
def others(scorers: Mapping[str, Scorer]) -> Iterator[None]:
    """Let these functions be judged under their names, in this process, for as long as the block lasts."""
    _OTHERS.update(scorers)
    try:
        yield
    finally:
        for name in scorers:
            del _OTHERS[name]


def judged_of(settings: Mapping[str, Any], seed: int = 0) -> Judged:
    """The methods that settings name, those of files and functions of others among them."""
    methods = tuple(one.name for one in chosen_methods(settings.get("methods", "fast")))
    scorers: dict[str, Scorer] = {}
    if settings.get("scores") is not None:
        scorers |= read_scores(settings["scores"], settings.get("digest"))
    for name in settings.get("others", ()):
        if name not in _OTHERS:
            raise InputError(f"the function {name} is not known in this process; judge it with one worker, locally.")
        if name in scorers:
            raise InputError(f"a function and a file of scores are both called {name!r}; give one another name.")
        scorers[name] = _OTHERS[name]
    options = {"seed": seed} | ({"budget": settings["budget"]} if settings.get("budget") else {})
    return Judged(methods, scorers, options, seed)


def tests_of(settings: Mapping[str, Any]) -> list[Test]:
    """Those of the tests asked for that texts of a corpus are given to."""
    return [test for test in chosen_tests(settings.get("tests", "all")) if test.of == "corpus"]


def judged_text(seen: Trace, settings: Mapping[str, Any], seed: int) -> Row:
    """One text under all tests; a pair is judged by how like its second part the first is, if that is the outcome."""
    judged, tests = judged_of(settings, seed), tests_of(settings)
    outcome: Any = settings.get("outcome")
    if outcome == SIMILARITY:
        first, second = _parts(seen)
        assert seen.model is not None
        seen = trace(seen.model, first)
        outcome = similarity_to_ids(second)
    # Of its tokens, so that what is drawn does not depend on where in the corpus it stands.
    number = zlib.crc32(np.array(seen.main.ids or (0,), np.int64).tobytes())
    case, failed, passes = judged.case(seen, outcome, budget=settings.get("budget"), number=number)
    row = judged_row(case, tests, passes)
    return Row(row.numbers, {**failed, **row.undecided})


def _parts(seen: Trace) -> tuple[list[int], list[int]]:
    """The two parts of a pair as texts of their own, by their ids: each with what stands before and after both."""
    stream = seen.main
    assert stream.ids is not None
    special = np.array(stream.special, bool)
    edges = np.flatnonzero(np.diff(np.concatenate([[True], special, [True]]).astype(int)))
    runs = [(int(begin), int(end)) for begin, end in edges.reshape(-1, 2)]
    if len(runs) != 2:
        raise InputError(
            f"the outcome {SIMILARITY} needs texts of two parts with a token between them; a text has {len(runs)}."
            " Give a corpus of pairs, or similarity:TEXT."
        )
    ids = list(stream.ids)
    before, after = ids[: runs[0][0]], ids[runs[1][1] :]
    return before + ids[slice(*runs[0])] + after, before + ids[slice(*runs[1])] + after


def _made(settings: Mapping[str, Any]) -> RunMethod:
    own = columns(tests_of(settings), judged_of(settings).names)
    return RunMethod((), own, FromTrace(partial(_filled, [column.name for column in own])), True)


def _filled(
    names: list[str],
    seen: Trace,
    layers: Sequence[int],
    heads: Sequence[int],
    *,
    probes: int,
    seed: int,
    settings: Mapping[str, Any],
) -> dict[str, Tensor]:
    try:
        numbers = judged_text(seen, settings, seed).numbers
    except IdentiscopeError:
        # Such a text decides nothing; the others go on. Why is said when the table is made.
        numbers = {}
    return {name: torch.tensor(numbers.get(name, float("nan")), dtype=torch.float64) for name in names}


def _checked(given: Mapping[str, Any]) -> dict[str, Any]:
    if strange := sorted(given.keys() - set(_SETTINGS)):
        raise InputError(f"{JUDGE}.{strange[0]} was set; there are {', '.join(_SETTINGS)}.")
    settings = dict(given)
    if settings.get("budget") is not None:
        settings["budget"] = whole_number("budget", settings["budget"], 1, 2**31 - 1)
    chosen_methods(settings.get("methods", "fast"))
    chosen_tests(settings.get("tests", "all"))
    return settings


BROUGHT[JUDGE] = Brought(_made, _checked)
