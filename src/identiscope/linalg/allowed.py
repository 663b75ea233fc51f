"""Which keys each query may look at, without an n×n matrix where a range per row says it."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from identiscope.errors import InputError


@dataclass(frozen=True)
class AllowedKeys:
    """The allowed keys of each query: `start ≤ key < stop`, or the rows of a boolean `matrix`.

    >>> causal(3, 3).block(slice(0, 2)).int().tolist()
    [[1, 0, 0], [1, 1, 0]]
    """

    queries: int
    keys: int
    start: Tensor
    stop: Tensor
    matrix: Tensor | None = None

    @cached_property
    def everything(self) -> bool:
        """Whether every query may look at every key."""
        return self.matrix is None and bool((self.start == 0).all() and (self.stop == self.keys).all())

    @cached_property
    def consecutive_prefixes(self) -> bool:
        """Whether each query sees a prefix one key longer than the query before it, as a causal model's do."""
        if self.matrix is not None or bool((self.start != 0).any()):
            return False
        return bool((self.stop.diff() == 1).all())

    @cached_property
    def whole(self) -> Tensor:
        """Boolean [query, key] of all queries, made once."""
        return self.block(slice(0, self.queries))

    @cached_property
    def seen_by(self) -> Tensor:
        """How many queries may look at each key."""
        return self.whole.sum(0)

    def to(self, device: torch.device) -> "AllowedKeys":
        """The same on a device."""
        if self.start.device == device:
            return self
        matrix = None if self.matrix is None else self.matrix.to(device)
        return AllowedKeys(self.queries, self.keys, self.start.to(device), self.stop.to(device), matrix)

    def block(self, rows: slice | Tensor) -> Tensor:
        """Boolean [query, key] of some consecutive queries, or of those with these numbers."""
        if self.matrix is not None:
            return self.matrix[rows]
        position = torch.arange(self.keys, device=self.start.device)
        return (position >= self.start[rows, None]) & (position < self.stop[rows, None])

    def row(self, query: int) -> Tensor:
        """Boolean [key] of one query."""
        if not 0 <= query < self.queries:
            raise InputError(f"query {query} was asked for, expected one of 0 to {self.queries - 1}")
        return self.block(slice(query, query + 1))[0]

    def count(self) -> Tensor:
        """Number of allowed keys of each query."""
        return self.stop - self.start if self.matrix is None else self.matrix.sum(1)

    def distinct(self) -> tuple[Tensor, Tensor]:
        """One query for each distinct allowed set, and for each query the index of its set."""
        described = self.matrix if self.matrix is not None else torch.stack([self.start, self.stop], 1)
        _, index = torch.unique(described, dim=0, return_inverse=True)
        first = index.new_full((int(index.max()) + 1,), self.queries)
        first.scatter_reduce_(0, index, torch.arange(self.queries, device=index.device), "amin")
        return first, index


Allowed = AllowedKeys | Tensor | Literal["causal"] | None


def causal(queries: int, keys: int) -> AllowedKeys:
    """Each query sees the keys up to its own position; with more keys than queries, the queries come last."""
    if keys < queries:
        raise InputError(
            f"causal attention of {queries} queries over {keys} keys was given, expected at least as many "
            "keys as queries; pass a boolean [query, key] matrix for any other shape"
        )
    return AllowedKeys(
        queries, keys, torch.zeros(queries, dtype=torch.long), torch.arange(1, queries + 1) + keys - queries
    )


def sliding(queries: int, keys: int, window: int) -> AllowedKeys:
    """Causal, and no further back than `window` keys, the query's own position included."""
    if window < 1:
        raise InputError(f"a window of {window} keys was given, expected at least 1")
    prefix = causal(queries, keys)
    return AllowedKeys(queries, keys, (prefix.stop - window).clamp(min=0), prefix.stop)


def describe_allowed(allowed: Allowed, queries: int, keys: int, device: torch.device | None = None) -> AllowedKeys:
    """Turn None (all keys), "causal", a boolean [query, key] matrix or an AllowedKeys into an AllowedKeys.

    device: where the tensors are that it is for; by default it stays where it is.
    """
    if isinstance(allowed, Tensor):
        described = _from_matrix(allowed if device is None else allowed.to(device))
    elif isinstance(allowed, AllowedKeys):
        described = allowed
    elif allowed is None:
        zeros = torch.zeros(queries, dtype=torch.long)
        described = AllowedKeys(queries, keys, zeros, zeros + keys)
    elif allowed == "causal":
        described = causal(queries, keys)
    else:
        raise InputError(
            f"allowed={allowed!r} was given, expected None, 'causal', a boolean [query, key] matrix or an AllowedKeys"
        )
    if (described.queries, described.keys) != (queries, keys):
        raise InputError(
            f"allowed keys of shape [query={described.queries}, key={described.keys}] were given, expected "
            f"[query={queries}, key={keys}]; drop padding from both alike"
        )
    empty = (described.count() < 1).nonzero()
    if len(empty):
        raise InputError(f"query {int(empty[0])} has no allowed key; drop queries that attend to nothing before this")
    return described if device is None else described.to(device)


def _from_matrix(matrix: Tensor) -> AllowedKeys:
    if matrix.dtype != torch.bool or matrix.ndim != 2:
        raise InputError(
            f"an allowed-keys tensor of dtype {matrix.dtype} and shape {list(matrix.shape)} was given, "
            "expected a boolean [query, key] matrix, true where the query may look"
        )
    queries, keys = matrix.shape
    count = matrix.sum(1)
    start = matrix.int().argmax(1)
    stop = torch.where(count > 0, keys - matrix.flip(1).int().argmax(1), start)
    contiguous = bool((stop - start == count).all())
    return AllowedKeys(queries, keys, start, stop, None if contiguous else matrix)


def check_attention(weights: Tensor, inside: Tensor | None) -> None:
    """Raise an error unless these rows [..., key] can come from a softmax over the keys `inside` (None: all)."""
    bad = (weights < 0) | ~torch.isfinite(weights)
    if inside is not None:
        bad |= ~inside & (weights != 0)
    if bool(bad.any()):
        raise InputError(
            "the attention has negative weights, weights that are not finite, or weight on keys that are not allowed; "
            "pass raw attention after the softmax, and the mask that belongs to it"
        )
