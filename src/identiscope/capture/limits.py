"""What a model can take: how many tokens, which ids, and what they are called."""

from collections.abc import Sequence

from identiscope.capture.models import Model


def token_names(model: Model, ids: Sequence[int]) -> tuple[str, ...]:
    """The tokenizer's name of each id, or the id itself."""
    if model.tokenizer is None:
        return tuple(str(token) for token in ids)
    names = model.tokenizer.convert_ids_to_tokens(list(ids))
    return tuple(str(token) if name is None else str(name) for name, token in zip(names, ids, strict=True))


def vocabulary(model: Model) -> int | None:
    """How many input embeddings the model has."""
    getter = getattr(model.module, "get_input_embeddings", None)
    try:
        table = getter() if getter is not None else None
    except NotImplementedError:
        table = None
    count = getattr(table, "num_embeddings", None)
    return None if count is None else int(count)


def position_limit(model: Model) -> int | None:
    """The most tokens the model's positions allow; None where positions are relative without an end."""
    config = getattr(model.config, "text_config", None) or model.config
    if config is None or getattr(config, "model_type", "") in (
        "t5",
        "mt5",
        "umt5",
        "bloom",
        "xlnet",
        "longt5",
    ):
        return None
    limit = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None)
    if not isinstance(limit, int) or limit <= 0:
        return None
    offset = _position_offset(model)
    return limit if offset is None else limit - offset


def positions_follow_ids(model: Model) -> bool:
    """Whether the model counts positions itself, from the first id that is not padding (RoBERTa and its kin)."""
    return _position_offset(model) is not None


def _position_offset(model: Model) -> int | None:
    # RoBERTa and its kin count positions from padding_idx + 1, so that many of the table are never used.
    for name, module in model.module.named_modules():
        index = getattr(module, "padding_idx", None)
        if name.endswith("embeddings.position_embeddings") and isinstance(index, int):
            return index + 1
    return None
