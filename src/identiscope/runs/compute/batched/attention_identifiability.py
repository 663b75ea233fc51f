"""Attention of one layer in a few numbers per text and head, for a batch of texts."""

from collections.abc import Sequence

import torch
from torch import Tensor

from identiscope.capture.cutting import site_of
from identiscope.capture.site import Site
from identiscope.capture.streams import Place
from identiscope.capture.watch.calls import Call
from identiscope.capture.watch.kernel import attention_weights
from identiscope.linalg.allowed import describe_allowed
from identiscope.linalg.copies import MERGED_ROWS
from identiscope.linalg.rank.full_rank import HeadProducts
from identiscope.linalg.rank.projection_factor import ProjectionFactor
from identiscope.methods.fields import layer_fields
from identiscope.methods.heads.row_rank import row_rank
from identiscope.methods.maps.effective import effective
from identiscope.methods.maps.effective_simplex_span import effective_simplex_span
from identiscope.methods.maps.factored import row_slices
from identiscope.runs.compute.attention_from_gram import statistics_from_gram
from identiscope.runs.compute.attention_from_prefixes import sees_prefixes, sums_from_prefixes
from identiscope.runs.compute.batch_tokens import BatchTokens
from identiscope.runs.compute.filling import PER_HEAD, FromCall, RunMethod
from identiscope.runs.compute.text_sums import TextSums, no_sums
from identiscope.runs.format.statistics import Column


def attention_statistics(
    call: Call, place: Place, tokens: BatchTokens, layer: HeadProducts, heads: Sequence[int] | None = None
) -> dict[str, Tensor]:
    """The columns of the table `attention` for one attention call, each [text, head] in float64.

    layer: of the call's output projection, which is the same for all batches. heads: only these. Texts of which each
    token sees all, or all before it, are taken in sums; any other mask cell by cell.
    """
    chosen = list(range(call.query.shape[1])) if heads is None else list(heads)
    columns = statistics_from_gram(call, tokens, layer)
    if columns is not None:
        return {name: values[:, chosen] for name, values in columns.items()}
    rows = []
    for number in range(len(tokens.lengths)):
        places = tokens.places(number)
        types = tokens.types[number][:, places].to(call.query.device)
        copies = tokens.copies[number, places]
        if sees_prefixes(call, number, places):
            columns = sums_from_prefixes(call, number, places, types, layer, copies).columns(types)
            rows.append({name: values[chosen] for name, values in columns.items()})
        else:
            site = site_of(call, number, place=place, positions=(places, places), heads=chosen)
            rows.append(_cell_by_cell(site, types, layer, chosen, copies).columns(types))
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def _cell_by_cell(site: Site, types: Tensor, layer: HeadProducts, heads: list[int], copies: Tensor) -> TextSums:
    """One text with any mask and any rank: raw and effective attention are formed, some rows at a time."""
    fields = layer_fields(site)
    device = fields.value.device
    allowed = describe_allowed(fields.allowed, site.queries, site.keys, device)
    own = ProjectionFactor(layer.factor.triangle[heads], layer.factor.norm[heads], layer.factor.model)
    maps = [
        project(fields.value, own, fields.context, allowed=allowed, precision=fields.precision, row_sum=fields.row_sum)
        for project in (effective, effective_simplex_span)
    ]
    ranks = row_rank(fields.value, own, queries=site.queries, allowed=allowed, precision=fields.precision)
    sums = no_sums(len(heads), allowed.count(), len(types), copies)
    sums.rank[:], sums.simplex_rank[:] = ranks.rank, ranks.simplex_rank
    assert site.query is not None and site.key is not None
    query, key = site.query.double(), site.key[list(site.key_value_heads)].double()
    for rows in row_slices((len(heads), site.queries, site.keys)):
        weights = attention_weights(
            query, key, site.bias, scale=site.scale, softcap=site.softcap, sinks=site.sinks,
            queries=torch.arange(site.queries, device=device)[rows],
        )  # fmt: skip
        sums.add_cells(rows, weights, maps[0].block(rows), maps[1].block(rows), types, allowed.block(rows))
        sums.entropy[:, rows] = torch.special.entr(weights).sum(-1)
    return sums


_TYPE_NAMES = {
    "special": "special tokens", "cls": "the tokenizer's first token ([CLS])", "sep": "its separators ([SEP])",
    "punctuation": "punctuation", "other": "other tokens", "self": "the token itself",
}  # fmt: skip
_MAP_NAMES = {
    "raw": "raw", "simplex": "of effective_simplex_span: what no rewriting of the model changes",
    "effective": "of effective attention as Brunner et al. have it",
}  # fmt: skip
METHOD = RunMethod(
    PER_HEAD,
    (
        Column("rank", "rank of T; of the last row where rows see different keys", 0, 512, whole=True),
        Column("null_dimension", "dimension of the left null space of T", 0, 512, whole=True),
        Column("simplex_null_dimension", "dimension of that of [T,1]", 0, 512, whole=True),
        Column("free_rows", "share of rows whose weights are not determined by the output"),
        Column("simplex_null_share", "‖A∥‖² / ‖A‖² with A∥ in LN([T,1]): what no output can show"),
        Column("simplex_correlation", "Pearson correlation of raw attention and what is left of it", -1, 1),
        Column(
            "merged_null_share", f"the same with equal tokens added up; of {MERGED_ROWS} rows, where there are more"
        ),
        Column("null_share", "‖A∥‖² / ‖A‖² with A∥ in LN(T), as Brunner et al. have it"),
        Column("correlation", "Pearson correlation of raw and effective attention, as they have it", -1, 1),
        Column("entropy", "mean entropy of a row of raw attention, in bits", 0, 10),
        *(
            Column(f"{kind}_to_{name}", f"mean weight of a token on {_TYPE_NAMES[name]}, {_MAP_NAMES[kind]}", *span)
            for kind, span in (("raw", (0, 1)), ("simplex", (-1, 2)), ("effective", (-1, 2)))
            for name in (*BatchTokens.TYPES, "self")
        ),
    ),
    FromCall(attention_statistics),
)
