"""What pattern a head's attention shows, per text, layer and head."""

from collections.abc import Sequence

import torch
from torch import Tensor

from identiscope.capture.cutting import site_of
from identiscope.capture.site import Site
from identiscope.capture.streams import Place
from identiscope.capture.watch.calls import Call
from identiscope.linalg.rank.full_rank import HeadProducts
from identiscope.methods.heads.head_pattern import PATTERNS, map_pattern
from identiscope.runs.compute.batch_tokens import BatchTokens
from identiscope.runs.compute.filling import PER_HEAD, FromCall, RunMethod
from identiscope.runs.format.statistics import Column


def structure_statistics(
    call: Call, place: Place, tokens: BatchTokens, layer: HeadProducts, heads: Sequence[int] | None = None
) -> dict[str, Tensor]:
    """The columns of the table `structure` for one attention call, each [text, head] in float64."""
    rows = []
    for number in range(len(tokens.lengths)):
        site = text_site(call, place, number, tokens, heads)
        patterns = [map_pattern(site.attention(head), allowed=site.allowed_keys(head)).scores for head in site.heads]
        rows.append([[scores[name] for name in PATTERNS] for scores in patterns])
    table = torch.tensor(rows, dtype=torch.float64)
    return {name: table[:, :, index] for index, name in enumerate(PATTERNS)}


def text_site(call: Call, place: Place, number: int, tokens: BatchTokens, heads: Sequence[int] | None) -> Site:
    """One text's part of a call."""
    places = tokens.places(number)
    return site_of(call, number, place=place, positions=(places, places), heads=heads)


METHOD = RunMethod(
    PER_HEAD,
    tuple(Column(name, f"score of the pattern {name}, 0 for chance and 1 for nothing else") for name in PATTERNS),
    FromCall(structure_statistics),
)
