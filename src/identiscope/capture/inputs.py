"""What a user gives (text, pairs, ids, pixels, features) as what the model takes, and what to call each position."""

import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from identiscope.capture.batch import Batch, Labels, by_position, moved_left
from identiscope.capture.limits import padding_id, position_limit, token_names, vocabulary
from identiscope.capture.models import Model
from identiscope.capture.streams import MAIN
from identiscope.capture.tokenizing import tokenize
from identiscope.errors import InputError

Text = str | tuple[str, str] | Sequence[int] | Tensor | Mapping[str, Tensor]


def is_many(text: Any) -> bool:
    """Whether this is a list of texts (or pairs, or id lists) rather than one."""
    if not isinstance(text, list):
        return False
    return len(text) == 0 or not _is_whole(text[0])


def _is_whole(value: Any) -> bool:
    """A whole number of Python or NumPy, and not a truth value."""
    return hasattr(value, "__index__") and not isinstance(value, (bool, Tensor)) and getattr(value, "ndim", 0) == 0


def encode(model: Model, texts: Sequence[Any], *, targets: Sequence[str | None], truncate: bool = False) -> Batch:
    """Arguments for one forward call over `texts`, padded on the right whatever their tokenizer does.

    Positions then count from the first token as they do for a text alone, also in models that cannot be told positions.
    targets: for an encoder–decoder, the text (or None) that the decoder has been given.
    """
    if not texts:
        raise InputError("no text was given; give at least one.")
    first = texts[0]
    if isinstance(first, Mapping):
        if len(texts) > 1:
            raise InputError("give one mapping of arguments at a time; it may hold a batch.")
        if targets[0] is not None:
            raise InputError("a mapping holds all arguments; put decoder_input_ids into it instead of a target.")
        return _given(model, dict(first))
    if all(isinstance(text, Tensor) and text.is_floating_point() for text in texts):
        return _tensors(model, list(texts), targets, truncate)
    rows = [_ids(model, text, truncate) for text in texts]
    arguments, labels = _padded(model, rows)
    if getattr(model.config, "is_encoder_decoder", False):
        labels = [{"encoder": label[MAIN]} for label in labels]
        decoder_rows = [
            _behind(model, row) if _reads_twice(model, target) else _target(model, target, truncate)
            for row, target in zip(rows, targets, strict=True)
        ]
        decoder_arguments, decoder_labels = _padded(model, decoder_rows)
        arguments |= {f"decoder_{name}": value for name, value in decoder_arguments.items() if name in _DECODER}
        for label, decoder in zip(labels, decoder_labels, strict=True):
            label["decoder"] = decoder[MAIN]
    elif any(target is not None for target in targets):
        raise InputError(f"{model.name} has no decoder with a text of its own; leave target out.")
    return Batch(arguments, tuple(labels))


_DECODER = ("input_ids", "attention_mask")
# Heads of encoder–decoders that read a text from the decoder, which is given it a second time.
_OF_THE_TEXT = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")


@dataclass(frozen=True)
class TokenRow:
    """A text as its tokenizer gave it; taken for a text wherever one is, so that it is tokenized once.

    cut: how many tokens truncation removed.
    """

    ids: list[int]
    types: list[int] | None
    offsets: list[tuple[int, int]] | None
    special: list[bool]
    cut: int


def _ids(model: Model, text: Any, truncate: bool) -> TokenRow:
    tokenizer = model.tokenizer
    if isinstance(text, TokenRow):
        return _fitted(model, text, truncate)
    if isinstance(text, (str, tuple)):
        parts = (text,) if isinstance(text, str) else tuple(text)
        if len(parts) > 2 or not all(isinstance(part, str) for part in parts):
            raise InputError(f"a pair is a tuple of two texts; given {text!r}.")
        if tokenizer is None:
            raise InputError(f"{model.name} came without a tokenizer; pass one to load(), or give token ids.")
        if not parts or any(not part.strip() for part in parts):
            raise InputError(f"the text is empty: {text!r}. Give at least one word.")
        if any("\ud800" <= sign <= "\udfff" for part in parts for sign in part):
            raise InputError("the text has half a surrogate pair, which is no character; read it as UTF-8 again.")
        return _tokenized(model, parts, truncate)
    if isinstance(text, bytes) or not (hasattr(text, "tolist") or isinstance(text, (list, range))):
        raise InputError(f"a text is a string, a pair of strings, or a list of token ids; given {type(text).__name__}.")
    ids = text.tolist() if hasattr(text, "tolist") else list(text)
    if not isinstance(ids, list) or not ids or not all(map(_is_whole, ids)):
        raise InputError(f"token ids are a list of whole numbers, one text; given {str(text)[:80]}.")
    ids = [int(token) for token in ids]
    special = set(getattr(tokenizer, "all_special_ids", ()))
    row = TokenRow(ids, None, None, [token in special for token in ids], 0)
    return _fitted(model, row, truncate)


def _tokenized(model: Model, parts: tuple[str, ...], truncate: bool) -> TokenRow:
    row = token_row(model, parts, position_limit(model) if truncate else None)
    if all(row.special):
        raise InputError(f"the text {parts[0]!r} has no token that {model.name} knows.")
    return _fitted(model, row, truncate)


