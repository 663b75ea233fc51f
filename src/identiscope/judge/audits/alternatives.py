"""Traces with other attention in them that gives the same output: what the null audit asks methods of."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from identiscope.judge.certificate import certify_map
from identiscope.methods.fields import LayerFields, layer_fields
from identiscope.methods.freedom.attention_alternative import attention_alternative
from identiscope.methods.maps.canonical import canonical
from identiscope.progress import Progress

if TYPE_CHECKING:
    from identiscope.capture import Trace

#: What attention may be replaced by: the farthest found, one that avoids a token, and the shortest.
Alternative = Literal["farthest", "avoid", "canonical"]
ALTERNATIVES: tuple[Alternative, ...] = ("farthest", "avoid", "canonical")


@dataclass(frozen=True, eq=False)
class OtherAttention:
    """A trace with other maps in all layers of a stream, and how far they are from its own: the mean and the largest
    total variation of rows, and the mean with equal tokens added up. kept: how many heads have their own map still,
    since none was found that keeps their output to the precision of the pass.
    """

    trace: "Trace"
    distance: float
    largest: float
    merged_distance: float
    kept: int


def other_attention(
    trace: "Trace",
    stream: str,
    how: Alternative,
    *,
    token: int | None = None,
    starts: int = 1,
    seed: int = 0,
    progress: Progress | None = None,
) -> OtherAttention:
    """Other attention of a stream to itself, with the output of every head kept.

    token: the position that is to be avoided, with its copies. starts and seed: of the search for the farthest.
    """
    sites = [site for site in trace.sites if site.query_stream == site.key_stream == stream]
    maps: dict[int, Tensor] = {}
    distances, merged, kept = [], [], 0
    for done, site in enumerate(sites):
        fields = layer_fields(site, trace.streams)
        own = fields.attention
        made = _maps(fields, how, token, starts, seed)
        for place, head in enumerate(site.heads):
            # Worked out anew from what the site holds, whatever the solver says of itself.
            if certify_map(site, head, made[place]).broken():
                made[place] = own[place]
                kept += 1
        maps[site.index] = made
        distances.append(0.5 * (made - own).abs().sum(-1))
        groups = fields.copies.to(own.device)
        together = torch.zeros(*own.shape[:2], int(groups.max()) + 1, dtype=own.dtype, device=own.device)
        merged.append(0.5 * together.index_add_(2, groups, made - own).abs().sum(-1))
        if progress is not None:
            progress(done + 1, len(sites))
    every, of_groups = (torch.stack([one.cpu() for one in each]) for each in (distances, merged))
    return OtherAttention(
        trace.with_attention(maps), float(every.mean()), float(every.max()), float(of_groups.mean()), kept
    )


def _maps(fields: LayerFields, how: Alternative, token: int | None, starts: int, seed: int) -> Tensor:
    """Maps [head, query, key] of a layer."""
    if how == "canonical":
        given = (fields.queries, fields.allowed, fields.precision)
        return canonical(fields.value, fields.projection, fields.raw, *given).dense()
    heads = [fields.of_head(head) for head in fields.heads]
    return torch.stack([_of_head(head, how, token, starts, seed) for head in heads]).to(fields.value.device)


def _of_head(
    fields: LayerFields, how: Literal["farthest", "avoid"], token: int | None, starts: int, seed: int
) -> Tensor:
    """The map of one head, [query, key]."""
    found = attention_alternative(
        fields.value, fields.projection, fields.raw, fields.queries, fields.allowed, fields.precision, None,
        fields.copies, how=how, token=token if how == "avoid" else None, starts=starts, seed=seed,
        merged=how == "avoid",
    )  # fmt: skip
    return found.alternative
