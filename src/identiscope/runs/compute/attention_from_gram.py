"""Attention statistics of many texts at once, where all tokens of a text see each other.

If T has full rank, A⊥ = O·G⁻¹·Vᵀ with G = VᵀV, so its norm, sums and means follow from d_v×d_v matrices, for all texts
and heads at once: no cell of it is formed. Heads whose rank a bound does not prove are factorised one text at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from math import log

import torch
from torch import Tensor

from identiscope.capture.watch.calls import Call
from identiscope.capture.watch.kernel import repeat_heads
from identiscope.linalg.copies import no_merged_sums
from identiscope.linalg.rank.column_space import column_space
from identiscope.linalg.rank.coordinates import coordinates
from identiscope.linalg.rank.full_rank import HeadProducts, full_column_rank, independent_rows
from identiscope.linalg.rank.projection_factor import ProjectionFactor
from identiscope.linalg.tolerance import VARIANCE_FLOOR
from identiscope.runs.compute.batch_tokens import BatchTokens
from identiscope.runs.compute.merged_from_gram import KeptRows, MergedRows, merged_null_share, merged_rows
from identiscope.runs.compute.text_sums import tokens_columns

#: Cells of raw attention held at once: about what a processor's own cache holds.
_BLOCK_CELLS = 2**18

#: Numbers of values held at once.
_PART_NUMBERS = 2**22

#: A logit that leaves no weight, and that times no weight is zero, as minus infinity would not be.
_NO_WEIGHT = -1e9


@dataclass(frozen=True, eq=False)
class _Part:
    """Some texts of a call, as long as the longest: query and key [text, head, token, channel], value [text, kv_head,
    token, channel] and context in float64 and zero behind a text's end, lengths [text], real [text, token], types
    [text, type, token]. `real_here` is `real` on the CPU, which decides what is computed next.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    context: Tensor
    position: Tensor | None
    lengths: Tensor
    real: Tensor
    real_here: Tensor
    types: Tensor
    merged: MergedRows


def statistics_from_gram(call: Call, tokens: BatchTokens, layer: HeadProducts) -> dict[str, Tensor] | None:
    """The columns [text, head] of a call in which all tokens of a text see each other; None where they do not."""
    if not _same_keys(call, tokens.real):
        return None
    parts = []
    for chosen in _parts(call, tokens):
        part = _part(call, tokens, chosen)
        parts.append(_columns(part, *_raw_and_effective(part, layer, call)))
    return {name: torch.cat([columns[name] for columns in parts]) for name in parts[0]}


def _same_keys(call: Call, real: Tensor) -> bool:
    """Whether every token of a text sees just the tokens of that text, and its weights sum to one."""
    if call.bias.causal or call.sinks is not None or call.query.shape[2] != call.key.shape[2]:
        return False
    if call.bias.allowed is None:
        return bool(real.all())
    real = real.to(call.bias.allowed.device)
    return bool(((call.bias.allowed == real[:, None, None, :]) | ~real[:, None, :, None]).all())


