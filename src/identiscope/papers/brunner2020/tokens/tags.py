"""The parts of speech of a traced text's tokens."""

from collections.abc import Callable, Sequence

from identiscope.capture import Trace
from identiscope.errors import InputError
from identiscope.methods.tokens.tags import TaggedWord, tags_of_tokens

#: The words of a text's part with their tags, from any tagger.
Tagger = Callable[[str], Sequence[TaggedWord]]


def token_tags(
    trace: Trace, words: Sequence[Sequence[TaggedWord]] | Tagger, parts: Sequence[str] | None = None
) -> list[str | None]:
    """The part-of-speech tag of every token of a text; word pieces inherit their word's.

    words: (start, end, tag) of the words of each part of the text, as `corpus.readers` gives them from CoNLL-U;
    or a function from a text to those, with the `parts` it is to tag.
    """
    stream = trace.main
    if stream.offsets is None:
        raise InputError("the tokenizer gives no character offsets, which tags need; use a fast tokenizer.")
    if callable(words):
        if parts is None:
            raise InputError("a tagger needs the text: give parts=[text], or two for a pair.")
        words = [words(part) for part in parts]
    return tags_of_tokens(stream.tokens, stream.offsets, stream.special, words)