def token_row(model: Model, parts: Sequence[str], most: int | None = None) -> TokenRow:
    """One text tokenized, and cut to so many tokens if it has more."""
    tokenizer = model.tokenizer
    fast = bool(getattr(tokenizer, "is_fast", False))
    # The tokenizer warns of its own length limit; the model's is the one that matters, and is checked elsewhere.
    options: dict[str, Any] = {
        "return_special_tokens_mask": True,
        "return_offsets_mapping": fast,
        "verbose": False,
    }
    whole = tokenize(tokenizer, *parts, **options)
    length = len(whole["input_ids"])
    cut = 0
    if most is not None and length > most:
        whole = tokenize(tokenizer, *parts, truncation=True, max_length=most, **options)
        cut = length - len(whole["input_ids"])
    special = [bool(flag) for flag in whole["special_tokens_mask"]]
    offsets = [tuple(span) for span in whole["offset_mapping"]] if fast else None
    return TokenRow(list(whole["input_ids"]), whole.get("token_type_ids"), offsets, special, cut)


def _fitted(model: Model, row: TokenRow, truncate: bool, decoder: bool = False) -> TokenRow:
    limit = position_limit(model, decoder)
    count = len(row.ids)
    if limit is not None and count > limit:
        if not truncate:
            raise InputError(
                f"the text has {count} tokens, and {model.name} takes at most {limit}."
                " Shorten it, or ask for truncation (truncate=True, on the command line --truncate)."
            )
        row = TokenRow(
            row.ids[:limit],
            None if row.types is None else row.types[:limit],
            None if row.offsets is None else row.offsets[:limit],
            row.special[:limit],
            row.cut + count - limit,
        )
    size = vocabulary(model)
    worst = max(row.ids)
    if size is not None and (worst >= size or min(row.ids) < 0):
        raise InputError(
            f"token id {worst if worst >= size else min(row.ids)} is outside the {size} embeddings of {model.name};"
            " the tokenizer does not belong to this model. Load the one it was trained with."
        )
    return row


def _reads_twice(model: Model, target: str | None) -> bool:
    """Whether the decoder is given the text, too: a head that classifies it reads it there."""
    name = type(model.inner).__name__
    if not name.endswith(_OF_THE_TEXT):
        return False
    if target is not None:
        raise InputError(f"the decoder of {model.name} ({name}) reads the text itself; leave target out.")
    return True


def _behind(model: Model, row: TokenRow) -> TokenRow:
    """A text one place behind, as such a model gives it to its decoder: what begins it is the start token, or the last
    one, which for mBART says the language."""
    shift = getattr(sys.modules[type(model.inner).__module__], "shift_tokens_right", None)
    wraps = shift is not None and "decoder_start_token_id" not in inspect.signature(shift).parameters
    first = row.ids[-1] if wraps else _start(model)
    offsets = None if row.offsets is None else [(0, 0), *row.offsets[:-1]]
    return TokenRow([first, *row.ids[:-1]], None, offsets, [True, *row.special[:-1]], row.cut)


def _start(model: Model) -> int:
    """The token with which a decoder starts."""
    for name in ("decoder_start_token_id", "bos_token_id"):
        start = getattr(model.config, name, None)
        if start is not None:
            return int(start)
    raise InputError(
        f"{model.name} does not say with which token its decoder starts (decoder_start_token_id); give a mapping"
        " with input_ids and decoder_input_ids."
    )


def _target(model: Model, target: str | None, truncate: bool) -> TokenRow:
    """Decoder input: the start token, then the target shifted by one, as in training."""
    start = _start(model)
    if target is None:
        return TokenRow([start], None, None, [True], 0)
    if model.tokenizer is None:
        raise InputError(f"{model.name} came without a tokenizer, which a target text needs.")
    if not isinstance(target, str) or not target.strip():
        raise InputError(f"a target is a text of at least one word; given {target!r}.")
    encoded = tokenize(model.tokenizer, text_target=target, return_special_tokens_mask=True)
    ids, special = list(encoded["input_ids"]), [bool(flag) for flag in encoded["special_tokens_mask"]]
    if special[-1]:
        ids, special = ids[:-1], special[:-1]  # the end token is what the decoder predicts last, and never reads
    return _fitted(model, TokenRow([start, *ids], None, None, [True, *special], 0), truncate, decoder=True)


def _padded(model: Model, rows: list[TokenRow]) -> tuple[dict[str, Tensor], list[dict[str, Labels]]]:
    length = max(len(row.ids) for row in rows)
    filler = padding_id(model)
    device = model.device
    ids = torch.full((len(rows), length), filler, dtype=torch.long, device=device)
    mask = torch.zeros_like(ids)
    types = torch.zeros_like(ids)
    labels = []
    for number, row in enumerate(rows):
        span = slice(len(row.ids))
        ids[number, span] = torch.tensor(row.ids, device=device)
        mask[number, span] = 1
        if row.types is not None:
            types[number, span] = torch.tensor(row.types, device=device)
        places = tuple(range(len(row.ids)))
        offsets = None if row.offsets is None else tuple(row.offsets)
        names = token_names(model, row.ids)
        labels.append({MAIN: Labels(names, tuple(row.ids), offsets, tuple(row.special), places, row.cut)})
    arguments = {"input_ids": ids, "attention_mask": mask}
    if any(row.types is not None for row in rows):
        arguments["token_type_ids"] = types
    return arguments, labels