def _parts(call: Call, tokens: BatchTokens) -> Iterator[slice]:
    """Texts to take together: not too many, and all of them with fewer tokens than channels or none."""
    lengths = tokens.lengths
    size = max(1, _PART_NUMBERS // (call.query.shape[1] * max(lengths) * call.value.shape[-1]))
    first = 0
    for _, run in groupby(length < call.value.shape[-1] for length in lengths):
        end = first + len(list(run))
        for begin in range(first, end, size):
            yield slice(begin, min(begin + size, end))
        first = end


def _part(call: Call, tokens: BatchTokens, chosen: slice) -> _Part:
    used = tokens.real[chosen].any(0).nonzero()[:, 0]
    # A batch is padded on one side, so one slice holds the texts.
    span = slice(int(used[0]), int(used[-1]) + 1)
    real = tokens.real[chosen, span]
    device, position = call.query.device, call.bias.position
    if position is not None:
        position = position[chosen] if len(position) > 1 else position
        position = (position if position.shape[-2] == 1 else position[:, :, span])[..., span]
    dtype = torch.promote_types(call.query.dtype, torch.float32)

    def taken(tensor: Tensor, dtype: torch.dtype) -> Tensor:
        # One run of memory, and a copy: products of strided views would copy them each time.
        part = tensor[chosen, :, span]
        return torch.empty(part.shape, dtype=dtype, device=device).copy_(part)

    value, context = taken(call.value, torch.float64), taken(call.context, torch.float64)
    for index in (~real.all(1)).nonzero()[:, 0].tolist():
        value[index][:, ~real[index]] = 0
        context[index][:, ~real[index]] = 0
    return _Part(
        query=taken(call.query, dtype),
        key=repeat_heads(taken(call.key, dtype), call.query.shape[1]),
        value=value,
        context=context,
        position=position,
        lengths=real.sum(1).to(device),
        real=real.to(device),
        real_here=real,
        types=tokens.types[chosen, :, span].double().to(device),
        merged=merged_rows(real, tokens.copies[chosen, span]),
    )


def _raw(part: _Part, call: Call, kept: KeptRows | None) -> dict[str, Tensor]:
    """Of the raw attention, in the precision of the pass but at least float32: sums over its cells, [text, head].

    kept: what it is compared with where equal tokens are added up.
    """
    size = max(1, _BLOCK_CELLS // (part.query.shape[1] * part.real.shape[1] ** 2))
    blocks = []
    for begin in range(0, len(part.real), size):
        some = slice(begin, begin + size)
        used = part.real_here[some].any(0).nonzero()[:, 0]
        blocks.append(_raw_block(part, call, kept, some, slice(int(used[0]), int(used[-1]) + 1)))
    return {name: torch.cat([block[name] for block in blocks]) for name in blocks[0]}


def _raw_block(part: _Part, call: Call, kept: KeptRows | None, some: slice, span: slice) -> dict[str, Tensor]:
    """Of some texts of a part, within the span of places that they use."""
    dtype, inside = part.query.dtype, part.real[some, span]
    # The smaller factor is scaled.
    logits = (part.query[some, :, span] * call.scale) @ part.key[some, :, span].mT
    if call.softcap is not None:
        logits = torch.tanh(logits / call.softcap) * call.softcap
    if part.position is not None:
        position = part.position[some] if len(part.position) > 1 else part.position
        logits += (position if position.shape[-2] == 1 else position[:, :, span])[..., span].to(dtype)
    real, padded = inside[:, None, None, :].to(dtype), not bool(part.real_here[some, span].all())
    if padded:
        logits += (1 - real) * _NO_WEIGHT
    logarithm = torch.log_softmax(logits, -1)
    weights = logarithm.exp()
    rows, lengths = inside[:, None].double(), part.lengths[some, None].double()
    entropy = -logarithm.mul_(weights).sum(-1)
    received = (real @ weights)[..., 0, :].double()
    own = (weights.diagonal(dim1=-2, dim2=-1) * rows).sum(-1)
    merged = {} if kept is None else {"merged": merged_null_share(part.merged, weights, kept, some, span)}
    weights -= 1 / lengths[..., None, None].to(dtype)
    if padded:
        weights *= real
    return merged | {
        "entropy": (entropy * rows).sum(-1) / log(2) / lengths,
        "types": received @ part.types[some, :, span].mT / lengths[..., None],
        "self": own / lengths,
        # A row of n weights has the mean 1/n, so this is the spread around the mean of all cells.
        "spread": (torch.linalg.vector_norm(weights, dim=-1).double().square() * rows).sum(-1),
    }


@dataclass(frozen=True, eq=False)
class _Effective:
    """Of the effective attention, [text, head]: rank of T, Σa², Σa, Σa_ii, and Σa by type of key, [text, head, type].

    With `simplex_`, the same of [T,1]; its rows sum to one. `merged` is its null share with equal tokens added up.
    """

    rank: Tensor
    squares: Tensor
    total: Tensor
    own: Tensor
    types: Tensor
    simplex_rank: Tensor
    simplex_squares: Tensor
    simplex_own: Tensor
    simplex_types: Tensor
    merged: Tensor


def _raw_and_effective(part: _Part, layer: HeadProducts, call: Call) -> tuple[dict[str, Tensor], _Effective]:
    precision, lengths = call.value.dtype, part.lengths
    heads, channels = part.query.shape[1], part.value.shape[-1]
    keys = lengths[:, None].double()
    if int(part.real_here.sum(1).max()) < channels:
        # Independent rows: nothing is null, and the effective attention is the raw one.
        raw = _raw(part, call, None)
        proven = independent_rows(part.value, lengths, layer, precision)
        rank = lengths[:, None].repeat(1, heads)
        own, types = raw["self"] * keys, raw["types"] * keys[..., None]
        same, none = (raw["spread"] + 1, own, types), torch.zeros_like(own)
        sums = _Effective(
            rank, same[0], keys.repeat(1, heads), *same[1:], rank.clone(), *(one.clone() for one in (*same, none)),
        )  # fmt: skip
    else:
        added = part.value.sum(2)
        found = full_column_rank(part.value.mT @ part.value, added, lengths, layer, precision)
        proven = found.proven
        inverse, value, added = (
            repeat_heads(tensor, heads) for tensor in (found.inverse, part.value, added[..., None])
        )
        weight = inverse @ part.context.sum(2)[..., None]
        squares = ((part.context.mT @ part.context) * inverse).sum((-2, -1))
        own = ((value.mT @ part.context) * inverse).sum((-2, -1))
        types = (part.types[:, None] @ (value @ weight))[..., 0]
        more, direction, along = _along_ones(part, inverse, value, added, found.simplex_rank > channels)
        chosen = part.merged.rows.to(value.device)[:, None].expand(-1, heads, -1)
        context = part.context.gather(2, chosen[..., None].expand(-1, -1, -1, channels))
        left = torch.cat([context @ inverse, along.gather(2, chosen)[..., None]], -1)
        raw = _raw(part, call, KeptRows(left, torch.cat([value, direction[..., None]], -1)))
        sums = _Effective(
            rank=torch.full_like(found.simplex_rank, channels),
            squares=squares,
            total=(weight * added).sum((-2, -1)),
            own=own,
            types=types,
            simplex_rank=found.simplex_rank,
            simplex_squares=squares + more[0],
            simplex_own=own + more[1],
            simplex_types=types + more[2],
            merged=raw["merged"],
        )
    for text in (~proven.all(1)).nonzero()[:, 0].tolist():
        _from_spectrum(part, text, (~proven[text]).nonzero()[:, 0], layer.factor, call, sums)
    return raw, sums


def _along_ones(
    part: _Part, inverse: Tensor, value: Tensor, added: Tensor, more: Tensor
) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor, Tensor]:
    """What the one direction that [T,1] has more than T adds to Σa², Σa_ii and Σa by type; more: where it has one.

    That direction is u = 1 − P·1, P the projector on col(T), and a·u = a·1 − (A⊥)·1 = 1 − o·G⁻¹·(Vᵀ1). It comes, too,
    [text, head, token], and with it how much of it is in each row, a·u/‖u‖², zero where there is none.
    """
    along, rows = inverse @ added, part.real[:, None].double()
    direction, missing = ((1 - (points @ along)[..., 0]) * rows for points in (value, part.context))
    length = torch.where(more, direction.square().sum(-1), 1)
    by_type = (direction[:, :, None] * part.types[:, None]).sum(-1)
    parts = (missing.square().sum(-1), (missing * direction).sum(-1), missing.sum(-1)[..., None] * by_type)
    squares, own, types = (
        torch.where(
            more.view(*more.shape, *[1] * (one.ndim - 2)), one / length.view(*length.shape, *[1] * (one.ndim - 2)), 0
        )
        for one in parts
    )
    return (squares, own, types), direction, torch.where(more[..., None], missing / length[..., None], 0)


def _product(left: Tensor, right: Tensor, places: Tensor) -> Tensor:
    return left[:, places.to(left.device)] @ right.mT


def _from_spectrum(
    part: _Part, text: int, heads: Tensor, factor: ProjectionFactor, call: Call, sums: _Effective
) -> None:
    """Some heads of one text, whatever their rank: replace what stands in the sums.

    Where T is nearly singular, the rounding of the context that the pass computed would show enlarged: it is computed
    anew, in float64.
    """
    inside, group = part.real[text], part.query.shape[1] // part.value.shape[1]
    value = part.value[text, heads // group][:, inside]
    own = ProjectionFactor(factor.triangle[heads], factor.norm[heads], factor.model)
    weights = _weights(part, call, text, heads, inside)
    context = weights @ value
    plain, ones = (coordinates(value, own, call.value.dtype, with_ones=flag) for flag in (False, True))
    types = part.types[text][:, inside]
    for points, prefix in ((plain, ""), (ones, "simplex_")):
        space = column_space(points)
        left, right = space.left(points.target(context, None)), space.right
        turned = left.sum(1)[..., None]
        replaced = {
            "rank": space.spectrum.rank,
            "squares": ((left.mT @ left) * (right.mT @ right)).sum((-2, -1)),
            "own": (left * right).sum((-2, -1)),
            "types": (types @ (right @ turned))[..., 0],
        }
        if not prefix:
            replaced["total"] = (right.sum(1, keepdim=True) @ turned)[:, 0, 0]
        else:
            merged = no_merged_sums(
                len(heads), weights.shape[1], part.merged.copies[text, part.real_here[text]], left.device
            )
            rows = slice(0, weights.shape[1])
            merged.add(rows, weights, partial(_product, left, right))
            sums.merged[text, heads] = merged.share
        for name, values in replaced.items():
            getattr(sums, prefix + name)[text, heads] = values


def _weights(part: _Part, call: Call, text: int, heads: Tensor, inside: Tensor) -> Tensor:
    """Raw attention [head, query, key] of some heads of one text, in float64."""
    query, key = (tensor[text, heads][:, inside].double() for tensor in (part.query, part.key))
    logits = (query * call.scale) @ key.mT
    if call.softcap is not None:
        logits = torch.tanh(logits / call.softcap) * call.softcap
    if part.position is not None:
        position = part.position[text if len(part.position) > 1 else 0].double()[..., inside]
        position = position if position.shape[-2] == 1 else position[:, inside]
        logits = logits + (position if len(position) == 1 else position[heads])
    return torch.softmax(logits, -1)


def _columns(part: _Part, raw: dict[str, Tensor], projected: _Effective) -> dict[str, Tensor]:
    lengths, keys = part.lengths[:, None], part.lengths[:, None].double()
    spread, squares = raw["spread"], raw["spread"] + 1
    # ⟨A, A⊥⟩ = ‖A⊥‖², a projection being orthogonal, and the rows of A sum to one.
    effective_spread = projected.squares - (projected.total / keys).square()
    shared = projected.squares - projected.total / keys
    defined = (spread > VARIANCE_FLOOR**0.5 * squares) & (effective_spread > VARIANCE_FLOOR**0.5 * projected.squares)
    correlation = (shared / (spread * effective_spread).clamp(min=0).sqrt()).clamp(-1, 1)
    # Rows of both sum to one, so that both have the mean 1/n, and their covariance is the spread of the projection.
    simplex_spread = projected.simplex_squares - 1
    simplex_defined = (spread > VARIANCE_FLOOR**0.5 * squares) & (
        simplex_spread > VARIANCE_FLOOR**0.5 * projected.simplex_squares
    )
    simplex_correlation = (simplex_spread.clamp(min=0) / torch.where(spread > 0, spread, 1)).sqrt().clamp(max=1)
    return {
        "rank": projected.rank.double(),
        "null_dimension": (lengths - projected.rank).double(),
        "simplex_null_dimension": (lengths - projected.simplex_rank).double(),
        "free_rows": (lengths > projected.simplex_rank).double(),
        "simplex_null_share": (1 - projected.simplex_squares / squares).clamp(min=0),
        "simplex_correlation": torch.where(simplex_defined, simplex_correlation, torch.nan),
        "merged_null_share": projected.merged,
        "null_share": (1 - projected.squares / squares).clamp(min=0),
        "correlation": torch.where(defined, correlation, torch.nan),
        "entropy": raw["entropy"],
        **tokens_columns("raw", raw["types"], raw["self"], part.types),
        **tokens_columns(
            "simplex", projected.simplex_types / keys[..., None], projected.simplex_own / keys, part.types
        ),
        **tokens_columns("effective", projected.types / keys[..., None], projected.own / keys, part.types),
    }
