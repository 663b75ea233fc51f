"""Sums of a causal text: each token sees those before it, and no cell of its A⊥ is formed but for the first rows.

The weights are computed in the precision of the pass, but at least in float32, and the effective attention from the
context of the pass. Rows of short prefixes are ill-conditioned, and would show the rounding of that context enlarged:
they and their context are computed in float64.
"""

import torch
from torch import Tensor

from identiscope.capture.watch.calls import Call
from identiscope.linalg.rank.coordinates import coordinates
from identiscope.linalg.rank.full_rank import HeadProducts
from identiscope.linalg.rank.prefix.projection import PrefixProjections, RowSums
from identiscope.linalg.rank.prefix.ranks import prefix_ranks
from identiscope.linalg.simplex.raw_rows import RawRows
from identiscope.runs.compute.text_sums import TextSums, no_sums

#: Rows of up to so many times as many keys as channels are computed in float64. Behind that even a prefix that was
#: singular when it was square has singular values of one size.
_SHORT = 1.5


def sees_prefixes(call: Call, text: int, places: Tensor) -> bool:
    """Whether each token of a text, at these places, sees itself, all tokens of it before, and no other.

    Not on other devices than the CPU, for which the loops over rows are compiled.
    """
    if call.query.shape[2] != call.key.shape[2] or call.query.device.type != "cpu":
        return False
    if call.bias.allowed is None:
        # Said in a word, with no cell to look at: all keys before are those of the text if it begins the sequence.
        first, last = int(places[0]), int(places[-1])
        return (call.bias.causal or last == 0) and first == 0 and last == len(places) - 1
    cells = call.bias.cells(places, call.key.shape[2])
    assert cells is not None
    own = cells if cells.ndim == 2 else cells[text if len(cells) > 1 else 0]
    count = len(places)
    triangle = torch.ones(count, count, dtype=torch.bool).tril()
    alone = own.sum((-2, -1)) == count * (count + 1) // 2
    return bool(alone.all()) and bool((own[..., places] == triangle).all())


def sums_from_prefixes(
    call: Call, text: int, places: Tensor, types: Tensor, layer: HeadProducts, copies: Tensor
) -> TextSums:
    """Of one text, all heads; types [type, token], copies [token]: groups of equal ones."""
    span = slice(int(places[0]), int(places[-1]) + 1)
    value, context = call.value[text, :, span], call.context[text, :, span]
    count, channels = value.shape[1:]
    plain = coordinates(value, layer.factor)
    ones = coordinates(value, layer.factor, with_ones=True)
    ranks, with_ones = prefix_ranks(plain, ones, layer, count)
    projections = PrefixProjections(ranks, with_ones, torch.cat([torch.ones(1, count), types.double()]))
    of_text = no_sums(len(context), ranks.lengths, len(types), copies)
    short = min(count, max(projections.open_rows, int(_SHORT * channels)))
    dtype = torch.promote_types(call.query.dtype, torch.float32)
    received = torch.zeros(len(context), count, dtype=torch.float64)
    for begin, end, precision in ((0, short, torch.float64), (short, count, dtype)):
        raw = _raw_rows(call, text, span, ranks.lengths, precision)
        for rows in raw.blocks(begin, end):
            weights, sums = raw.rows(rows, received)
            # A context in half precision is too coarse: that of the weights, then.
            exact = precision == torch.float64 or context.dtype != dtype
            target = plain.weighted(weights.double()) if exact else context[:, rows].double()
            merged = of_text.merged.within(rows)
            effective, extended = projections.rows(
                target, sums.total, weights if end == short else None, left=(False, merged)
            )
            of_text.add_sums(rows, sums, effective, extended)

            def kept(places: Tensor, weights: Tensor = weights, extended: RowSums = extended) -> Tensor:
                return extended.cells(weights, places=places)

            of_text.merged.add(rows, weights, kept)
    of_text.types[0] += received @ types.double().mT
    return of_text


def _raw_rows(call: Call, text: int, span: slice, lengths: Tensor, dtype: torch.dtype) -> RawRows:
    position = call.bias.position
    if position is not None:
        position = position[text if len(position) > 1 else 0]
        position = (position if position.shape[-2] == 1 else position[:, span])[..., span]
    query, key = (tensor[text, :, span].to(dtype) for tensor in (call.query, call.key))
    return RawRows(query, key, lengths, call.scale, call.softcap, position, call.sinks)
