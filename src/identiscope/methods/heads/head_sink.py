"""Attention sinks: heads that give much of their weight to one key, whatever the query."""

from collections.abc import Sequence

import torch
from torch import Tensor

from identiscope.linalg.allowed import Allowed, AllowedKeys, describe_allowed
from identiscope.methods.heads.both_maps import apart, both_maps
from identiscope.methods.heads.numbers import HeadNumbers
from identiscope.methods.tokens.types import types_by_text


def received(attention: Tensor, allowed: Allowed = None) -> Tensor:
    """The mean weight of each key from the queries that may see it, [head, key]; NaN for keys that fewer queries see
    than half of those that see the most seen one: the last token of a causal text is seen by itself alone, and no
    token of a sliding window by half of all.

    >>> received(torch.tensor([[[1.0, 0.0], [0.5, 0.5]]]), "causal")
    tensor([[0.7500, 0.5000]])
    """
    count = describe_allowed(allowed, attention.shape[1], attention.shape[2], attention.device).seen_by
    return torch.where(2 * count >= count.max(), attention.sum(1) / count.clamp(min=1), torch.nan)


def head_sink(
    attention: Tensor,
    value: Tensor,
    projection: Tensor,
    special: Tensor,
    key_tokens: Sequence[str],
    allowed: Allowed = None,
    precision: torch.dtype | None = None,
    row_sum: Tensor | None = None,
    *,
    threshold: float = 0.3,
) -> HeadNumbers:
    """The key with the largest mean weight α_k = mean over i ≥ k of A[i, k], and whether that is a sink: α_k > ε
    (Gu et al. 2024, eq. 7, there for the first token and ε = 0.3).

    `sink_weight` is that mean, `sink_key` its place; `first_weight` is that of the first token. `is_sink`: whether it
    is above the threshold; `sink_on_first`, `sink_on_special` and `sink_on_punctuation` say where it is then, and are
    NaN for heads without a sink. `simplex_`: the same of effective_simplex_span, with its own largest key.

    threshold: ε; from this mean weight on a key is a sink.

    >>> attention, eye = torch.tensor([[[1.0, 0.0], [0.9, 0.1]]]), torch.eye(2)[None]
    >>> found = head_sink(attention, eye, eye, torch.tensor([True, False]), "ab").numbers
    >>> round(float(found["sink_weight"]), 2), float(found["sink_on_special"])
    (0.95, 1.0)
    """
    described = describe_allowed(allowed, attention.shape[1], attention.shape[2], attention.device)
    both = both_maps(attention, value, projection, described, precision, row_sum)
    return sinks_of(both, special, key_tokens, described, threshold)


def sinks_of(
    both: Tensor, special: Tensor, key_tokens: Sequence[str], allowed: AllowedKeys, threshold: float = 0.3
) -> HeadNumbers:
    """The same of raw maps and those that no rewriting changes, [2·head, query, key]."""
    weights, special = received(both, allowed).double(), special.to(both.device)
    largest, key = weights.nan_to_num(nan=-torch.inf).max(-1)
    sink = largest > threshold
    signs = torch.tensor(types_by_text(key_tokens, special.tolist())["punctuation"], device=both.device)
    where = {"first": key == 0, "special": special[key], "punctuation": signs[key]}
    numbers = {
        "sink_weight": largest,
        "sink_key": key,
        "first_weight": weights[:, 0],
        "is_sink": sink.double(),
        **{f"sink_on_{name}": torch.where(sink, flags.double(), torch.nan) for name, flags in where.items()},
    }
    return HeadNumbers(apart(numbers))
