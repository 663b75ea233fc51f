"""Attention statistics of many texts at once, where all tokens of a text see each other.

If T has full rank, and G = VᵀV = L·Lᵀ, the columns of Q = V·L⁻ᵀ are an orthonormal basis of col(T), and A⊥ = P·Qᵀ with
P = O·L⁻ᵀ. So its norm, sums and means follow from P and Q, for all texts and heads at once: no cell of it is formed.
Heads whose rank a bound does not prove are factorised by themselves.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.capture.watch.calls import Call
from identiscope.capture.watch.kernel import repeat_heads
from identiscope.linalg.copies import merged_squares, spread_rows
from identiscope.linalg.devices import on_cpu
from identiscope.linalg.rank.column_space import column_space
from identiscope.linalg.rank.coordinates import coordinates
from identiscope.linalg.rank.full_rank import HeadProducts, full_column_rank, independent_rows
from identiscope.linalg.rank.projection_factor import ProjectionFactor
from identiscope.linalg.tolerance import VARIANCE_FLOOR
from identiscope.runs.compute.batch_tokens import BatchTokens
from identiscope.runs.compute.gram_part import GramPart, RawText, parts, raw_text
from identiscope.runs.compute.merged_from_gram import kept_rows
from identiscope.runs.compute.text_sums import tokens_columns


def statistics_from_gram(call: Call, tokens: BatchTokens, layer: HeadProducts) -> dict[str, Tensor] | None:
    """The columns [text, head] of a call in which all tokens of a text see each other; None where they do not."""
    if not _same_keys(call, tokens.real):
        return None
    of_parts = [_columns(part, *_raw_and_effective(part, layer, call.value.dtype)) for part in parts(call, tokens)]
    return {name: torch.cat([columns[name] for columns in of_parts]) for name in of_parts[0]}


def _same_keys(call: Call, real: Tensor) -> bool:
    """Whether every token of a text sees just the tokens of that text, and its weights sum to one."""
    if call.bias.causal or call.sinks is not None or call.query.shape[2] != call.key.shape[2]:
        return False
    if call.bias.allowed is None:
        return bool(real.all())
    real = real.to(call.bias.allowed.device)
    return bool(((call.bias.allowed == real[:, None, None, :]) | ~real[:, None, :, None]).all())


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


def _raw_and_effective(part: GramPart, layer: HeadProducts, precision: torch.dtype) -> tuple[RawText, _Effective]:
    lengths, heads, channels = part.lengths, part.query.shape[1], part.value.shape[-1]
    keys = lengths[:, None].double()
    if part.value.shape[2] <= channels:
        # Independent rows: nothing is null, and the effective attention is the raw one.
        raw = raw_text(part, None)
        proven = independent_rows(part.value, lengths, layer, precision)
        rank = lengths[:, None].repeat(1, heads)
        own, types = raw.own * keys, raw.types * keys[..., None]
        squares = raw.spread + 1
        sums = _Effective(
            rank=rank,
            squares=squares,
            total=keys.repeat(1, heads),
            own=own,
            types=types,
            simplex_rank=rank.clone(),
            simplex_squares=squares.clone(),
            simplex_own=own.clone(),
            simplex_types=types.clone(),
            merged=torch.zeros_like(own),
        )
    else:
        found = full_column_rank(part.value.mT @ part.value, part.value.sum(2), lengths, layer, precision)
        proven, turning = found.proven, found.root.mT
        basis = part.value @ turning
        left, right = part.context @ repeat_heads(turning, heads), repeat_heads(basis, heads)
        along, direction = _along_ones(part, basis, left, heads)
        more = (found.simplex_rank > channels)[..., None]
        along, direction = torch.where(more, along, 0), torch.where(more, direction, 0)
        span = kept_rows(part.merged, left, right, part.query.dtype)
        raw = raw_text(
            part, span.beside(kept_rows(part.merged, along[..., None], direction[..., None], span.left.dtype))
        )
        # What the keys receive from all rows together.
        received = (right @ left.sum(2)[..., None])[..., 0]
        with_ones = received + direction * along.sum(-1, keepdim=True)
        squares, own = _products(left, left), _products(left, right)
        by_type = part.types.mT
        sums = _Effective(
            rank=torch.full_like(found.simplex_rank, channels),
            squares=squares,
            total=received.sum(-1),
            own=own,
            types=received @ by_type,
            simplex_rank=found.simplex_rank,
            simplex_squares=squares + along.square().sum(-1),
            simplex_own=own + (along * direction).sum(-1),
            simplex_types=with_ones @ by_type,
            merged=raw.merged,
        )
    texts, chosen = (~proven).nonzero().unbind(1)
    for length in lengths[texts].unique().tolist():
        of_it = lengths[texts] == length
        _from_spectrum(part, texts[of_it], chosen[of_it], length, layer.factor, precision, sums)
    return raw, sums


def _products(one: Tensor, other: Tensor) -> Tensor:
    """The sum of the products of all cells, [text, head], without a map of them."""
    found: Tensor = one.flatten(2)[:, :, None] @ other.flatten(2)[..., None]
    return found[..., 0, 0]


def _along_ones(part: GramPart, basis: Tensor, left: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """The one direction that [T,1] has more than T, and how much of it is in each row, both [text, head, token].

    That direction is u/‖u‖ with u = 1 − P·1, P the projector on col(T); a·u = a·1 − (A⊥)·1, and rows of A sum to one.
    """
    ones = basis.sum(2)[..., None]
    direction = part.real[:, None] - (basis @ ones)[..., 0]
    length = direction.square().sum(-1, keepdim=True).sqrt()
    unit = direction / torch.where(length > 0, length, 1)
    missing = part.real[:, None] - (left @ repeat_heads(ones, heads))[..., 0]
    unit, length = (repeat_heads(one[..., None], heads)[..., 0] for one in (unit, length))
    return missing / torch.where(length > 0, length, 1), unit


def _from_spectrum(
    part: GramPart,
    texts: Tensor,
    heads: Tensor,
    length: int,
    factor: ProjectionFactor,
    precision: torch.dtype,
    sums: _Effective,
) -> None:
    """Some heads [pair] of some texts [pair] of one length, whatever their rank: replace what stands in the sums.

    Where T is nearly singular, the rounding of the context that the pass computed would show enlarged: it is computed
    anew, in float64.
    """
    group = part.query.shape[1] // part.value.shape[1]
    value = part.value[texts, heads // group, :length]
    own = ProjectionFactor(factor.triangle[heads], factor.norm[heads], factor.model)
    weights = part.weights(texts, heads, length)
    context = weights @ value
    plain, ones = (coordinates(value, own, precision, with_ones=flag) for flag in (False, True))
    types = part.types[texts, :, :length]
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
            rows, copies = spread_rows(length), part.merged.copies[on_cpu(texts), :length]
            null, whole = merged_squares(weights, left[:, rows.to(left.device)] @ right.mT, copies, rows)
            sums.merged[texts, heads] = null.sum(1) / whole.sum(1)
        for name, values in replaced.items():
            getattr(sums, prefix + name)[texts, heads] = values


def _columns(part: GramPart, raw: RawText, projected: _Effective) -> dict[str, Tensor]:
    lengths, keys = part.lengths[:, None], part.lengths[:, None].double()
    spread, squares = raw.spread, raw.spread + 1
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
        "entropy": raw.entropy,
        **tokens_columns("raw", raw.types, raw.own, part.types),
        **tokens_columns(
            "simplex", projected.simplex_types / keys[..., None], projected.simplex_own / keys, part.types
        ),
        **tokens_columns("effective", projected.types / keys[..., None], projected.own / keys, part.types),
    }
