"""What a server computes: a page on a text, or more for a page that is there."""

import os
from collections.abc import Sequence
from typing import Any

import xarray as xr

from identiscope.capture import Model, Trace, trace
from identiscope.capture.inputs import token_row
from identiscope.capture.tokenizing import tokenize
from identiscope.capture.words import precision_in_words
from identiscope.errors import InputError
from identiscope.linalg.jacobian.forward_mode import told_of_waiting
from identiscope.progress import Progress, tell
from identiscope.reports.reporting import ask_beside, explains, report_page, shown_attention
from identiscope.views.page.attention_section import with_attention_of
from identiscope.views.page.data import Page
from identiscope.views.page.results import with_result
from identiscope.views.server.questions import ATTRIBUTION, CANONICAL, VERDICT, Compute, Question, ServedModel

#: The section that has the heads of the text, as `report_page` names it.
HEADS = "attention"


def live(models: Sequence[Model], most_tokens: int = 1024, truncate: bool = False) -> Compute:
    """The function that answers questions about texts for these models, chosen by number.

    truncate: cut a text that is too long for its model, or longer than most_tokens, and say so on the page, instead of
    refusing it.

    >>> page = live([identiscope.load("minilm")])(Question(0, "The cat sat on the mat."), print)
    """

    def compute(question: Question, progress: Progress) -> Page:
        model = models[question.model]
        tell(progress, "reading the text", 0, 1)
        traced = _traced(model, question, most_tokens, truncate)
        if question.base is not None:
            return _with_more(question.base, traced, question, progress)
        page = report_page(
            traced,
            attention=question.attention,
            with_verdict=VERDICT in question.methods,
            canonical="all" if CANONICAL in question.methods else "auto",
            title=_label(model),
            progress=progress,
        )
        return _with_results(page, traced, question, progress)

    return compute


def served_model(model: Model) -> ServedModel:
    """What the browser is told of a model; an error if it reads no text."""
    if model.tokenizer is None:
        raise InputError(f"{model.name} has no tokenizer, so it cannot be given a text to read.")
    target = bool(getattr(model.config, "is_encoder_decoder", False))
    return ServedModel(_label(model), target, f"{model.device}, {precision_in_words(model.dtype)}")


def _label(model: Model) -> str:
    """The model's name; of a directory only the last part, as the rest is nobody else's business."""
    return os.path.basename(os.path.normpath(model.name)) if os.path.isdir(model.name) else model.name


def _traced(model: Model, question: Question, most_tokens: int, truncate: bool) -> Trace:
    text: Any = question.text
    # An outcome may be the likeness to a second text, which is traced, too.
    given = {"text": question.text, "target text": question.target, "outcome": question.outcome}
    counts = [len(tokenize(model.tokenizer, one, verbose=False)["input_ids"]) if one else 0 for one in given.values()]
    if truncate and counts[0] > most_tokens:
        text, counts[0] = token_row(model, (question.text,), most_tokens), most_tokens
    for name, count in zip(given, counts, strict=True):
        if count > most_tokens:
            raise InputError(
                f"the {name} has {count} tokens; at most {most_tokens} are taken here. Shorten it, or start the server"
                " with a larger --max-tokens."
            )
    traced = trace(model, text, target=question.target, truncate=truncate)
    assert isinstance(traced, Trace)
    return traced


def _with_results(page: Page, traced: Trace, question: Question, progress: Progress) -> Page:
    """The page with a section of each method that was asked for beside the maps.

    Sections are named as they were asked for, so that the browser knows what it has.
    """
    for name in question.methods:
        if name not in (VERDICT, CANONICAL):
            page = with_result(page, _result(name, page, traced, question, progress), name)
    return page


def _result(name: str, page: Page, traced: Trace, question: Question, progress: Progress) -> xr.Dataset:
    """What one method says; where it is of one head, of that which the page shows first."""
    words = name.replace("_", " ")

    def moved(done: int, total: int) -> None:
        # Said again, since it may have been waited for another.
        tell(progress, words, done, total)

    options: dict[str, Any] = {"mode": "estimate", "probes": question.directions} if name == ATTRIBUTION else {}
    if question.outcome is not None and explains(name):
        options["outcome"] = question.outcome
    heads: Any = page.section(HEADS)["data"]
    start, layer = heads["start"], heads["layers"][0]
    place = (start["layer"], start["head"]) if start else (layer["layer"], layer["heads"][0])
    shown = shown_attention(traced, attention=question.attention)
    tell(progress, words, 0, 1)
    with told_of_waiting(lambda: tell(progress, f"waiting for another {ATTRIBUTION}", 0, 1)):
        return ask_beside(name, traced, place, shown, moved, **options)


def _with_more(base: Page, traced: Trace, question: Question, progress: Progress) -> Page:
    """The page with canonical maps and intervals added, layer by layer, and results; the rest of it as it was."""
    page = base
    heads: Any = base.section(HEADS)["data"]
    described = {layer["layer"]: layer for layer in heads["layers"]}
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
            traced, layers=[layer], attention=question.attention, with_verdict=False, progress=progress,
            canonical=sorted(wanted) or "none",
            intervals=[place for place in question.intervals if place[0] == layer],
        )  # fmt: skip
        page = with_attention_of(page, HEADS, part.taken(HEADS))
    return _with_results(page, traced, question, progress)
