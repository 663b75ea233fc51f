"""Some tokens of a text, said in words: positions, names of kinds of tokens, or the words themselves."""

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.methods.tokens.types import types_by_text
from identiscope.token_text import bare_token, begins_word, whole_characters

#: A position, several, or words with commas between: `first`, `special`, `3:7`, `self`, or a word of the text.
Selection = str | int | Sequence[int]

#: What a query looks at, relative to where it stands: key − query.
RELATIVE = {"previous": -1, "self": 0, "next": 1}
_NAMES = ("all", "first", "last", "special", "ordinary", "punctuation")
_SPAN = re.compile(r"(-?\d*):(-?\d*)")


def positions(selection: Selection, tokens: Sequence[str], special: Sequence[bool]) -> list[int]:
    """The positions of some tokens, in order.

    >>> positions("special, 1:3", ["[CLS]", "a", "b", "c"], [True, False, False, False])
    [0, 1, 2]
    >>> positions("the cat", ["the", "cat", "sat", "the", "cat", "##s"], [False] * 6)
    [0, 1]
    """
    count = len(tokens)
    if isinstance(selection, int):
        # From the end if it is negative, as in a text such as "-1".
        if isinstance(selection, bool) or not -count <= selection < count:
            raise InputError(f"position {selection} was given; the text has 0 to {count - 1}.")
        return [selection % count]
    if not isinstance(selection, str):
        wrong = [place for place in selection if not (isinstance(place, int) and 0 <= place < count)]
        if wrong or not len(selection):
            raise InputError(f"positions {list(selection)} were given; the text has 0 to {count - 1}.")
        return sorted(set(selection))
    chosen: set[int] = set()
    for part in selection.split(","):
        chosen.update(_of_part(part.strip(), tokens, special))
    return sorted(chosen)


def _of_part(part: str, tokens: Sequence[str], special: Sequence[bool]) -> list[int]:
    count = len(tokens)
    if part in _NAMES:
        flags = {
            "all": [True] * count,
            "first": [place == 0 for place in range(count)],
            "last": [place == count - 1 for place in range(count)],
            "ordinary": [not flag for flag in special],
            **types_by_text(tokens, special),
        }[part]
        return [place for place, flag in enumerate(flags) if flag]
    if re.fullmatch(r"-?\d+", part):
        part = f"{part}:{int(part) + 1 or ''}"
    if span := _SPAN.fullmatch(part):
        begin, end = (int(side) if side else None for side in span.groups())
        chosen = list(range(count)[begin:end])
        if not chosen or (begin or 0) >= count or (end or 0) > count:
            raise InputError(f"the span {part!r} was given; the text has positions 0 to {count - 1}.")
        return chosen
    return _of_words(part.removeprefix("word:"), tokens, special)


#: Letters that parts of one character may take; twice the wanted letters, since two may be folded into one.
_PARTS = 18


def _of_words(words: str, tokens: Sequence[str], special: Sequence[bool]) -> list[int]:
    """Where some words stand, whole, wherever in the text, in any case of letters."""
    wanted = "".join(words.split()).casefold()
    begins = begins_word(tokens, special)
    chosen: list[int] = []
    for start in range(len(tokens)):
        pieces: list[str] = []
        for end in range(start, len(tokens)):
            pieces.append(tokens[end] if special[end] else bare_token(tokens[end]))
            text = whole_characters(pieces)
            if not begins[start] or len(text) > 2 * len(wanted) + _PARTS:
                break
            if text.casefold() == wanted and (end + 1 == len(tokens) or begins[end + 1]):
                chosen += range(start, end + 1)
    if not chosen:
        raise InputError(
            f"{words!r} was given, which is no word of this text; give words of it, positions (3, 3:7), or one of"
            f" {', '.join((*_NAMES, *RELATIVE))}."
        )
    return chosen


def cells(
    selection: Selection | Tensor, queries: int, tokens: Sequence[str], special: Sequence[bool], same: bool
) -> Tensor:
    """A weight for every cell [query, key], or [head, query, key] where such were given: one on the chosen keys.

    same: whether queries and keys are of one text, so that `previous`, `self` and `next` mean something.
    """
    count = len(tokens)
    if isinstance(selection, Tensor):
        if selection.shape[-2:] != (queries, count) or selection.ndim not in (2, 3):
            raise InputError(
                f"weights of shape {list(selection.shape)} were given; expected [query={queries}, key={count}], or that"
                " for each head."
            )
        if not bool(torch.isfinite(selection).all()):
            raise InputError("the weights of the statistic have NaN or infinite entries; give a number for each cell.")
        return selection.double()
    chosen = torch.zeros(queries, count, dtype=torch.float64)
    parts = [part.strip() for part in selection.split(",")] if isinstance(selection, str) else []
    relative = [part for part in parts if part in RELATIVE]
    if relative and not same:
        raise InputError(f"{', '.join(relative)}: queries and keys are of different texts here; give positions.")
    for name in relative:
        place = torch.arange(queries) + RELATIVE[name]
        inside = (place >= 0) & (place < count)
        chosen[torch.arange(queries)[inside], place[inside]] = 1
    others = [part for part in parts if part not in RELATIVE]
    if others or not parts:
        chosen[:, positions(",".join(others) if parts else selection, tokens, special)] = 1
    return chosen
