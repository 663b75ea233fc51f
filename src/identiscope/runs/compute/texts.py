"""Texts of a shard made ready for the model: their tokens, how long each is, which are run, and in which batches."""

from collections.abc import Sequence
from dataclasses import dataclass

from identiscope.capture.inputs import TokenRow, token_row
from identiscope.capture.limits import position_limit
from identiscope.capture.models import Model
from identiscope.corpus.readers import Text
from identiscope.errors import InputError
from identiscope.runs.compute.options import RunOptions
from identiscope.runs.format.shard_shape import Status


@dataclass(frozen=True)
class Measured:
    """One text: how many tokens of it are run, how many were cut, its status, and the tokens, if it is run."""

    tokens: int
    cut: int
    status: Status
    row: TokenRow | None = None


def token_limit(model: Model, options: RunOptions) -> int | None:
    """The most tokens of a text; None where there is no end."""
    own = position_limit(model)
    limits = [limit for limit in (own, options.max_tokens) if limit is not None]
    if own is not None and options.max_tokens is not None and options.max_tokens > own:
        raise InputError(f"max_tokens={options.max_tokens} was given; {model.name} takes at most {own}.")
    return min(limits, default=None)


def measure(model: Model, texts: Sequence[Text], options: RunOptions) -> list[Measured]:
    """The tokens, length and status of each text, without running any.

    A text is tokenized here and nowhere else; one that is to be cut a second time, as only its tokenizer knows how.
    """
    if model.tokenizer is None:
        raise InputError(f"{model.name} came without a tokenizer, which texts need.")
    limit = token_limit(model, options)
    return [_measured(model, text, options, limit) for text in texts]


def _measured(model: Model, text: Text, options: RunOptions, limit: int | None) -> Measured:
    # A tokenizer may forbid an empty text.
    if not all(part.strip() for part in text.parts):
        return Measured(0, 0, "empty")
    row = token_row(model, text.parts, limit if options.too_long == "cut" else None)
    length = len(row.ids)
    if all(row.special):
        return Measured(0, 0, "no tokens")
    if limit is not None and length > limit:
        return Measured(length, 0, "too long")
    return Measured(length, row.cut, "ok", row)


def batches(measured: Sequence[Measured], size: int) -> list[list[int]]:
    """The numbers of the texts that are run, by length so that little is padded, in batches.

    They depend on the shard's texts alone, so that every float comes out the same whoever computes the shard.

    >>> batches([Measured(5, 0, "ok"), Measured(0, 0, "empty"), Measured(3, 0, "ok")], 2)
    [[2, 0]]
    """
    order = sorted((one.tokens, number) for number, one in enumerate(measured) if one.status == "ok")
    numbers = [number for _, number in order]
    return [numbers[begin : begin + size] for begin in range(0, len(numbers), size)]


def rows_of(measured: Sequence[Measured], numbers: Sequence[int]) -> list[TokenRow]:
    """The tokens of some texts that are run."""
    rows = [measured[number].row for number in numbers]
    return [row for row in rows if row is not None]