def _given(model: Model, arguments: dict[str, Tensor]) -> Batch:
    """A mapping is passed on as it is, to where the model is; padding on the left goes to the right; its ids, if any,
    are the labels."""
    if not arguments or not all(isinstance(value, Tensor) for value in arguments.values()):
        raise InputError("a mapping of model arguments holds a tensor for each; given " + repr(sorted(arguments)))
    if any(value.dim() == 0 for value in arguments.values()):
        raise InputError("every tensor of a mapping has a batch axis first; one of them has no axes at all.")
    size = next(iter(arguments.values())).shape[0]
    names = {"input_ids": MAIN, "decoder_input_ids": "decoder"}
    if getattr(model.config, "is_encoder_decoder", False):
        names["input_ids"] = "encoder"
    elif "pixel_values" in arguments and "input_ids" in arguments:
        names["input_ids"] = "text"
    labels: list[dict[str, Labels]] = [{} for _ in range(size)]
    special = set(getattr(model.tokenizer, "all_special_ids", ()))
    for argument, stream in names.items():
        ids = arguments.get(argument)
        if ids is None:
            continue
        mask = arguments.get(argument.replace("input_ids", "attention_mask"), torch.ones_like(ids))
        if ids.dim() != 2 or mask.shape != ids.shape or not bool(mask.any(1).all()):
            raise InputError(
                f"{argument} {tuple(ids.shape)} and its mask {tuple(mask.shape)} must both be [batch, position], and no"
                " text masked as a whole."
            )
        before = mask.bool().int().argmax(1)
        if bool(before.any()):
            arguments = {
                name: moved_left(value, before) if by_position(name, value, argument, ids.shape[1]) else value
                for name, value in arguments.items()
            }
            ids, mask = moved_left(ids, before), moved_left(mask, before)
        for number in range(size):
            places = tuple(mask[number].nonzero().flatten().tolist())
            kept = tuple(ids[number, list(places)].tolist())
            row = TokenRow(list(kept), None, None, [token in special for token in kept], 0)
            _fitted(model, row, False)
            labels[number][stream] = Labels(token_names(model, row.ids), kept, None, tuple(row.special), places)
    for side in ("", "decoder_"):
        shown = arguments.get(f"{side}attention_mask")
        if f"{side}inputs_embeds" in arguments and shown is not None and not bool(shown.bool().all()):
            # Whose places they shift, and which rows of a map are of padding, is known of token ids alone.
            raise InputError(
                f"{side}attention_mask hides positions of {side}inputs_embeds, and padded embeddings are not told from"
                f" those of a text. Give one text at a time without its padding, or {side}input_ids."
            )
    made = Batch({name: value.to(model.device) for name, value in arguments.items()}, tuple(labels))
    is_padded = any(len(label["encoder"].positions) != made.length("encoder") for label in labels if "encoder" in label)
    return replace(made, apart=is_padded and not any(name.startswith("decoder_input") for name in arguments))


def _tensors(model: Model, tensors: list[Tensor], targets: Sequence[str | None], truncate: bool) -> Batch:
    """Pixels for a vision model, features for a speech model, embeddings for a plain PyTorch module."""
    name = str(getattr(model.inner, "main_input_name", "input"))
    rank = {"pixel_values": 3, "input_features": 2, "input_values": 1}.get(name, 2)
    if not all(tensor.dim() in (rank, rank + 1) for tensor in tensors) or name == "input_ids":
        raise InputError(
            f"{model.name} takes {name}"
            + (", which are token ids" if name == "input_ids" else f" of {rank} axes each")
            + f"; given a tensor of shape {tuple(tensors[0].shape)} and type {tensors[0].dtype}."
        )
    stacked = [tensor if tensor.dim() == rank + 1 else tensor[None] for tensor in tensors]
    if len({tensor.shape[1:] for tensor in stacked}) > 1:
        raise InputError(f"tensors of one batch need one shape; given {[tuple(tensor.shape) for tensor in tensors]}.")
    values = torch.cat(stacked).to(model.device, model.dtype)
    arguments = {name: values}
    labels: list[dict[str, Labels]] = [{} for _ in range(values.shape[0])]
    if getattr(model.config, "is_encoder_decoder", False):
        given = list(targets) if len(targets) == len(labels) else [targets[0]] * len(labels)
        decoder, decoder_labels = _padded(model, [_target(model, target, truncate) for target in given])
        arguments["decoder_input_ids"] = decoder["input_ids"]
        labels = [{"decoder": label[MAIN]} for label in decoder_labels]
    return Batch(arguments, tuple(labels))
