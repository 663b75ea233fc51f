"""Attention of one layer in a few numbers per text and head, for a batch of texts."""

from collections.abc import Sequence
from math import log

import torch
from torch import Tensor

from identiscope.analysis.site_tensors import site_tensors
from identiscope.capture.calls import Call
from identiscope.capture.kernel import attention_weights
from identiscope.capture.site import site_of
from identiscope.capture.streams import Place
from identiscope.corpus.attention_from_gram import statistics_from_gram, tokens_columns
from identiscope.corpus.batch_tokens import BatchTokens
from identiscope.linalg.allowed import describe_allowed
from identiscope.linalg.full_rank import HeadProducts, independent_rows
from identiscope.linalg.moments import no_moments
from identiscope.linalg.projection_factor import ProjectionFactor
from identiscope.methods.effective import effective
from identiscope.methods.factored import row_slices
from identiscope.methods.row_rank import row_rank


def attention_statistics(
    call: Call, place: Place, tokens: BatchTokens, layer: HeadProducts, heads: Sequence[int] | None = None
) -> dict[str, Tensor]:
    """The columns of the table `attention` for one attention call, each [text, head] in float64.

    layer: of the call's output projection, which is the same for all batches. heads: only these. All masks but padding
    are taken cell by cell, one text at a time.
    """
    chosen = list(range(call.query.shape[1])) if heads is None else list(heads)
    columns = statistics_from_gram(call, tokens, layer)
    if columns is not None:
        return {name: values[:, chosen] for name, values in columns.items()}
    everyone = range(len(tokens.lengths))
    rows = [_cell_by_cell(call, place, number, tokens, layer, chosen) for number in everyone]
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def _cell_by_cell(
    call: Call, place: Place, number: int, tokens: BatchTokens, layer: HeadProducts, heads: list[int]
) -> dict[str, Tensor]:
    """One text with any mask and any rank: raw and effective attention are formed, some rows at a time."""
    places = tokens.places(number)
    types = tokens.types[number][:, places]
    site = site_of(call, number, place=place, positions=(places, places), heads=heads)
    held = site_tensors(site)
    shape = (len(heads), site.queries, site.keys)
    allowed = describe_allowed(held.allowed, site.queries, site.keys)
    found = None
    own = ProjectionFactor(layer.factor.triangle[heads], layer.factor.norm[heads], layer.factor.model)
    products = HeadProducts(own, layer.product[heads], layer.inverse[heads], layer.invertible[heads])
    if held.row_sum is None and _independent(held.value, products, held.precision):
        # Then so are the rows that any query sees: nothing is null, and the effective attention is the raw one.
        rank = simplex_rank = allowed.count().expand(len(heads), -1)
    else:
        found = effective(
            held.value, own, held.context, allowed=allowed, precision=held.precision, row_sum=held.row_sum
        )
        ranks = row_rank(held.value, own, queries=site.queries, allowed=allowed, precision=held.precision)
        rank, simplex_rank = ranks.rank, ranks.simplex_rank
    moments = no_moments(shape, types)
    assert site.query is not None and site.key is not None
    query, key = site.query.double(), site.key[list(site.key_value_heads)].double()
    diagonal = torch.zeros(2, len(heads), dtype=torch.float64)
    entropy = torch.zeros(len(heads), dtype=torch.float64)
    for rows in row_slices(shape):
        weights = attention_weights(
            query, key, site.bias, scale=site.scale, softcap=site.softcap, sinks=site.sinks,
            queries=torch.arange(site.queries)[rows],
        )  # fmt: skip
        cells = weights if found is None else found.block(rows)
        moments.add_block(rows, weights, cells, allowed.block(rows))
        entropy += torch.special.entr(weights).sum((1, 2)) / log(2)
        for index, block in enumerate((weights, cells)):
            diagonal[index] += block[:, :, rows].diagonal(dim1=1, dim2=2).sum(-1)
    by_type, own_weight = moments.key_type[1:3] / site.queries, diagonal / site.queries
    count = allowed.count()
    columns = {
        # Of the last row: where rows see different keys, it is the one that sees most.
        "rank": rank[:, -1].double(),
        "null_dimension": (count - rank)[:, -1].double(),
        "simplex_null_dimension": (count - simplex_rank)[:, -1].double(),
        "free_rows": (count > simplex_rank).double().mean(-1),
        "null_share": moments.unexplained("head"),
        "correlation": moments.correlation("head"),
        "entropy": entropy / site.queries,
    }
    for index, kind in enumerate(("raw", "effective")):
        shares = tokens_columns(kind, by_type[index][None], own_weight[index][None], types[None])
        columns |= {name: values[0] for name, values in shares.items()}
    return columns


def _independent(value: Tensor, heads: HeadProducts, precision: torch.dtype) -> bool:
    """Whether the rows of T of a text [kv_head, key, channel] are proven independent in every head."""
    if value.shape[1] >= value.shape[2]:
        return False
    lengths = torch.tensor([value.shape[1]])
    return bool(independent_rows(value[None].double(), lengths, heads, precision).all())
