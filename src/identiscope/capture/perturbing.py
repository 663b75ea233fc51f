"""Texts of which tokens were taken away, or replaced by some that say nothing: by ids, never by tokenising again."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from identiscope.capture.batch import by_position
from identiscope.capture.limits import padding_id
from identiscope.errors import InputError

if TYPE_CHECKING:
    from identiscope.capture.outcome.outcome import Outcome
    from identiscope.capture.runner import Runner
    from identiscope.capture.trace import Trace

# What tokenizers call the tokens that stand for nothing.
_TOKENS = {"mask": "mask_token", "unknown": "unk_token", "padding": "pad_token"}


def ids_argument(trace: "Trace", stream: str) -> str:
    """The argument that holds the ids of a stream."""
    return "decoder_input_ids" if stream == "decoder" else "input_ids"


def shortened(
    trace: "Trace", kept: Mapping[str, Tensor], device: torch.device
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Arguments of several texts of which only some tokens are left, padded behind; and which token stands where by
    stream, [text, position], −1 for padding."""
    assert trace.batch is not None
    given = trace.batch.arguments
    size = len(next(iter(kept.values())))
    arguments = {name: value.repeat(size, *[1] * (value.dim() - 1)) for name, value in given.items()}
    places: dict[str, Tensor] = {}
    for stream, keep in kept.items():
        name = ids_argument(trace, stream)
        if name not in given:
            raise InputError(f"the positions of {stream} are no tokens, and cannot be deleted; replace them instead.")
        if not bool(keep.any(1).all()):
            raise InputError("every token of a text would be deleted; keep at least one.")
        length, most = keep.shape[1], int(keep.sum(1).max())
        # Those that are kept first, in their order.
        order = torch.sort((~keep).to(torch.int8), dim=1, stable=True).indices[:, :most].to(device)
        there = torch.arange(most, device=device) < keep.sum(1, keepdim=True).to(device)
        places[stream] = torch.where(there, order, -1)
        for argument, value in list(arguments.items()):
            if not by_position(argument, value, name, length):
                continue
            if argument.endswith("position_ids"):
                del arguments[argument]  # counted anew
                continue
            index = order.reshape(*order.shape, *[1] * (value.dim() - 2)).expand(-1, -1, *value.shape[2:])
            arguments[argument] = value.to(device).gather(1, index)
        assert trace.model is not None
        arguments[name] = arguments[name].masked_fill(~there, padding_id(trace.model))
        mask = name.replace("input_ids", "attention_mask")
        if mask in arguments or not bool(there.all()):
            arguments[mask] = there.long()
    return arguments, places


def with_ids(trace: "Trace", ids: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """Arguments of several texts that have other tokens [text, token] in the places of this one's, by stream."""
    assert trace.batch is not None
    given = trace.batch.arguments
    size = len(next(iter(ids.values())))
    arguments = {name: value.repeat(size, *[1] * (value.dim() - 1)).to(device) for name, value in given.items()}
    for stream, tokens in ids.items():
        name = ids_argument(trace, stream)
        if name not in given or given[name].shape[1] != tokens.shape[1]:
            raise InputError(f"the positions of {stream} are no tokens, or not {tokens.shape[1]} of them.")
        arguments[name] = tokens.to(device, given[name].dtype)
    return arguments


def baseline_of(
    runner: "Runner", trace: "Trace", stream: str, name: str | None, outcome: "Outcome", summed: bool
) -> tuple[Tensor, str]:
    """Embeddings [token, model] of a stream whose tokens say nothing, and what stands for them.

    Special tokens stay, and so does the place at which a masked word is read.
    """
    own = trace.streams[stream]
    x = own.embedding_sum if summed and own.embedding_sum is not None else own.embeddings
    special = torch.tensor(own.special, dtype=torch.bool, device=x.device)
    filler, word = (None, name) if name in ("mean", "zero") else filler_of(trace, stream, name)
    if filler is None:
        word = word or "mean"
        ordinary = x[~special] if bool((~special).any()) else x
        row = torch.zeros_like(x[0]) if word == "zero" else ordinary.mean(0)
        rows = torch.where(special[:, None], x, row)
        return rows, "zeros" if word == "zero" else "the mean embedding of the text"
    argument = ids_argument(trace, stream)
    assert trace.batch is not None
    ids = trace.batch.arguments[argument]
    replaced = torch.where(special.to(ids.device)[None], ids, filler)
    rows = runner.first_states({argument: replaced}, stream, summed=summed)
    return torch.where(special[:, None], x, rows), str(word)


def filler_of(trace: "Trace", stream: str, name: str | None) -> tuple[int | None, str | None]:
    """The id that stands for nothing, and the token's own name; None if the model has none and none was asked for."""
    assert trace.model is not None and trace.batch is not None
    tokenizer: Any = trace.model.tokenizer
    if ids_argument(trace, stream) not in trace.batch.arguments:
        if name is not None:
            raise InputError(
                f"baseline={name!r} was given; the positions of {stream} are no tokens: give mean or zero."
            )
        return None, None
    for kind in _TOKENS if name is None else (name,):
        number = getattr(tokenizer, f"{_TOKENS[kind]}_id", None)
        if number is not None:
            return int(number), str(getattr(tokenizer, _TOKENS[kind]))
    if name is not None:
        there = [kind for kind, own in _TOKENS.items() if getattr(tokenizer, f"{own}_id", None) is not None]
        others = [*there, "mean", "zero"]
        raise InputError(
            f"baseline={name!r} was given; {trace.model.name} has no such token. Give another: {', '.join(others)}."
        )
    return None, None
