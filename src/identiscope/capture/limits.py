"""What a model can take: how many tokens, which ids, and what they are called."""

import re
from collections.abc import Sequence
from typing import Any

from identiscope.capture.models import Model
from identiscope.token_text import byte_level_name

#: A byte that SentencePiece vocabularies have for a character of their own, such as a line end.
_ASCII = re.compile("<0x([0-7][0-9A-F])>")


def token_names(model: Model, ids: Sequence[int]) -> tuple[str, ...]:
    """The tokenizer's name of each id, with its true characters; or the id itself."""
    if model.tokenizer is None:
        return tuple(str(token) for token in ids)
    names = model.tokenizer.convert_ids_to_tokens(list(ids))
    given = [str(token) if name is None else str(name) for name, token in zip(names, ids, strict=True)]
    if is_byte_level(model.tokenizer):
        return tuple(map(byte_level_name, given))
    return tuple(_ASCII.sub(_character, name) if _ASCII.fullmatch(name) else name for name in given)


def is_byte_level(tokenizer: Any) -> bool:
    """Whether its vocabulary has a sign for each byte: such a tokenizer joins two of them to one character."""
    join = getattr(tokenizer, "convert_tokens_to_string", None)
    try:
        return join is not None and join(["Ã©"]) == "é"
    except Exception:  # a slow tokenizer may not know these signs
        return False


def _character(match: re.Match[str]) -> str:
    code = int(match.group(1), 16)
    return {10: "Ċ", 32: "▁"}.get(code, chr(code))


def vocabulary(model: Model) -> int | None:
    """How many input embeddings the model has."""
    getter = getattr(model.inner, "get_input_embeddings", None)
    try:
        table = getter() if getter is not None else None
    except NotImplementedError:
        table = None
    count = getattr(table, "num_embeddings", None)
    return None if count is None else int(count)


# Families whose positions are relative and have no end, whatever their configuration says.
_ENDLESS = ("t5", "mt5", "umt5", "bloom", "xlnet", "longt5")


def position_limit(model: Model, decoder: bool = False) -> int | None:
    """The most tokens the model's positions allow; None where positions are relative without an end.

    decoder: of the decoder's side, where it has a limit of its own.
    """
    config = model.config
    config = (
        getattr(config, "decoder" if decoder else "encoder", None) or getattr(config, "text_config", None) or config
    )
    if config is None or getattr(config, "model_type", "") in _ENDLESS:
        return None
    if getattr(config, "position_biased_input", True) is False:
        return None  # DeBERTa without absolute positions
    names = ("max_target_positions", "max_position_embeddings") if decoder else ("max_position_embeddings",)
    limit = next((getattr(config, name, None) for name in (*names, "n_positions") if getattr(config, name, None)), None)
    if not isinstance(limit, int) or limit <= 0:
        return None
    return limit - (model.position_offset or 0)


def padding_id(model: Model) -> int:
    """An id for padding that the model has an embedding of; what it is does not matter where it is masked."""
    size = vocabulary(model)
    for holder in (model.config, model.tokenizer):
        padding = getattr(holder, "pad_token_id", None)
        if isinstance(padding, int) and 0 <= padding < (size or padding + 1):
            return padding
    return 0
