"""What a server computes: a page on a text, or more for a page that is there."""

import os
import threading
from collections.abc import Sequence
from typing import Any

import xarray as xr

from identiscope.capture import Model, Trace, trace
from identiscope.errors import InputError
from identiscope.experiments.attribution import attribution
from identiscope.experiments.reporting import report_page
from identiscope.views.report_data import Page
from identiscope.views.result_pages import with_result
from identiscope.views.server_questions import Compute, Question, ServedModel, Tell

# PyTorch has one level of forward differentiation for all threads; a second one to enter it ends the first one's.
_FORWARD_MODE = threading.Lock()


def live(models: Sequence[Model], most_tokens: int = 1024) -> Compute:
    """The function that answers questions about texts for these models, chosen by number.

    >>> page = live([identiscope.load("minilm")])(Question(0, "The cat sat on the mat."), print)
    """

    def compute(question: Question, tell: Tell) -> Page:
        model = models[question.model]
        tell("reading the text", 0, 1)
        found = _traced(model, question, most_tokens)
        if question.base is not None:
            return _with_more(question.base, model, found, question, tell)
        return report_page(
            found,
            kind=question.kind,
            with_verdict="verdict" in question.methods,
            canonical="all" if "canonical" in question.methods else "auto",
            results=_results(model, found, question, tell),
            title=_label(model),
            progress=tell,
        )

    return compute


def served_model(model: Model) -> ServedModel:
    """What the browser is told of a model; an error if it reads no text."""
    if model.tokenizer is None:
        raise InputError(f"{model.name} has no tokenizer, so it cannot be given a text to read.")
    return ServedModel(_label(model), bool(getattr(model.config, "is_encoder_decoder", False)))


def _label(model: Model) -> str:
    """The model's name; of a directory only the last part, as the rest is nobody else's business."""
    return os.path.basename(os.path.normpath(model.name)) if os.path.isdir(model.name) else model.name


def _traced(model: Model, question: Question, most_tokens: int) -> Trace:
    for text in (question.text, question.target):
        count = len(model.tokenizer(text, verbose=False)["input_ids"]) if text else 0
        if count > most_tokens:
            raise InputError(
                f"the text has {count} tokens; at most {most_tokens} are taken here. Shorten it, or start the server"
                " with a larger --max-tokens."
            )
    found = trace(model, question.text, target=question.target)
    assert isinstance(found, Trace)
    return found


def _results(model: Model, found: Trace, question: Question, tell: Tell) -> list[xr.Dataset]:
    if "attribution" not in question.methods:
        return []
    while not _FORWARD_MODE.acquire(timeout=0.1):
        tell("waiting for another attribution", 0, 1)
    try:
        tell("attribution", 0, 1)
        return [_attribution(model, found, question.directions, tell)]
    finally:
        _FORWARD_MODE.release()


def _attribution(model: Model, found: Trace, directions: int, tell: Tell) -> xr.Dataset:
    def moved(done: int, total: int) -> None:
        tell("attribution", done, total)

    return attribution(model, found, mode="estimate", probes=directions, progress=moved)


def _with_more(base: Page, model: Model, found: Trace, question: Question, tell: Tell) -> Page:
    """The page with canonical maps and intervals added, layer by layer, and results; the rest of it as it was."""
    page = base
    described = {layer["layer"]: layer for layer in base.header["layers"]}
    places = set(question.canonical) | {(layer, head) for layer, head, _ in question.intervals}
    wrong = [place for place in sorted(places) if place[1] not in described.get(place[0], {"heads": ()})["heads"]]
    if wrong:
        raise InputError(f"layer {wrong[0][0]} has no head {wrong[0][1]} here.")
    for layer in sorted({place[0] for place in places}):
        entry = described[layer]
        long = [place for place in question.intervals if place[0] == layer and place[2] >= entry["queries"]]
        if long:
            raise InputError(f"row {long[0][2]} was asked for; there are {entry['queries']}.")
        had = (entry["canonical"] or {"heads": []})["heads"]
        wanted = {(layer, head) for head in had} | {place for place in question.canonical if place[0] == layer}
        part = report_page(
            found, layers=[layer], kind=question.kind, with_verdict=False, progress=tell,
            canonical=sorted(wanted) or "none",
            intervals=[place for place in question.intervals if place[0] == layer],
        )  # fmt: skip
        page = _merged(page, part)
    for result in _results(model, found, question, tell):
        page = with_result(page, result)
    return page


def _merged(page: Page, part: Page) -> Page:
    """A page with the layers and intervals of another in place of its own."""
    layers = {layer["layer"]: layer for layer in part.header["layers"]}
    intervals: dict[Any, Any] = {}
    for one in (*page.header["intervals"], *part.header["intervals"]):
        intervals[one["layer"], one["head"], one["query"], one["key"]] = one
    return page.having(
        part.chunks,
        layers=[layers.get(layer["layer"], layer) for layer in page.header["layers"]],
        intervals=list(intervals.values()),
    )
