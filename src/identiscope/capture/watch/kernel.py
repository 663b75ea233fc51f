"""Attention written out: the weights one softmax kernel computes, from what it was given."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

# A logit this far down has weight exactly 0 in every floating-point format: exp(-5000) underflows even
# in float64. Families mask with -inf, with the lowest finite number, with -1e30 or with -1e4.
MASKED_BELOW = -5000.0


@dataclass(frozen=True)
class Bias:
    """What is added to query·key before the softmax: which keys a query may see, and a position bias.

    `allowed` is None when every key may be seen; `causal` stands for the lower triangle without storing it.
    Shapes broadcast to [..., head, query, key].
    """

    allowed: Tensor | None = None
    causal: bool = False
    position: Tensor | None = None

    def tensors(self) -> list[Tensor]:
        """What it holds."""
        return [part for part in (self.allowed, self.position) if part is not None]

    def to(self, device: torch.device) -> "Bias":
        """The same on a device."""
        allowed, position = (None if part is None else part.to(device) for part in (self.allowed, self.position))
        return Bias(allowed, self.causal, position)

    def cells(self, queries: Tensor, key_count: int) -> Tensor | None:
        """Which keys the query rows `queries` may see, [..., head|1, query, key]; None if all of them."""
        keys = torch.arange(key_count, device=queries.device)
        triangle = keys[None, :] <= queries[:, None] if self.causal else None
        if self.allowed is None:
            return triangle
        rows = self.allowed if self.allowed.shape[-2] == 1 else self.allowed[..., queries, :]
        return rows if triangle is None else rows & triangle


def read_mask(mask: Tensor | None, position: Tensor | None, causal: bool) -> Bias:
    """Split what a kernel receives into the keys that may be seen and the position bias added to the rest.

    A boolean mask says True where a key may be seen. A mask of numbers is added to the logits; where it
    is not a mask (ALiBi, T5) it is a position bias. A two-dimensional one is over keys, one row a text.
    """
    allowed = None
    if mask is not None:
        if mask.dim() == 2:
            mask = mask.to(torch.bool)[:, None, None, :]
        if mask.dtype == torch.bool:
            allowed = mask
        else:
            allowed = mask > MASKED_BELOW
            # A comparison with NaN is false, so NaN never passes for a number here.
            added = torch.where(allowed, mask, torch.zeros((), dtype=mask.dtype, device=mask.device))
            if bool((added != 0).any()):
                position = added if position is None else position + added
        if bool(allowed.all()):
            allowed = None
    if position is not None and not bool(position.any()):
        position = None
    return Bias(allowed, causal, position)


def same_numbers(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors hold the same numbers; NaN, which padded rows may have, counts as itself."""
    if torch.equal(one, other):
        return True
    # A sum is NaN if a term is, and far sooner made than a copy of each; it may be NaN without, too.
    return bool(one.sum().isnan()) and torch.equal(one.nan_to_num(), other.nan_to_num())


def attention_weights(
    query: Tensor,
    key: Tensor,
    bias: Bias,
    *,
    scale: float,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    queries: Tensor | None = None,
    tanh: Callable[[Tensor], Tensor] = torch.tanh,
) -> Tensor:
    """Attention [..., head, query, key] of the given query rows (all by default), in the dtype of `query`.

    query [..., head, query, channel]; key the same with as many heads; sinks [head]. With sinks the rows
    sum to less than 1: a sink takes weight and gives no value. tanh: what caps logits, for who wants another derivative
    of it.
    """
    if queries is None:
        queries = torch.arange(query.shape[-2], device=query.device)
    else:
        query = query[..., queries, :]
    logits = query @ key.transpose(-1, -2) * scale
    if softcap is not None:
        logits = tanh(logits / softcap) * softcap
    if bias.position is not None:
        position = bias.position
        logits = logits + (position if position.shape[-2] == 1 else position[..., queries, :]).to(logits.dtype)
    cells = bias.cells(queries, key.shape[-2])
    if cells is not None:
        logits = logits.masked_fill(~cells, -torch.inf)
    if sinks is not None:
        sink = sinks.to(logits.dtype).reshape(-1, 1, 1).expand(*logits.shape[:-1], 1)
        return torch.softmax(torch.cat([logits, sink], dim=-1), dim=-1)[..., :-1]
    # A row that may see nothing (a padded query) has no weights, rather than NaN.
    return torch.softmax(logits, dim=-1) if cells is None else torch.nan_to_num(torch.softmax(logits, dim=-1))


def repeat_heads(tensor: Tensor, heads: int) -> Tensor:
    """Give each query head its key or value head: [..., kv_head, n, c] to [..., head, n, c]."""
    groups = heads // tensor.shape[-3]
    return tensor if groups == 1 else tensor.repeat_interleave(groups, dim=-3)
