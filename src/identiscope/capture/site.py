"""One attention call on one text, without padding: what every head was given and what it returned."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.capture.watch.kernel import Bias, attention_weights
from identiscope.capture.words import as_html, heads_in_words, precision_in_words, shape_in_words
from identiscope.errors import InputError
from identiscope.linalg.agreement import effective_precision, explained_by, relative_error

# Rows of a map computed at a time, so that a long text never needs a whole n×n map of every head at once.
ROWS = 512
# Cells of maps that are made at once.
_CELLS = 2**18
# Rows on which a site that shows itself is checked.
ROWS_SHOWN = 16


@dataclass(frozen=True, repr=False)
class SiteCheck:
    """What was found at one site, and how far Σ_h A_h·V_h·H_h + b_O is from what the block returned.

    `compared_with` names the module that returned it: the attention module, or its output projection where a residual
    or a norm follows that inside the module.
    """

    index: int
    kind: str
    layer: int
    name: str
    heads: int
    key_value_heads: int
    queries: int
    keys: int
    d_k: int
    d_v: int
    mask: str
    rows_checked: int
    error: float
    precision: str
    verified: bool
    compared_with: str = ""

    @property
    def in_words(self) -> str:
        """`verified to 3e-07 in float32`, or how far off it is."""
        if self.error != self.error:
            return "not verified: there is nothing to compare with"
        if not self.verified:
            return f"NOT verified: off by {self.error:.0e}"
        return f"verified to {self.error:.0e} in {precision_in_words(self.precision)}"

    def __repr__(self) -> str:
        size = f"{self.heads} heads, {shape_in_words((self.queries, self.keys))}, mask {self.mask}"
        against = f", against {self.compared_with}" if self.compared_with else ""
        return (
            f"SiteCheck(layer {self.layer}, {self.kind}, {size}: {self.in_words} on {self.rows_checked} rows{against})"
        )

    def _repr_html_(self) -> str:
        return as_html(repr(self))


@dataclass(frozen=True, eq=False, repr=False)
class Site:
    """One attention call on one text.

    query [head, query, channel]; key [kv_head, key, channel]; value [kv_head, key, d_v]; context
    [head, query, d_v] is A·V as the kernel returned it; projection [head, d_v, model] is each head's H.
    Only the heads in `heads` keep their query, key and value; context and projection are those of all
    heads, in the model's order. `output` [query, model] is what the block returned, through the module `returned_by`,
    after all adapters and hooks. `value_bias` [kv_head,
    d_v] is the bias inside the values: zeros without one, None if it could not be told. `given` holds the
    map where it was given as an array instead of computed from query and key.
    """

    index: int
    kind: str
    layer: int
    name: str
    query_stream: str
    key_stream: str
    heads: tuple[int, ...]
    key_value_heads: tuple[int, ...]
    query: Tensor | None
    key: Tensor | None
    value: Tensor
    bias: Bias
    scale: float
    softcap: float | None
    sinks: Tensor | None
    context: Tensor
    projection: Tensor
    projection_bias: Tensor | None
    output: Tensor | None
    value_bias: Tensor | None = None
    given: Tensor | None = None
    returned_by: str = ""

    def __repr__(self) -> str:
        heads = heads_in_words(self.heads, self.head_count)
        size = f"{shape_in_words((self.queries, self.keys))}, d_v {self.value.shape[-1]}, mask {self.mask}"
        return f"Site(layer {self.layer}, {self.kind}, {heads}, {size}, {self.verify(rows=ROWS_SHOWN).in_words})"

    def _repr_html_(self) -> str:
        rows = [
            ("module", self.name),
            ("returned by", self.returned_by or "–"),
            ("queries", f"{self.queries} ({self.query_stream})"),
            ("keys", f"{self.keys} ({self.key_stream})"),
            ("dtype", precision_in_words(self.context.dtype)),
        ]
        return as_html(repr(self), table=[("", ""), *rows])

    @property
    def head_count(self) -> int:
        """How many heads the model has here, chosen or not."""
        return self.context.shape[0]

    @property
    def queries(self) -> int:
        """How many query positions."""
        return self.context.shape[1]

    @property
    def keys(self) -> int:
        """How many key positions."""
        return self.value.shape[1]

    def place(self, head: int) -> int:
        """Where a head of the model stands among the chosen heads."""
        if head not in self.heads:
            raise InputError(f"head {head} of layer {self.layer} was not captured; captured here: {list(self.heads)}.")
        return self.heads.index(head)

    def value_of(self, head: int) -> Tensor:
        """V of one head, [key, d_v]; heads of one group share it."""
        return self.value[self.key_value_heads[self.place(head)]]

    def attention(self, head: int, rows: Sequence[int] | Tensor | None = None) -> Tensor:
        """The map of one head in float64, [query, key], or only the given query rows of it."""
        return self._weights([self.place(head)], rows)[0]

    def _weights(self, places: Sequence[int], rows: Sequence[int] | Tensor | None = None) -> Tensor:
        """The maps of the heads in these places, [place, query, key]."""
        chosen = self._chosen(rows)
        if self.given is not None:
            return self.given[places][:, chosen].double()
        assert self.query is not None and self.key is not None
        bias = self.bias
        return attention_weights(
            _at(self.query, places).double(),
            _at(self.key, [self.key_value_heads[place] for place in places]).double(),
            Bias(_of_heads(bias.allowed, places), bias.causal, _of_heads(bias.position, places)),
            scale=self.scale,
            softcap=self.softcap,
            sinks=None if self.sinks is None else self.sinks[places],
            queries=chosen,
        )

    def attention_in_rows(self, head: int, size: int = ROWS) -> Iterator[tuple[Tensor, Tensor]]:
        """The map of one head a few rows at a time: (row numbers, weights [row, key])."""
        if size < 1:
            raise InputError(f"size={size} was given; expected at least 1 row at a time.")
        for rows in torch.arange(self.queries).split(size):
            yield rows, self.attention(head, rows)

    def attentions(self) -> Tensor:
        """The maps of all chosen heads in float64, [head, query, key]."""
        return torch.cat([self._weights(places) for places in self._together(self.queries)])

    def allowed_keys(self, head: int, rows: Sequence[int] | Tensor | None = None) -> Tensor:
        """Which keys each query row may see, [query, key]."""
        chosen = self._chosen(rows)
        allowed = _of_heads(self.bias.allowed, [self.place(head)])
        cells = Bias(allowed, self.bias.causal).cells(chosen, self.keys)
        shape = (len(chosen), self.keys)
        if cells is None:
            return torch.ones(shape, dtype=torch.bool, device=chosen.device)
        return cells.expand(1, *shape)[0]

    def _chosen(self, rows: Sequence[int] | Tensor | None) -> Tensor:
        device = self.context.device
        if rows is None:
            return torch.arange(self.queries, device=device)
        if isinstance(rows, Tensor) and (rows.dtype.is_floating_point or rows.dtype.is_complex or rows.is_meta):
            raise InputError(f"rows of type {rows.dtype} were asked for; give a list of query positions.")
        # Looked at where they were given, so that numbers from the CPU need not be waited for.
        chosen = torch.as_tensor(rows, dtype=torch.long)
        if chosen.dim() != 1 or bool(((chosen < 0) | (chosen >= self.queries)).any()):
            raise InputError(
                f"rows {rows} were asked for; give a list of query positions from 0 to {self.queries - 1}."
            )
        return chosen.to(device)

    def row_sums(self) -> Tensor | None:
        """What the rows of every chosen head sum to, [head, query]; None for exactly one (no sink, not given)."""
        if self.sinks is None and self.given is None:
            return None
        return torch.stack(
            [torch.cat([weights.sum(-1) for _, weights in self.attention_in_rows(head)]) for head in self.heads]
        )

    def output_size(self) -> Tensor:
        """The length of each row of Σ_h A_h·V_h·H_h + b_O, of all heads, chosen or not: [query]."""
        output = torch.einsum("hqc,hcm->qm", self.context.double(), self.projection.double())
        if self.projection_bias is not None:
            output = output + self.projection_bias.double()
        size: Tensor = output.norm(dim=-1)
        return size

    @property
    def mask(self) -> str:
        """In words: `none`, `causal`, `sliding causal` or `other`."""
        if self.bias.allowed is None:
            return "causal" if self.bias.causal else "none"
        cells = self.allowed_keys(self.heads[0])
        ends_at_self = cells.shape[0] == cells.shape[1] and not bool(cells.triu(1).any())
        return "sliding causal" if ends_at_self else "other"

    def verify(self, rows: int | None = None) -> SiteCheck:
        """Rebuild Σ_h A_h·V_h·H_h + b_O and compare it with what the block returned.

        rows: check so many query rows, evenly spread, instead of all. Heads that were not chosen enter
        with the context that the kernel returned for them.
        """
        if rows is not None and rows < 1:
            raise InputError(f"rows={rows} was given; expected at least 1 row to check, or None for all.")
        count = self.queries if rows is None else min(rows, self.queries)
        chosen = torch.linspace(0, self.queries - 1, count).round().long().unique()
        # Without an output there is nothing to compare, and so nothing is verified.
        error = self._error(chosen) if self.output is not None else float("nan")
        dtype = self.context.dtype
        precision = effective_precision(error)
        return SiteCheck(
            index=self.index,
            kind=self.kind,
            layer=self.layer,
            name=self.name,
            heads=self.head_count,
            key_value_heads=len(set(self.key_value_heads)),
            queries=self.queries,
            keys=self.keys,
            d_k=self.query.shape[-1] if self.query is not None else 0,
            d_v=self.value.shape[-1],
            mask=self.mask,
            rows_checked=len(chosen),
            error=error,
            precision="none" if precision is None else _coarser(precision, dtype),
            verified=explained_by(error, dtype),
            compared_with=self.returned_by,
        )

    def kernel_error(self) -> float:
        """How far A·V of the last query is from what the kernel returned there: a look that costs next to nothing."""
        places, last = list(range(len(self.heads))), [self.queries - 1]
        value = _at(self.value, [self.key_value_heads[place] for place in places]).double()
        seen = _at(self.context, self.heads)[:, last].double()
        return relative_error(self._weights(places, last) @ value, seen)

    def _error(self, rows: Tensor) -> float:
        assert self.output is not None
        worst, size = 0.0, float(self.output.double().abs().max())
        for part in rows.split(ROWS):
            rebuilt = torch.zeros(len(part), self.output.shape[-1], dtype=torch.float64, device=self.output.device)
            if self.projection_bias is not None:
                rebuilt += self.projection_bias.double()
            for heads, context in self._contexts(part):
                # A head's channels beside those of the others, and below one another in the projection.
                rebuilt += context.transpose(0, 1).flatten(1) @ _at(self.projection, heads).double().flatten(0, 1)
            expected = self.output[part].double()
            error = relative_error(rebuilt, expected)
            # Relative to the whole output, so that a small row is not held to more than it was computed to.
            scale = float(expected.abs().max()) / size if size > 0 else 1.0
            worst = max(worst, error * scale) if error == error else float("nan")
        return worst

    def _contexts(self, rows: Tensor) -> Iterator[tuple[list[int], Tensor]]:
        """A·V of some query rows, in float64, several heads [head, row, channel] at a time, with which they are; of
        heads that were not chosen, what the kernel returned."""
        for places in self._together(len(rows)):
            value = _at(self.value, [self.key_value_heads[place] for place in places]).double()
            yield [self.heads[place] for place in places], self._weights(places, rows) @ value
        others = [head for head in range(self.head_count) if head not in self.heads]
        if others:
            yield others, self.context[others][:, rows].double()

    def _together(self, rows: int) -> Iterator[list[int]]:
        """Places of the chosen heads, as many at once as so many rows of each leave memory for."""
        # Several at once where texts are short; on the way there are three maps of each, so few where they are long.
        at_once = max(1, _CELLS // max(1, rows * self.keys))
        for begin in range(0, len(self.heads), at_once):
            yield list(range(begin, min(begin + at_once, len(self.heads))))


def _at(tensor: Tensor, places: Sequence[int]) -> Tensor:
    """What a tensor has in these places; a view of it where they follow each other."""
    first, last = places[0], places[-1]
    if list(places) == list(range(first, last + 1)):
        return tensor[first : last + 1]
    return tensor[list(places)]


def _of_heads(tensor: Tensor | None, places: Sequence[int]) -> Tensor | None:
    """What of a [head or 1, ...] tensor is for some heads."""
    return tensor if tensor is None or tensor.shape[0] == 1 else tensor[places]


def _coarser(precision: torch.dtype, dtype: torch.dtype) -> str:
    finest = max(precision, dtype, key=lambda kind: torch.finfo(kind).eps)
    return str(finest).removeprefix("torch.")
