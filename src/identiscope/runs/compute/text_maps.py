"""The maps of each text of a batch, in float32, for the methods that read heads from them: made once for all of these.

What is real in a map (effective_simplex_span) is A⊥ = [O·G⁻¹, u]·[V, d]ᵀ with G = VᵀV, where a bound proves that [T,1]
has full rank; elsewhere, and where tokens do not see all others, it is the method itself that says it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from identiscope.capture.cutting import site_of
from identiscope.capture.site import Site
from identiscope.capture.streams import Place
from identiscope.capture.watch.calls import Call
from identiscope.capture.watch.kernel import Bias, attention_weights, repeat_heads
from identiscope.linalg.allowed import AllowedKeys, describe_allowed
from identiscope.linalg.rank.full_rank import FullRank, HeadProducts, full_column_rank, independent_rows
from identiscope.linalg.rank.projection_factor import ProjectionFactor
from identiscope.methods.fields import layer_fields
from identiscope.methods.heads.attended import AttendedCells, attended_cells
from identiscope.methods.maps.effective_simplex_span import simplex_map
from identiscope.runs.compute.batch_tokens import BatchTokens
from identiscope.runs.compute.filling import PER_HEAD, FromCall, RunMethod
from identiscope.runs.format.statistics import Column

#: Cells of maps that are kept for the next method that asks (64 MB).
_MOST_KEPT = 2**24


@dataclass(frozen=True, eq=False)
class TextMap:
    """One text in one layer: its tokens, which are special [key], what each query may see, and raw attention
    [head, query, key]. full_rank: what bounds prove of its ranks."""

    site: Site
    layer: HeadProducts
    tokens: tuple[str, ...]
    special: Tensor
    allowed: AllowedKeys
    weights: Tensor
    full_rank: Callable[[], FullRank]

    @cached_property
    def both(self) -> Tensor:
        """Raw attention, and behind it effective_simplex_span: [2·head, query, key]."""
        return torch.cat([self.weights, self._simplex()])

    def _simplex(self) -> Tensor:
        quick = self._from_gram() if self.allowed.everything and self.site.sinks is None else None
        return self._dense() if quick is None else quick

    def _from_gram(self) -> Tensor | None:
        """From channels × channels matrices, where a bound proves the rank of every head; else None."""
        site, count = self.site, len(self.site.heads)
        if count != site.head_count:
            return None
        value = site.value.double()[None]
        if site.keys < value.shape[-1]:
            lengths = torch.tensor([site.keys], device=value.device)
            proven = independent_rows(value, lengths, self.layer, site.value.dtype)
            return self.weights if bool(proven.all()) else None
        found, added = self.full_rank(), value.sum(2)
        if not bool(found.proven.all()):
            return None
        inverse, value, added = (repeat_heads(one, count) for one in (found.inverse, value, added[..., None]))
        context = site.context.double()[None]
        along = inverse @ added
        direction, missing = (1 - (points @ along)[..., 0] for points in (value, context))
        more = found.simplex_rank > value.shape[-1]
        length = torch.where(more, direction.square().sum(-1), 1.0)
        share = torch.where(more[..., None], missing / length[..., None], 0.0)
        left = torch.cat([context @ inverse, share[..., None]], -1)[0].float()
        return left @ torch.cat([value, direction[..., None]], -1)[0].float().mT

    def _dense(self) -> Tensor:
        """The method itself, on raw attention in float64."""
        fields, heads = layer_fields(self.site), list(self.site.heads)
        factor = self.layer.factor
        own = ProjectionFactor(factor.triangle[heads], factor.norm[heads], factor.model)
        given = fields.value, own, self.allowed, fields.precision, fields.row_sum
        return simplex_map(fields.attention, *given).float()


class _Kept:
    """The maps and ranks of the last call, and the cells of the last batch, for the next method that asks."""

    def __init__(self) -> None:
        self.call: Call | None = None
        self.maps: dict[int, TextMap] = {}
        self.ranks: FullRank | None = None
        self.tokens: BatchTokens | None = None
        self.cells: dict[int, AttendedCells] = {}

    def of(self, call: Call, number: int, make: Callable[[], TextMap]) -> TextMap:
        """The map of a text, made if it is not there."""
        if self.call is not call:
            self.call, self.maps, self.ranks = call, {}, None
        if number not in self.maps:
            one = make()
            if sum(other.weights.numel() for other in self.maps.values()) + one.weights.numel() > _MOST_KEPT:
                return one
            self.maps[number] = one
        return self.maps[number]

    def full_rank(self, call: Call, tokens: BatchTokens, layer: HeadProducts) -> FullRank:
        """What bounds prove of the ranks of all texts of the last call, at once."""
        if self.ranks is None or self.call is not call:
            places = tokens.real.to(call.value.device)[:, None, :, None]
            value = torch.where(places, call.value, 0).double()
            lengths = torch.tensor(tokens.lengths, device=value.device)
            found = full_column_rank(value.mT @ value, value.sum(2), lengths, layer, call.value.dtype)
            if self.call is not call:
                return found
            self.ranks = found
        return self.ranks

    def cells_of(self, tokens: BatchTokens, number: int, one: TextMap) -> AttendedCells:
        """Which cells count for each statistic of what heads attend to: the same in all layers."""
        if self.tokens is not tokens:
            self.tokens, self.cells = tokens, {}
        if number not in self.cells:
            self.cells[number] = attended_cells(one.tokens, one.special, one.allowed, same=True)
        return self.cells[number]


_KEPT = _Kept()


def text_maps(
    call: Call, place: Place, tokens: BatchTokens, layer: HeadProducts, heads: Sequence[int] | None
) -> Iterator[tuple[int, TextMap]]:
    """Each text of a call, with its number in the batch."""
    everyone = heads is None or list(heads) == list(range(call.query.shape[1]))
    for number in range(len(tokens.lengths)):

        def make(number: int = number) -> TextMap:
            # Only the chosen heads are copied.
            one = _unpadded(call, tokens.places(number))
            site = site_of(
                one, number, place=place, positions=(None, None), heads=None if everyone else heads, passing=True
            )
            assert site.query is not None and site.key is not None
            fields = layer_fields(site)
            dtype = torch.promote_types(site.query.dtype, torch.float32)
            key = site.key.to(dtype)[list(site.key_value_heads)]
            weights = attention_weights(
                site.query.to(dtype), key, site.bias, scale=site.scale, softcap=site.softcap, sinks=site.sinks
            )
            special = tokens.types[number, 0, tokens.places(number)].to(key.device)
            allowed = describe_allowed(fields.allowed, site.queries, site.keys, key.device)

            def full_rank() -> FullRank:
                return _KEPT.full_rank(call, tokens, layer).of_text(number)

            return TextMap(site, layer, tokens.words[number], special, allowed, weights, full_rank)

        yield number, _KEPT.of(call, number, make)


def _unpadded(call: Call, places: Tensor) -> Call:
    """A call within the places of one text, without a copy: padding is on one side."""
    span = slice(int(places[0]), int(places[-1]) + 1)
    assert call.output is not None

    def cells(part: Tensor | None) -> Tensor | None:
        return None if part is None else (part if part.shape[-2] == 1 else part[..., span, :])[..., span]

    def rows(part: Tensor) -> Tensor:
        return part[:, :, span]

    return replace(
        call,
        query=rows(call.query),
        key=rows(call.key),
        value=rows(call.value),
        context=rows(call.context),
        output=call.output[:, span],
        bias=Bias(cells(call.bias.allowed), call.bias.causal, cells(call.bias.position)),
    )


def cells_of(tokens: BatchTokens, number: int, one: TextMap) -> AttendedCells:
    """Which cells of a text count for each statistic, made once for all layers."""
    # A window of keys differs between layers; such cells are not shared.
    if not (one.allowed.everything or one.allowed.consecutive_prefixes):
        return attended_cells(one.tokens, one.special, one.allowed, same=True)
    return _KEPT.cells_of(tokens, number, one)


def with_simplex(*columns: Column) -> list[Column]:
    """Columns of raw maps, and then the same of the maps that no rewriting changes."""
    real = [
        replace(one, name=f"simplex_{one.name}", meaning=f"{one.meaning}; of effective_simplex_span") for one in columns
    ]
    return [*columns, *real]


def from_maps(fill: Callable[[TextMap, BatchTokens, int], Mapping[str, Tensor]], columns: Sequence[Column]) -> Any:
    """A method of a Run whose columns are filled from the map of each text: name → [head]."""

    def statistics(
        call: Call, place: Place, tokens: BatchTokens, layer: HeadProducts, heads: Sequence[int] | None = None
    ) -> dict[str, Tensor]:
        rows = [fill(one, tokens, number) for number, one in text_maps(call, place, tokens, layer, heads)]
        return {column.name: torch.stack([row[column.name].double() for row in rows]) for column in columns}

    return RunMethod(PER_HEAD, tuple(columns), FromCall(statistics))
