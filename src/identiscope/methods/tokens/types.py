"""What type a token is of: special ones, those that begin and separate, signs of punctuation, and all others."""

from collections.abc import Sequence
from typing import Any

from identiscope.token_text import bare_token, is_punctuation


def types_of_tokens(
    tokens: Sequence[str], ids: Sequence[int] | None, special: Sequence[bool], tokenizer: Any
) -> dict[str, list[bool]]:
    """One flag a token for each type; a token may be of several.

    `cls` and `sep` are the tokenizer's own, whatever it calls them, and are none where ids are not known. `punctuation`
    is what is made of it alone, `point` a full stop or comma, `other` neither special nor punctuation.

    >>> types_of_tokens(["a", "."], None, [False, False], None)["point"]
    [False, True]
    """
    numbers = ids or (None,) * len(special)
    named = {name: getattr(tokenizer, f"{name}_token_id", None) for name in ("cls", "sep")}
    own = {name: [known is not None and number == known for number in numbers] for name, known in named.items()}
    return types_by_text(tokens, special) | own


def types_by_text(tokens: Sequence[str], special: Sequence[bool]) -> dict[str, list[bool]]:
    """The types that are told by the tokens' text, and by which of them are special.

    >>> types_by_text(["[SEP]", "Ġ,", "!", "a"], [True, False, False, False])["point"]
    [False, True, False, False]
    """
    signs = [not flag and is_punctuation(token) for flag, token in zip(special, tokens, strict=True)]
    return {
        "special": list(special),
        "punctuation": signs,
        "point": [not flag and bare_token(token) in (".", ",") for flag, token in zip(special, tokens, strict=True)],
        "other": [not flag and not sign for flag, sign in zip(special, signs, strict=True)],
    }
