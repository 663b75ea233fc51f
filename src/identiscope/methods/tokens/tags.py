"""Part-of-speech tags for tokens: word pieces inherit the tag of their word."""

from collections.abc import Sequence

#: (first character, one past the last, tag) of a word.
TaggedWord = tuple[int, int, str]


def tags_of_tokens(
    tokens: Sequence[str],
    offsets: Sequence[tuple[int, int]],
    special: Sequence[bool],
    words: Sequence[Sequence[TaggedWord]],
) -> list[str | None]:
    """The tag of the word that each token lies in; None where there is no word.

    offsets: (begin, end) characters of each token in its part of the text; words: those of each part. A part begins
    with the first ordinary token after a special one, as long as there are parts left. Special tokens have their own
    name, such as [CLS], for a tag. A token that reaches over several words gets the tag of the one it shares most
    characters with, the first of them if two share as many.

    >>> tags_of_tokens(["[CLS]", "walk", "##ing"], [(0, 0), (0, 4), (4, 7)], [True, False, False], [[(0, 7, "VBG")]])
    ['[CLS]', 'VBG', 'VBG']
    """
    tags: list[str | None] = []
    part, inside = -1, False
    for token, (begin, end), is_special in zip(tokens, offsets, special, strict=True):
        if not is_special and not inside:
            part = min(part + 1, len(words) - 1)
        inside = not is_special
        if is_special:
            tags.append(token)
            continue
        best, most = None, 0
        for start, stop, tag in words[part] if words else ():
            shared = min(end, stop) - max(begin, start)
            if shared > most:
                best, most = tag, shared
        tags.append(best)
    return tags
