"""Pieces of words put together."""

from collections.abc import Sequence

import numpy as np

from identiscope.token_text import bare_token, begins_word, shown_token


def joined_words(
    tokens: Sequence[str], special: np.ndarray, side: Sequence[str]
) -> tuple[np.ndarray, list[str], np.ndarray, list[str]]:
    """The number of the word that each token is of; and the words, whether each is special, and its stream.

    >>> joined_words(["[CLS]", "light", "##house"], np.array([True, False, False]), ["tokens"] * 3)[1]
    ['[CLS]', 'lighthouse']
    """
    begins = begins_word(tokens, [bool(flag) for flag in special])
    for place in range(1, len(tokens)):
        begins[place] |= side[place] != side[place - 1]
    groups = np.cumsum(begins) - 1
    words: list[str] = []
    for token, first, flag in zip(tokens, begins, special, strict=True):
        if first:
            words.append(token if flag else token.lstrip("Ġ▁"))
        else:
            words[-1] += bare_token(token)
    firsts = [place for place, first in enumerate(begins) if first]
    return groups, [shown_token(word) for word in words], special[firsts], [side[place] for place in firsts]
