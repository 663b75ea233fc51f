"""A token as it is shown: the one way for tables, plots, sentences and pages (there: views/static/text.js)."""

import codecs
import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

#: What byte-level and SentencePiece vocabularies write for a space, and the former for a line end.
_SPACES, _LINE_END = re.compile("[Ġ▁]"), "Ċ"
#: Control characters, marks that would turn the text around them, and halves of surrogate pairs.
_INVISIBLE = re.compile(
    r"[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff"
    "\u034f\u115f\u1160\u17b4\u17b5\u180e\u3164\uffa0\U000e0000-\U000e0fff]"
)
#: A byte as SentencePiece vocabularies write those of characters that they lack: here each part of a character is.
_BYTE = "<0x{:02X}>"
_BYTES = re.compile("((?:<0x[89A-F][0-9A-F]>)+)")
#: Characters of a text that would be taken for marks of its vocabulary.
_MARKS = re.compile("[ĠĊ▁]")
_SPECIAL = re.compile(r"[<\[].*[>\]]$")


def _byte_signs() -> dict[str, int]:
    """What byte-level vocabularies write for each byte: itself where it can be printed, or else one from Ā on."""
    printed = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in set(printed)]
    return {chr(byte): byte for byte in printed} | {chr(0x100 + place): byte for place, byte in enumerate(others)}


_BYTE_SIGNS = _byte_signs()


def _in_bytes(part: bytes) -> str:
    return "".join(map(_BYTE.format, part))


def _parts(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return _in_bytes(error.object[error.start : error.end]), error.end


codecs.register_error("identiscope.parts", _parts)


@lru_cache(maxsize=2**16)
def byte_level_name(name: str) -> str:
    """What a byte-level vocabulary calls a token, with its true characters; parts of one are written as bytes.

    >>> byte_level_name("ĠcafÃ©"), byte_level_name("âĢ"), byte_level_name("<|end▁of▁text|>")
    ('Ġcafé', '<0xE2><0x80>', '<|end▁of▁text|>')
    """
    if not name or any(sign not in _BYTE_SIGNS for sign in name):
        return name
    text = _decoded(bytes(map(_BYTE_SIGNS.__getitem__, name)))
    return text.replace(" ", "Ġ").replace("\n", "Ċ")


def whole_characters(names: Sequence[str]) -> str:
    """Names of tokens one after the other, with the characters that their bytes make.

    >>> whole_characters(["it", "<0xE2><0x80>", "<0x99>", "s"])
    'it’s'
    """
    text, pending = "", ""
    for name in names:
        # A token has all letters of a byte, or it is a text in which somebody writes of bytes.
        for piece in filter(None, _BYTES.split(name)):
            if _BYTES.match(piece):
                pending += piece
            else:
                text, pending = text + _of_bytes(pending) + piece, ""
    return text + _of_bytes(pending)


def _of_bytes(signs: str) -> str:
    return _decoded(bytes.fromhex(re.sub("<0x|>", "", signs)))


def _decoded(part: bytes) -> str:
    """The text of bytes; those of parts of characters, and of what would be taken for a mark, stay bytes."""
    return _MARKS.sub(lambda match: _in_bytes(match.group().encode()), part.decode("utf-8", "identiscope.parts"))


def named_in_text(names: Sequence[str]) -> tuple[str, ...]:
    """Names of the tokens of a text from an unknown vocabulary: with true characters if it is a byte-level one.

    It is one if a space is written as it does it, and all that is made of its signs is a text, which may be cut.

    >>> named_in_text(["It", "âĢĻ", "s", "Ġhot"]), named_in_text(["ġ", "ı"])
    (('It', '’', 's', 'Ġhot'), ('ġ', 'ı'))
    """
    names = tuple(map(str, names))
    own = [name for name in names if _BYTE_SIGNS.keys() >= set(name)]
    if not any(name.startswith(("Ġ", "Ċ")) for name in own):
        return names
    if any(not _SPECIAL.match(name) for name in names if not _BYTE_SIGNS.keys() >= set(name)):
        return names
    try:
        codecs.getincrementaldecoder("utf-8")().decode(bytes(_BYTE_SIGNS[sign] for name in own for sign in name))
    except UnicodeDecodeError:
        return names
    return tuple(map(byte_level_name, names))


def shown_token(token: object) -> str:
    """A token with its spaces and invisible characters made visible.

    A token of a part of a character is shown by its bytes, as `<0xE2>`.

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


def begins_word(tokens: Sequence[str], special: Sequence[bool], marked: bool = False) -> list[bool]:
    """Whether each token begins a word, by the marks of its vocabulary; special tokens and punctuation do.

    WordPiece marks what goes on (`##ing`), byte-level and SentencePiece vocabularies what begins (`Ġthe`, `▁the`),
    those of XLM and CLIP what ends (`the</w>`).

    marked: the vocabulary is known to mark what begins, which the tokens of a single word do not tell.

    >>> begins_word(["[CLS]", "light", "##house", "."], [True, False, False, False])
    [True, True, False, True]
    >>> begins_word(["light", "house", "Ġkeeper"], [False] * 3)
    [True, False, True]
    >>> begins_word(["light", "house</w>", "keeper</w>"], [False] * 3)
    [True, False, True]
    >>> begins_word(["Un", "belie", "v", "ably"], [False] * 4, marked=True)
    [True, False, False, False]
    """
    marked = marked or any(token.startswith(("Ġ", "▁")) for token in tokens)
    ended = any(token.endswith("</w>") for token in tokens)
    begin: list[bool] = []
    for place, token in enumerate(tokens):
        after_break = place == 0 or special[place - 1] or is_punctuation(tokens[place - 1])
        begins = token.startswith(("Ġ", "▁", "Ċ")) if marked else not token.startswith("##")
        if ended:
            begins = place == 0 or tokens[place - 1].endswith("</w>")
        begin.append(begins or special[place] or after_break or is_punctuation(token))
    return begin


def joined_words(
    tokens: Sequence[str], special: Sequence[bool], side: Sequence[str], marked: bool = False
) -> tuple[list[int], list[str], list[bool], list[str]]:
    """The number of the word that each token is of; and the words, whether each is special, and its stream.

    marked: as in `begins_word`.

    >>> joined_words(["[CLS]", "light", "##house"], [True, False, False], ["tokens"] * 3)[1]
    ['[CLS]', 'lighthouse']
    >>> joined_words(["Ġ", "Ġtwo", "Ġ", "2"], [False] * 4, ["tokens"] * 4)[1]
    ['␣', 'two', '2']
    """
    begins = begins_word(tokens, [bool(flag) for flag in special], marked)
    for place in range(1, len(tokens)):
        begins[place] |= side[place] != side[place - 1]
    words: list[list[str]] = []
    groups: list[int] = []
    for token, first, flag in zip(tokens, begins, special, strict=True):
        if first:
            words.append([token if flag else token.lstrip("Ġ▁").removesuffix("</w>")])
        else:
            words[-1].append(bare_token(token))
        groups.append(len(words) - 1)
    firsts = [place for place, first in enumerate(begins) if first]
    # A space between two words, or before punctuation, may be a token of its own, which begins a word of nothing.
    shown = [shown_token(whole_characters(word) or tokens[first]) for word, first in zip(words, firsts, strict=True)]
    return groups, shown, [bool(special[place]) for place in firsts], [side[place] for place in firsts]
