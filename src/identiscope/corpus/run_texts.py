"""Texts of a shard made ready for the model: how long each is, which are run, and in which batches."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from identiscope.capture.limits import position_limit
from identiscope.capture.models import Model
from identiscope.corpus.readers import Text
from identiscope.corpus.run_options import RunOptions
from identiscope.errors import InputError

#: Why a text has no statistics, or that it has.
Status = Literal["ok", "empty", "no tokens", "too long"]
STATUSES: tuple[Status, ...] = ("ok", "empty", "no tokens", "too long")


@dataclass(frozen=True)
class Measured:
    """One text: how many tokens of it are run, how many were cut, and its status."""

    tokens: int
    cut: int
    status: Status


def token_limit(model: Model, options: RunOptions) -> int | None:
    """The most tokens of a text; None where there is no end."""
    own = position_limit(model)
    limits = [limit for limit in (own, options.max_tokens) if limit is not None]
    if own is not None and options.max_tokens is not None and options.max_tokens > own:
        raise InputError(f"max_tokens={options.max_tokens} was given; {model.name} takes at most {own}.")
    return min(limits, default=None)


def measure(model: Model, texts: Sequence[Text], options: RunOptions) -> list[Measured]:
    """The length and status of each text, without running any."""
    if model.tokenizer is None:
        raise InputError(f"{model.name} came without a tokenizer, which texts need.")
    limit = token_limit(model, options)
    # A tokenizer may forbid an empty text; what is given in its place is not used.
    whole = [i for i, text in enumerate(texts) if all(part.strip() for part in text.parts)]
    found = [Measured(0, 0, "empty")] * len(texts)
    for number in whole:
        given = model.tokenizer(*texts[number].parts, return_special_tokens_mask=True, verbose=False)
        length, special = len(given["input_ids"]), given["special_tokens_mask"]
        if all(special):
            found[number] = Measured(0, 0, "no tokens")
        elif limit is not None and length > limit:
            cut = options.too_long == "cut"
            found[number] = Measured(limit, length - limit, "ok") if cut else Measured(length, 0, "too long")
        else:
            found[number] = Measured(length, 0, "ok")
    return found


def batches(measured: Sequence[Measured], size: int) -> list[list[int]]:
    """The numbers of the texts that are run, by length so that little is padded, in batches.

    They depend on the shard's texts alone, so that every float comes out the same whoever computes the shard.

    >>> batches([Measured(5, 0, "ok"), Measured(0, 0, "empty"), Measured(3, 0, "ok")], 2)
    [[2, 0]]
    """
    order = sorted((one.tokens, number) for number, one in enumerate(measured) if one.status == "ok")
    numbers = [number for _, number in order]
    return [numbers[begin : begin + size] for begin in range(0, len(numbers), size)]


def cutting(model: Model, limit: int | None) -> Model:
    """The same model with a tokenizer that cuts texts to the limit."""
    return model if limit is None else Model(model.module, _Cutting(model.tokenizer, limit), model.name)


class _Cutting:
    """A tokenizer whose calls end at a number of tokens; all else is the tokenizer's own."""

    def __init__(self, tokenizer: Any, limit: int) -> None:
        self.tokenizer, self.limit = tokenizer, limit

    def __call__(self, *parts: str, **options: Any) -> Any:
        return self.tokenizer(*parts, **(options | {"truncation": True, "max_length": self.limit}))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)


def text_hash(texts: Iterable[Text], before: "hashlib._Hash | None" = None) -> "hashlib._Hash":
    """A hash of texts with their labels, and of those before them."""
    read = hashlib.sha256() if before is None else before
    for text in texts:
        read.update(json.dumps([text.parts, text.label], ensure_ascii=False).encode("utf-8", "surrogatepass"))
    return read
