"""The arena: methods of explanation under every test, on a corpus and on planted models, with controls.

Texts are judged in a Run, which can be interrupted and goes on, on this machine or a Ray cluster.
"""

import hashlib
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from identiscope.asking.explaining import chosen_methods
from identiscope.capture import trace
from identiscope.capture.inputs import token_row
from identiscope.capture.models import Model, load
from identiscope.careful_reading import json_bytes
from identiscope.corpus.readers import Corpus
from identiscope.errors import IdentiscopeError, InputError
from identiscope.files import make_directory, write_file
from identiscope.judge.arena.asking import Judged, Scorer
from identiscope.judge.arena.columns import cell_column, columns
from identiscope.judge.arena.judging import judged_row
from identiscope.judge.arena.run_method import JUDGE, MODULE, SIMILARITY, judged_of, judged_text, others, tests_of
from identiscope.judge.arena.score_files import file_digest
from identiscope.judge.arena.summary import Table, summarised
from identiscope.judge.case import RANDOM
from identiscope.judge.registry import Test, chosen_tests
from identiscope.judge.truths.inputs import COMPILED, TRAINED, planted_inputs
from identiscope.judge.truths.tasks import Task
from identiscope.numbers import whole_number
from identiscope.progress import Progress, tell
from identiscope.runs.compute.options import RunOptions
from identiscope.runs.compute.run import run_corpus
from identiscope.runs.format.opened_run import Run

#: Inputs of each planted model, in each version.
PLANTED = 8
#: Texts of a shard: after so many nothing is lost.
_SHARD = 4


@dataclass(frozen=True)
class Plan:
    """What judging will take: at most so many passes of each test over all texts, and for the longest.

    planted: inputs of planted models, each asked of every method; trained: how many of these models are trained.
    """

    texts: int
    tokens: int
    methods: tuple[str, ...]
    passes: Mapping[str, int]
    longest: Mapping[str, int]
    planted: int
    trained: int


