"""A model and a text become a Trace: one way for all commands that take a text."""

from collections.abc import Mapping
from typing import Any

from identiscope.errors import InputError


def load_and_trace(
    model: str, text: str | None, loading: Mapping[str, Any], *, passage: bool = False, **options: Any
) -> tuple[Any, Any]:
    """The model and its Trace of a text; without one, of a sample.

    passage: the sample is a passage longer than a head is wide, which a model that reads no text cannot be given.
    """
    from identiscope.capture import load, trace
    from identiscope.capture.samples import PASSAGE, sample_input

    loaded = load(model, **loading)
    if passage and loaded.tokenizer is None:
        raise InputError(f"{model} reads no text; ask it from Python: identiscope.trace(model, inputs).")
    given: Any = text
    if text is None:
        given = PASSAGE if passage else sample_input(loaded)[0]
    return loaded, trace(loaded, given, **options)
