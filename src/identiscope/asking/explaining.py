"""Many methods on one captured pass: what an outcome rests on, by each of them, side by side."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from identiscope.asking.ask import bound, described, outcome_facts
from identiscope.asking.provenance import trace_provenance
from identiscope.asking.resuming import check_same
from identiscope.asking.scoring import Scored, scored
from identiscope.capture.limits import is_byte_level
from identiscope.errors import IdentiscopeError, InputError
from identiscope.files import check_writable
from identiscope.linalg.tolerance import VARIANCE_FLOOR
from identiscope.methods.fields import shared_attention
from identiscope.methods.mixtures.hidden_token_attribution import DEFAULT_PROBES
from identiscope.methods.outcome_runs import SLOPE_PASSES, OutcomeRuns
from identiscope.methods.registry import METHODS, Method, method
from identiscope.methods.trace_fields import runs_of
from identiscope.progress import Progress, tell
from identiscope.results import make_result, save_result
from identiscope.stats.agreement import agreement
from identiscope.token_text import joined_words

if TYPE_CHECKING:
    from identiscope.capture import Stream, Trace

#: By how much the outcome of a result that is gone on from may differ, as it does on another machine.
_SAME_VALUE = 1e-3
#: Plain passes that are timed, to say what a method costs.
_TIMED = 3


def explain(
    trace: "Trace",
    outcome: str | int | Callable[..., Any] | None = None,
    *,
    methods: str | Sequence[str] = "fast",
    budget: int | None = None,
    seed: int = 0,
    baseline: str | None = None,
    words: bool = False,
    resume: xr.Dataset | None = None,
    out: str | Path | None = None,
    progress: Progress | None = None,
) -> xr.Dataset:
    """What an outcome rests on, by many methods on one captured pass, each with what it costs.

    >>> explained = identiscope.explain(trace, "Paris", methods="all")
    >>> explained.identiscope.table()
    >>> explained["score"].loc["rollout"]

    `score` [method, input] is what each method says of each input token, in its own units and with its own sign, and
    `share` the same divided by the sum of sizes. Maps and mixtures become scores in one way, which `conversion` names.
    `score_error` is a standard error where a method estimates; `residual` is by how much scores that promise to add up
    to `promised_sum` do not. `passes` counts runs of the model, `cost` is CPU time in plain passes. `agreement`
    [method, other] is Spearman's correlation of the sizes of scores, ties sharing their ranks, special tokens left out.
    A method that cannot be asked here says why in `failed`, and the others are asked all the same. `input_begin` and
    `input_end` are the characters of the text that an input is of, −1 for those that stand for none, and where the
    tokenizer does not say.

    outcome: a word, a class, a difference `A-B`, `similarity:TEXT`, or a function; without, the most likely word or
    class. methods: `fast`, `all`, or names. budget: at most so many passes for each method that draws or refines.
    seed: of what is drawn. baseline: what stands for a token that says nothing. words: add the pieces of a word up.
    resume: an earlier result, of which those methods are kept that were asked as they would be now. out: a file for the
    result, written after each method, so that work that was interrupted can be resumed.
    """
    chosen = chosen_methods(methods)
    runs = runs_of(trace, outcome)
    # Found first: without an outcome there is nothing to ask.
    stream = trace.streams[runs.outcome.stream]
    facts = outcome_facts(runs)
    if out is not None:
        check_writable(out)
    origin = trace_provenance(
        trace, methods=[one.name for one in chosen], outcome=described(outcome), budget=budget, seed=seed,
        baseline=baseline, words=words,
    )  # fmt: skip
    says = f"What this rests on, by each method: {facts['outcome']} = {facts['outcome_value']:.3g}."
    origin |= {"kind": "explanation", "says": says}
    origin |= {name: value for name, value in facts.items() if name != "passes"}
    options = {"budget": budget, "seed": seed, "baseline": baseline}
    answers = {} if resume is None else _kept(resume, origin, chosen, options)
    unit = _pass_seconds(runs)
    along = out is not None and (Path(out).is_file() or not Path(out).exists())  # a pipe is written once
    with shared_attention():
        for done, one in enumerate(chosen):
            tell(progress, one.name, done, len(chosen))
            if one.name in answers:
                continue
            answers[one.name] = _asked(one, trace, runs, stream.name, options, unit)
            if out is not None and along:
                # By token: pieces that were added up cannot be gone on from.
                by_token = origin | {"options": origin["options"] | {"words": False}}
                save_result(_together(runs, _in_order(chosen, answers), by_token), out)
    tell(progress, "", len(chosen), len(chosen))
    result = _together(runs, _in_order(chosen, answers), origin, words=words)
    if out is not None:
        save_result(result, out)
    return result


def scores_of(
    trace: "Trace", outcome: Any, methods: Sequence[str], options: dict[str, Any]
) -> tuple[OutcomeRuns, list["Answer"]]:
    """What methods say of an outcome, without what they cost in time; passes are those that each would make alone."""
    runs = runs_of(trace, outcome)
    stream = trace.streams[runs.outcome.stream].name
    answers = []
    with shared_attention():
        for name in methods:
            made, runs.asked_slopes = runs.has_slopes, False
            answer = _asked(METHODS[name], trace, runs, stream, options, np.nan)
            lent = SLOPE_PASSES if made and runs.asked_slopes else 0.0
            answers.append(replace(answer, passes=answer.passes + lent))
    return runs, answers


@dataclass(frozen=True, eq=False)
class Answer:
    """What one method said, and what it took; failed: why it said nothing."""

    name: str
    scored: Scored
    passes: float
    cost: float
    failed: str = ""


def chosen_methods(methods: str | Sequence[str]) -> list[Method]:
    """The methods that can explain an outcome: all, the fast ones, or those that are named."""
    able = {one.name: one for one in METHODS.values() if _explains(one)}
    if isinstance(methods, str) and methods in ("all", "fast"):
        return [one for one in able.values() if methods == "all" or "fast" in one.tags]
    names = [methods] if isinstance(methods, str) else list(methods)
    names = [part.strip() for name in names for part in str(name).split(",") if part.strip()]
    chosen = [method(name) for name in names]
    strange = [one.name for one in chosen if one.name not in able]
    if strange or not chosen or len({one.name for one in chosen}) < len(chosen):
        raise InputError(
            f"methods {', '.join(names) or 'none'} were given; expected all, fast, or some of {', '.join(able)}, each"
            " once."
        )
    return chosen


def _explains(one: Method) -> bool:
    """Whether a method says something of inputs: by its kind, on the axes that its kind has."""
    return one.kind in ("map", "mixture", "score") and set(one.axes) == set(one.family.axes) and "part" not in one.tags


def _asked(one: Method, trace: "Trace", runs: OutcomeRuns, stream: str, options: dict[str, Any], unit: float) -> Answer:
    count = sum(len(part) for part in runs.sources)
    known = _takes(one)
    own = {name: value for name, value in options.items() if name in known and value is not None}
    own |= {name: value for name, value in one.brief.items() if name not in own}
    own |= {"outcome": runs} if "outcome" in known else {}
    before, begun = runs.passes, time.process_time()
    try:
        if "probes" in known and options.get("budget") is not None:
            own["probes"] = _affordable(options["budget"], count)
        answer = scored(one, trace, runs, stream, own)
        failed = ""
    except IdentiscopeError as error:
        answer, failed = Scored(np.full(count, np.nan), "none"), str(error)
    seconds = time.process_time() - begun
    return Answer(one.name, answer, runs.passes - before + answer.passes, seconds / unit, failed)


def _affordable(budget: int, count: int) -> int:
    """How many directions of each input can be followed, each as dear as a pass."""
    if budget < 2 * count:
        raise InputError(
            f"budget={budget} was given; two directions for each of {count} tokens, the least for an error bar, take"
            f" {2 * count} passes."
        )
    return min(budget // count, DEFAULT_PROBES)


def _takes(one: Method) -> set[str]:
    """The names of all that a method can be asked with."""
    call = bound(one, {})
    return {*call.choices, *call.options}


def _pass_seconds(runs: OutcomeRuns) -> float:
    """CPU time of a plain pass; its runs are not counted."""
    passes = runs.runner.passes
    embeddings = runs.embeddings
    times = []
    for _ in range(_TIMED):
        begun = time.process_time()
        runs.values(embeddings)
        times.append(time.process_time() - begun)
    runs.runner.passes = passes
    return max(min(times), 1e-6)


def _kept(
    resume: xr.Dataset, origin: dict[str, Any], chosen: Sequence[Method], options: dict[str, Any]
) -> dict[str, Answer]:
    """What an earlier result has of the same model, text and outcome, by methods that take nothing that is another now:
    no other seed, budget or baseline."""
    check_same(resume, origin, "explain", ("outcome",))
    before = resume.attrs.get("options", {})
    then, now = float(resume.attrs.get("outcome_value", np.nan)), float(origin["outcome_value"])
    if not abs(then - now) <= _SAME_VALUE * max(1.0, abs(now)):
        raise InputError(
            f"the result to resume is of another outcome: that was {then:.6g}, and this is {now:.6g}. Resume it with"
            " what it was made of, or begin anew."
        )
    if before.get("words"):
        raise InputError(
            "the result to resume has the pieces of words added up, and cannot be taken apart. Resume one that was made"
            " without words."
        )
    changed = {name for name, value in options.items() if before.get(name) != value}
    places = {str(name): place for place, name in enumerate(resume["method"].values.tolist())}
    answers = {}
    for name in [one.name for one in chosen if one.name in places and not changed & _takes(one)]:
        one = resume.isel(method=places[name])
        if not str(one["failed"].values):
            error = one["score_error"].values
            answer = Scored(
                one["score"].values,
                str(one["conversion"].values),
                None if np.isnan(error).all() else error,
                float(one["promised_sum"]),
                float(one["residual"]),
            )
            answers[name] = Answer(name, answer, float(one["passes"]), float(one["cost"]))
    return answers


def _in_order(chosen: Sequence[Method], answers: Mapping[str, Answer]) -> list[Answer]:
    return [answers[one.name] for one in chosen if one.name in answers]


def _together(
    runs: OutcomeRuns, answers: Sequence[Answer], origin: dict[str, Any], *, words: bool = False
) -> xr.Dataset:
    tokens = [token for part in runs.sources for token in part.tokens]
    special = np.array([flag for part in runs.sources for flag in part.special], bool)
    side = [part.name for part in runs.sources for _ in part.tokens]
    spans = np.array([span for part in runs.sources for span in _spans(part)]).reshape(-1, 2)
    scores = np.stack([answer.scored.score for answer in answers])
    nothing = np.full(scores.shape[1], np.nan)
    errors = np.stack([nothing if one.scored.error is None else one.scored.error for one in answers])
    if words:
        model = runs.trace.model
        marked = model is not None and model.tokenizer is not None and is_byte_level(model.tokenizer)
        groups, tokens, flags, side = joined_words(tokens, special.tolist(), side, marked)
        special = np.array(flags, bool)
        scores = _added(scores, np.array(groups))
        errors = np.full_like(scores, np.nan)  # errors of one method's pieces are not independent
        spans = _joined(spans, np.array(groups))
    sizes = np.nansum(np.abs(scores), 1, keepdims=True)
    share = np.divide(scores, sizes, out=np.zeros_like(scores), where=sizes > 0)
    axes = ("method", "input")
    names = [one.name for one in answers]
    arrays: dict[str, tuple[tuple[str, ...], Any]] = {
        "share": (axes, np.where(np.isnan(scores), np.nan, share)),
        "score": (axes, scores),
        "score_error": (axes, errors),
        "passes": (("method",), np.array([one.passes for one in answers])),
        "cost": (("method",), np.array([one.cost for one in answers])),
        "promised_sum": (("method",), np.array([one.scored.promised for one in answers])),
        "residual": (("method",), np.array([one.scored.residual for one in answers])),
        "conversion": (("method",), np.array([one.scored.conversion for one in answers], dtype=object)),
        "failed": (("method",), np.array([one.failed for one in answers], dtype=object)),
        "agreement": (("method", "other"), agreement(scores, special, floor=VARIANCE_FLOOR)),
    }
    labels: dict[str, Any] = {"method": names, "other": names, "input_token": ("input", tokens)}
    labels |= {"input_special": ("input", special), "input_stream": ("input", side)}
    if any("baseline" in _takes(METHODS[answer.name]) for answer in answers if not answer.failed):
        # What was put in place of tokens, in words.
        origin = origin | {"baseline": runs.baseline(origin["options"]["baseline"])[1]}
    labels |= {"input_begin": ("input", spans[:, 0]), "input_end": ("input", spans[:, 1])}
    return make_result("explain", arrays, coordinates=labels, provenance=origin)


def _spans(part: "Stream") -> list[tuple[int, int]]:
    """The characters that each token is of, in its own part of the text; −1 for one that is of none."""
    spans = part.offsets or [(0, 0)] * len(part)
    return [span if span[1] > span[0] else (-1, -1) for span in spans]


def _joined(spans: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """From where the first piece of each word begins to where the last one ends."""
    last = np.append(groups[1:] != groups[:-1], True)
    return np.stack([spans[np.unique(groups, return_index=True)[1], 0], spans[last, 1]], 1)


def _added(scores: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Scores [method, token] added up by word."""
    by_word = np.zeros((len(scores), int(groups.max()) + 1))
    for place, row in enumerate(scores):
        np.add.at(by_word[place], groups, row)
    return by_word
