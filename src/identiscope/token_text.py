"""A token as it is shown: the one way for tables, plots, sentences and pages (there: views/static/text.js)."""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

#: What byte-level and SentencePiece vocabularies write for a space, and the former for a line end.
_SPACES, _LINE_END = re.compile("[Ġ▁]"), "Ċ"
#: Control characters, marks that would turn the text around them, and halves of surrogate pairs.
_INVISIBLE = re.compile(
    r"[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


def shown_token(token: object) -> str:
    """A token with its spaces and invisible characters made visible.

    >>> shown_token("Ġthe"), shown_token("▁the"), shown_token("\\t")
    ('␣the', '␣the', 'U+0009')
    """
    text = _SPACES.sub("␣", str(token)).replace(_LINE_END, "⏎")
    return _INVISIBLE.sub(_visible, text)


def drawn_token(token: object) -> str:
    """The same for matplotlib, for which a dollar would begin a formula."""
    return shown_token(token).replace("$", r"\$")


def _visible(match: re.Match[str]) -> str:
    code = ord(match.group())
    return "⏎" if code == 10 else f"U+{code:04X}"


def bare_token(token: str) -> str:
    """A token without the marks of its vocabulary.

    >>> bare_token("Ġthe"), bare_token("##ing")
    ('the', 'ing')
    """
    return token.lstrip("Ġ▁").removeprefix("##").removesuffix("</w>")


# Every layer of every text asks it of the same few thousand tokens.
@lru_cache(maxsize=2**16)
def is_punctuation(token: str) -> bool:
    """Whether a token, without the marks of its vocabulary, is made of punctuation alone.

    >>> is_punctuation("Ġ,"), is_punctuation("##s")
    (True, False)
    """
    bare = bare_token(token)
    return bool(bare) and all(unicodedata.category(sign).startswith("P") for sign in bare)


def begins_word(tokens: Sequence[str], special: Sequence[bool]) -> list[bool]:
    """Whether each token begins a word, by the marks of its vocabulary; special tokens and punctuation do.

    WordPiece marks what goes on (`##ing`), byte-level and SentencePiece vocabularies what begins (`Ġthe`, `▁the`).

    >>> begins_word(["[CLS]", "light", "##house", "."], [True, False, False, False])
    [True, True, False, True]
    >>> begins_word(["light", "house", "Ġkeeper"], [False] * 3)
    [True, False, True]
    """
    marked = any(token.startswith(("Ġ", "▁")) for token in tokens)
    begin: list[bool] = []
    for place, token in enumerate(tokens):
        after_break = place == 0 or special[place - 1] or is_punctuation(tokens[place - 1])
        begins = token.startswith(("Ġ", "▁", "Ċ")) if marked else not token.startswith("##")
        begin.append(begins or special[place] or after_break or is_punctuation(token))
    return begin


def joined_words(
    tokens: Sequence[str], special: Sequence[bool], side: Sequence[str]
) -> tuple[list[int], list[str], list[bool], list[str]]:
    """The number of the word that each token is of; and the words, whether each is special, and its stream.

    >>> joined_words(["[CLS]", "light", "##house"], [True, False, False], ["tokens"] * 3)[1]
    ['[CLS]', 'lighthouse']
    """
    begins = begins_word(tokens, [bool(flag) for flag in special])
    for place in range(1, len(tokens)):
        begins[place] |= side[place] != side[place - 1]
    words: list[str] = []
    groups: list[int] = []
    for token, first, flag in zip(tokens, begins, special, strict=True):
        if first:
            words.append(token if flag else token.lstrip("Ġ▁"))
        else:
            words[-1] += bare_token(token)
        groups.append(len(words) - 1)
    firsts = [place for place, first in enumerate(begins) if first]
    shown = [shown_token(word) for word in words]
    return groups, shown, [bool(special[place]) for place in firsts], [side[place] for place in firsts]
