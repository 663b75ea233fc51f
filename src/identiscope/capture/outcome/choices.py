"""Which of the logits an outcome means, by a word, a class, a number or a difference of two."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from identiscope.capture.limits import token_names
from identiscope.capture.outcome.places import Logits, logits_of, row_of
from identiscope.capture.tokenizing import tokenize
from identiscope.errors import InputError
from identiscope.token_text import shown_token

if TYPE_CHECKING:
    from identiscope.capture.trace import Trace


def chosen(trace: "Trace", logits: Logits, asked: str | int) -> tuple[list[tuple[float, int]], str]:
    """Which logits are meant, with their weights, and their names: one, or a difference "A-B"."""
    whole = _place_of(trace, logits, asked)
    if isinstance(whole, int):
        return [(1.0, whole)], named(trace, logits, whole)
    if not isinstance(asked, str):
        raise InputError(f"outcome={asked!r} was given: {whole}")
    ways = []
    for cut in (at for at, letter in enumerate(asked) if letter == "-"):
        sides = [_place_of(trace, logits, side.strip()) for side in (asked[:cut], asked[cut + 1 :]) if side.strip()]
        if len(sides) == 2 and all(isinstance(side, int) for side in sides):
            ways.append(sides)
    if len(ways) == 1:
        first, second = (int(side) for side in ways[0])
        if first == second:
            raise InputError(f"outcome={asked!r} was given, the difference of a logit and itself, which is always 0.")
        return [(1.0, first), (-1.0, second)], f"{named(trace, logits, first)} and {named(trace, logits, second)}"
    if len(ways) > 1:
        raise InputError(f"outcome={asked!r} can be cut into two in {len(ways)} ways; say it with id:NUMBER.")
    raise InputError(f"outcome={asked!r} was given: {whole}")


def place_of_answer(trace: "Trace", answer: str) -> int:
    """The place of one class, or word, among what the model chooses from at the end of a text."""
    found = _place_of(trace, logits_of(trace, None), answer)
    if isinstance(found, str):
        raise InputError(f"the label {answer!r} was given: {found}")
    return found


def _place_of(trace: "Trace", logits: Logits, asked: str | int) -> int | str:
    """The place of a word or class among the logits, or why there is none."""
    count = row_of(trace, logits).shape[-1]
    number = asked if isinstance(asked, int) else None
    if isinstance(asked, str) and re.fullmatch(r"id:\d+", asked):
        number = int(asked[3:])
    if number is not None:
        return number if 0 <= number < count else f"there are {count} logits, 0 to {count - 1}."
    assert isinstance(asked, str)
    return _word(trace, asked, count) if logits.over == "vocabulary" else _class(trace, asked, count)


def _class(trace: "Trace", asked: str, count: int) -> int | str:
    assert trace.model is not None
    names = {int(place): str(name) for place, name in (getattr(trace.model.config, "id2label", None) or {}).items()}
    exact = [place for place, name in names.items() if name == asked]
    alike = exact or [place for place, name in names.items() if name.casefold() == asked.casefold()]
    if len(alike) == 1:
        return alike[0]
    if asked.isdecimal() and int(asked) < count:
        return int(asked)
    known = ", ".join(list(names.values())[:8]) + (", …" if len(names) > 8 else "")
    return f"the classes of {trace.model.name} are {known or f'0 to {count - 1}'}."


def _word(trace: "Trace", asked: str, count: int) -> int | str:
    """The id of a word; where words are written with the space before them, that form first."""
    tokenizer = trace.model.tokenizer if trace.model is not None else None
    if tokenizer is None:
        return "the model came without a tokenizer; give the number of a token, as id:NUMBER."
    if any("\ud800" <= sign <= "\udfff" for sign in asked):
        return "it has half a surrogate pair, which is no character."
    pieces: list[list[int]] = []
    for form in (asked, f" {asked}") if asked[:1].isspace() else (f" {asked}", asked):
        ids = list(tokenize(tokenizer, form, add_special_tokens=False, verbose=False)["input_ids"])
        if len(ids) == 1 and ids[0] != getattr(tokenizer, "unk_token_id", None):
            return int(ids[0]) if ids[0] < count else f"its id {ids[0]} is beyond the {count} logits."
        pieces.append(ids)
    assert trace.model is not None
    if pieces[0] and pieces[0] != [getattr(tokenizer, "unk_token_id", None)]:
        shown = ", ".join(repr(shown_token(name)) for name in token_names(trace.model, pieces[0]))
        return (
            f"the tokenizer writes it as {len(pieces[0])} tokens ({shown}), and an outcome is of one. Give one of them,"
            f" such as id:{pieces[0][0]}."
        )
    return "the tokenizer does not know it."


def named(trace: "Trace", logits: Logits, place: int) -> str:
    """The word, class or output of a logit."""
    assert trace.model is not None
    if logits.over == "vocabulary":
        return repr(shown_token(token_names(trace.model, [place])[0]))
    names: Mapping[Any, Any] = getattr(trace.model.config, "id2label", None) or {}
    name = names.get(place, place)
    if logits.over == "numbers":
        # What transformers calls an output that nobody named says nothing.
        return f"output {place}" if name in (place, f"LABEL_{place}") else f"output {place} ({name})"
    return f"class {name}"
