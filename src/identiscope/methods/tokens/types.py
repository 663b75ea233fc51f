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
    signs = [not flag and is_punctuation(token) for flag, token in zip(special, tokens, strict=True)]
    return {
        "special": list(special),
        **{name: [own is not None and number == own for number in numbers] for name, own in named.items()},
        "punctuation": signs,
        "point": [bare_token(token) in (".", ",") for token in tokens],
        "other": [not flag and not sign for flag, sign in zip(special, signs, strict=True)],
    }