def arena(
    model: Any,
    corpus: str | Path | Corpus,
    directory: str | Path,
    *,
    methods: str | Sequence[str] = "fast",
    tests: str | Sequence[str] = "all",
    outcome: str | None = None,
    budget: int | None = None,
    scores: str | Path | None = None,
    functions: Mapping[str, Scorer] | None = None,
    limit: int | None = None,
    max_tokens: int | None = None,
    seed: int = 0,
    planted: int = PLANTED,
    trained: bool = True,
    loading: dict[str, Any] | None = None,
    engine: str = "local",
    workers: int = 1,
    address: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Judge methods by tests on the texts of a corpus, and on planted models, into a directory; gone on with if there.

    >>> said = identiscope.arena("minilm", "pairs", "judged", methods=["attention", "gradient_input"], limit=20)
    >>> said["tests"][0]["trusted"]

    methods: `fast`, `all`, or names. tests: `all`, or names. outcome: as for `explain`; `similarity` is the cosine of
    the first part of a pair with the second, and usual for models without logits. budget: at most so many passes for
    a text in each test, and for each method that draws. scores: a file of scores of others. functions: of others, by
    name, from (model, ids, outcome) to a score for each token. limit: so many texts. max_tokens: longer texts are left
    out. planted: inputs of each planted model; trained: also of those that are trained, which the first time takes
    minutes. The rest is as for `run_corpus`. What is given back is `judge.json`.
    """
    planted = whole_number("planted", planted, 1, 2**31 - 1)
    loaded = load(model, **dict(loading or {}))
    settings = arena_settings(loaded, methods, tests, outcome, budget, scores, functions)
    place = Path(directory)
    make_directory(place)
    tables: list[tuple[Table, list[Test], dict[str, str]]] = []
    judged = _with(functions, settings, seed)
    chosen = chosen_tests(tests)
    on_corpus = [test for test in chosen if test.of == "corpus"]
    facts: dict[str, Any] = {"corpus": None, "texts": 0, "outcome": settings.get("outcome")}
    if len(on_corpus) < len(chosen):
        on_planted = [test for test in chosen if test.of == "planted"]
        tasks = {**COMPILED, **(TRAINED if trained else {})}
        tables.append((*_planted(place / "planted.json", judged, on_planted, tasks, planted, settings, progress), {}))
    if on_corpus:
        options = RunOptions(
            methods=(JUDGE,), shard_size=_SHARD, batch_size=_SHARD, seed=seed, max_tokens=max_tokens, too_long="keep",
            settings=tuple(f"{JUDGE}.{name}={_written(value)}" for name, value in settings.items()),
        )  # fmt: skip
        with others(functions or {}):
            # One process has the model already; others read it by its name.
            here = engine == "local" and workers == 1
            run = run_corpus(
                loaded if here else model, corpus, place / "run", options=options, limit=limit,
                loading={} if here else loading, engine=engine,
                workers=workers, address=address, modules=(MODULE,), progress=progress,
            )  # fmt: skip
            table = {
                name: values.to_numpy(np.float64) for name, values in run.to_pandas(JUDGE).items() if name != "text"
            }
            reasons = _reasons(table, on_corpus, judged, run, loaded, settings)
        tables.append((table, on_corpus, reasons))
        facts |= {"corpus": run.manifest["names"]["corpus"], "texts": len(next(iter(table.values())))}
    said = [summarised(table, some, judged.names, why, seed=seed) for table, some, why in tables]
    whole = {
        "model": loaded.name, **facts, "methods": list(judged.names[:-1]), "seed": seed,
        "tests": [test for one in said for test in one["tests"]],
        "passes": said[-1]["passes"],
        "reasons": {key: why for one in said for key, why in one["reasons"].items()},
    }  # fmt: skip
    write_file(place / "judge.json", json_bytes(whole))
    return whole


def arena_settings(
    model: Model,
    methods: str | Sequence[str],
    tests: str | Sequence[str],
    outcome: str | None,
    budget: int | None,
    scores: str | Path | None,
    functions: Mapping[str, Scorer] | None = None,
) -> dict[str, Any]:
    """What a Run of judgements is set to, checked. A model without logits is asked for the similarity of pairs."""
    if outcome is None and trace(model, [3, 4, 5]).logits is None:
        outcome = SIMILARITY
    names = [one.name for one in chosen_methods(methods)]
    settings: dict[str, Any] = {"methods": names, "tests": [test.name for test in chosen_tests(tests)]}
    settings |= {"outcome": outcome} if outcome is not None else {}
    settings |= {"budget": budget} if budget is not None else {}
    if scores is not None:
        settings |= {"scores": str(Path(scores).absolute()), "digest": file_digest(scores)}
    if functions:
        settings |= {"others": sorted(functions), "code": _code(functions)}
    return settings


def _code(functions: Mapping[str, Scorer]) -> str:
    """A digest of what functions of others do, so that a directory is not gone on with by another one of that name.

    What they read from elsewhere is not seen.
    """
    texts = []
    for name in sorted(functions):
        given = functions[name]
        try:
            texts.append(name + inspect.getsource(given if inspect.isroutine(given) else type(given)))
        except (OSError, TypeError):
            # Typed at a prompt, or no Python: what can be seen of it.
            code = getattr(given, "__code__", None)
            texts.append(name + ("" if code is None else repr((code.co_code, code.co_names))))
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def arena_plan(
    model: Model, corpus: Corpus, settings: Mapping[str, Any], judged: int, max_tokens: int | None = None,
    planted: int = PLANTED, trained: bool = True,
) -> Plan:  # fmt: skip
    """What judging these texts will take, before any work. judged: how many methods."""
    tests, budget = tests_of(settings), settings.get("budget")
    asked = any(test.of == "planted" for test in chosen_tests(settings["tests"]))
    models = len(COMPILED) + trained * len(TRAINED)
    lengths = []
    for text in corpus.read() if tests else ():
        parts = text.parts[:1] if settings.get("outcome") == SIMILARITY else text.parts
        tokens = sum(not special for special in token_row(model, parts).special)
        if tokens and (max_tokens is None or tokens <= max_tokens):
            lengths.append(tokens)
    if tests and not lengths:
        raise InputError(f"{corpus.source} has no text of at most {max_tokens} tokens.")
    by_test = {test.name: [test.planned(tokens, judged, budget) for tokens in lengths] for test in tests}
    return Plan(
        len(lengths),
        sum(lengths),
        tuple(settings["methods"]),
        {name: sum(passes) for name, passes in by_test.items()},
        {name: max(passes) for name, passes in by_test.items()},
        2 * planted * models * asked,
        asked * trained * len(TRAINED),
    )


def _with(functions: Mapping[str, Scorer] | None, settings: Mapping[str, Any], seed: int) -> Judged:
    with others(functions or {}):
        return judged_of(settings, seed)


def _written(value: Any) -> str:
    return json.dumps(value) if isinstance(value, list) else str(value)


def _planted(
    path: Path,
    judged: Judged,
    tests: list[Test],
    tasks: Mapping[str, Task],
    count: int,
    settings: Mapping[str, Any],
    progress: Progress | None,
) -> tuple[Table, list[Test]]:
    """Methods on planted models: as a file has it, if that is of the same question, or computed."""
    asked = [judged.names, judged.options, [test.name for test in tests], list(tasks), count, settings.get("code")]
    question = hashlib.sha256(json.dumps([*asked, _sources()]).encode()).hexdigest()
    names = [column.name for column in columns(tests, judged.names)]
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        if known["question"] == question:
            numbers = known["numbers"]
            return {name: np.array(numbers[name], np.float64) for name in names}, tests
    except (OSError, ValueError, KeyError, TypeError):
        pass
    rows: list[dict[str, float]] = []
    inputs = list(planted_inputs(tasks, count, judged.seed))
    for number, one in enumerate(inputs):
        tell(progress, f"planted: {one.task.name}", number, len(inputs))
        case, _, passes = judged.case(
            one.trace, one.outcome, truth=one.truth, players=one.players, version=one.version, number=number
        )
        rows.append(judged_row(case, tests, passes).numbers)
    table = {name: np.array([row[name] for row in rows]) for name in names}
    plain = {name: [None if value != value else value for value in values.tolist()] for name, values in table.items()}
    write_file(path, json_bytes({"question": question, "numbers": plain}))
    return table, tests


def _sources() -> str:
    """A digest of this package: what planted models and methods were before is not what they are now."""
    texts = b"".join(path.read_bytes() for path in sorted(Path(__file__).parents[2].rglob("*.py")))
    return hashlib.sha256(texts).hexdigest()


def _reasons(
    table: Table,
    tests: Sequence[Test],
    judged: Judged,
    run: Run,
    model: Model,
    settings: Mapping[str, Any],
) -> dict[str, str]:
    """Why a test or a method decided nothing on any text: the first text is asked again."""
    # A test, or one of its measures: exact ones may be silent where no text is short enough.
    silent = [
        test.name
        for test in tests
        if not all(
            any(np.isfinite(table[cell_column(test, measure.name, name)]).any() for name in judged.names)
            for measure in test.measures
        )
    ]
    mute = [
        name
        for name in judged.names
        if name != RANDOM
        and not any(
            np.isfinite(table[cell_column(test, measure.name, name)]).any()
            for test in tests
            for measure in test.measures
        )
    ]
    if not silent and not mute:
        return {}
    texts = run.to_pandas("texts")
    first = texts[texts["status"] == "ok"].iloc[0]
    parts = [first[part] for part in ("part_1", "part_2") if isinstance(first[part], str)]
    try:
        seen = trace(model, parts[0] if len(parts) == 1 else (parts[0], parts[1]))
        row = judged_text(seen, settings, judged.seed)
    except IdentiscopeError as error:
        return dict.fromkeys([*silent, *mute], str(error))
    return {name: why for name, why in row.undecided.items() if name in (*silent, *mute)}
