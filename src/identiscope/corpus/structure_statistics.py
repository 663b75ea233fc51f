"""What pattern a head's attention shows, per text, layer and head."""

from collections.abc import Sequence

import torch
from torch import Tensor

from identiscope.capture.calls import Call
from identiscope.capture.site import Site, site_of
from identiscope.capture.streams import Place
from identiscope.corpus.batch_tokens import BatchTokens
from identiscope.linalg.full_rank import HeadProducts
from identiscope.methods.head_pattern import PATTERNS, head_pattern


def structure_statistics(
    call: Call, place: Place, tokens: BatchTokens, layer: HeadProducts, heads: Sequence[int] | None = None
) -> dict[str, Tensor]:
    """The columns of the table `structure` for one attention call, each [text, head] in float64."""
    rows = []
    for number in range(len(tokens.lengths)):
        site = text_site(call, place, number, tokens, heads)
        found = [head_pattern(site.attention(head), allowed=site.allowed_keys(head)).scores for head in site.heads]
        rows.append([[scores[name] for name in PATTERNS] for scores in found])
    table = torch.tensor(rows, dtype=torch.float64)
    return {name: table[:, :, index] for index, name in enumerate(PATTERNS)}


def text_site(call: Call, place: Place, number: int, tokens: BatchTokens, heads: Sequence[int] | None) -> Site:
    """One text's part of a call."""
    places = tokens.places(number)
    return site_of(call, number, place=place, positions=(places, places), heads=heads)
