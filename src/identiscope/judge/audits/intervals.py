"""Exact bounds of answers that are linear in attention, over all attention with the same output.

Whether an answer is linear is not looked up: its slope by attention must be the same at the alternatives, and foretell
what is said there.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from identiscope.asking.ask import bound
from identiscope.errors import IdentiscopeError
from identiscope.linalg.copies import spread_rows
from identiscope.linalg.tolerance import LINEAR_ANSWER
from identiscope.methods.fields import LayerFields, layer_fields
from identiscope.methods.heads.statistic_interval import statistic_interval
from identiscope.methods.maps.factored import FactoredAttention
from identiscope.methods.outcome_runs import OutcomeRuns
from identiscope.methods.registry import Method
from identiscope.methods.trace_fields import TraceFields

if TYPE_CHECKING:
    from identiscope.capture import Trace


def top_intervals(
    one: Method,
    trace: "Trace",
    others: Sequence["Trace"],
    runs: OutcomeRuns,
    options: Mapping[str, Any],
    rows: int,
    groups: NDArray[np.int64],
) -> tuple[float, float, float] | None:
    """The value of the strongest token, and the least and the most that it can be; None for an answer that is not
    linear in attention.

    Of a map the mean over some rows of every head, each with its own strongest token; of a score the strongest input,
    over all attention of all layers at once. others: the trace with other attention, where linearity is tried. groups
    [input]: inputs of which what is said is added up, and counts as one token's.
    """
    if one.kind not in ("map", "score"):
        return None
    stream = runs.outcome.stream
    sites = [site for site in trace.sites if site.query_stream == site.key_stream == stream]
    slope: type[_Slopes] = _MapSlopes if one.kind == "map" else _ScoreSlopes
    try:
        here = slope(one, trace, stream, runs, options, groups)
        if not all(here.foretells(slope(one, other, stream, runs, options, groups, here)) for other in others):
            return None
    except (IdentiscopeError, RuntimeError):
        # Something on the way has no derivative, or is none of torch.
        return None
    ends = []
    for site, slopes in zip(sites, here.slopes, strict=True):
        chosen = spread_rows(site.queries, rows).tolist() if one.kind == "map" else list(range(site.queries))
        ends.append(_row_bounds(layer_fields(site, trace.streams), slopes, chosen))
    bounds = torch.stack(ends)  # [layer, end, head, row]
    if one.kind == "map":
        rest = torch.stack([here.rest[layer][:, spread_rows(site.queries, rows)] for layer, site in enumerate(sites)])
        value, lower, upper = (bounds + rest[:, None]).mean((0, 2, 3)).tolist()
    else:
        value, lower, upper = (bounds.sum((0, 2, 3)) + here.rest[0]).tolist()
    return value, lower, upper


def _row_bounds(fields: LayerFields, slopes: Tensor, rows: list[int]) -> Tensor:
    """Σ_k slope_k·a_k of chosen rows, and its bounds: [end, head, row]."""
    made = statistic_interval(
        fields.value, fields.projection, fields.raw, fields.queries, torch.zeros(slopes.shape[2], dtype=torch.bool),
        [str(key) for key in range(slopes.shape[2])], [str(query) for query in range(fields.queries)], fields.allowed,
        fields.precision, on=slopes, rows=rows,
    )  # fmt: skip
    return made.rows[:, :, rows]


def _tensor(one: Method, answer: Any) -> Tensor:
    """What a function gave on the axes of its kind."""
    if isinstance(answer, FactoredAttention):
        return answer.dense()
    if isinstance(answer, Tensor):
        return answer
    arrays = answer.arrays()
    axes = one.axes[1:] if one.family.scope == "layer" else one.axes
    found = arrays.get(one.name) or next(part for part in arrays.values() if tuple(part[0]) == axes)
    values: Tensor = found[1]
    return values


class _Slopes:
    """An answer's value at the strongest tokens, and its slope by every weight of attention: one map a layer.

    tops: where the strongest tokens are; those of `like`, if it is given.
    """

    def __init__(
        self, one: Method, trace: "Trace", stream: str, runs: OutcomeRuns, options: Mapping[str, Any],
        groups: NDArray[np.int64], like: "_Slopes | None" = None,
    ) -> None:  # fmt: skip
        self.groups = torch.from_numpy(groups)
        self.slopes: list[Tensor] = []
        self.values: list[Tensor] = []
        self.weights: list[Tensor] = []
        self.tops: list[Tensor] = [] if like is None else like.tops
        self.sites = [site for site in trace.sites if site.query_stream == site.key_stream == stream]
        self._read(one, trace, stream, runs, options)

    def _read(self, one: Method, trace: "Trace", stream: str, runs: OutcomeRuns, options: Mapping[str, Any]) -> None:
        """Ask the method, and its slopes."""
        raise NotImplementedError

    @property
    def rest(self) -> list[Tensor]:
        """What is in the values beside slope·attention."""
        raise NotImplementedError

    def added(self, answer: Tensor) -> Tensor:
        """An answer [..., token] with what is said of the tokens of each group added up, [..., group]."""
        own = self.groups[len(self.groups) - answer.shape[-1] :].to(answer.device)
        return answer.new_zeros(*answer.shape[:-1], int(own.max()) + 1).index_add(-1, own, answer)

    def foretells(self, other: Any) -> bool:
        """Whether these slopes are those of the other trace, and the differences between values come of them."""
        size = max(float(one.abs().max()) for one in self.values)
        same = all(
            float((one - two).abs().max()) <= LINEAR_ANSWER * max(float(one.abs().max()), size)
            for one, two in zip(self.slopes, other.slopes, strict=True)
        )
        said = all(
            float((one - two).abs().max()) <= LINEAR_ANSWER * max(size, 1e-300)
            for one, two in zip(self.rest, other.rest, strict=True)
        )
        return same and said


class _MapSlopes(_Slopes):
    """Of a map: every row has its own strongest key, and only its own attention counts."""

    def _read(self, one: Method, trace: "Trace", stream: str, runs: OutcomeRuns, options: Mapping[str, Any]) -> None:
        own = {"outcome": runs} if "outcome" in bound(one, {}).choices else {}
        call = bound(one, {**one.brief, **options, **own})
        for layer, site in enumerate(self.sites):
            fields = layer_fields(site, trace.streams)
            weights = fields.attention.detach().requires_grad_()
            fields = replace(fields, runs=runs, weights=weights, keep_bias=call.choices.get("value_bias", True))
            fields = fields.exactly() if one.family.exact else fields
            answer = self.added(_tensor(one, call.of(lambda name, fields=fields: getattr(fields, name))))  # type: ignore[misc]
            if len(self.tops) <= layer:
                self.tops.append(answer.detach().abs().argmax(-1))
            value = answer.gather(-1, self.tops[layer][..., None])[..., 0]
            (slope,) = torch.autograd.grad(value.sum(), [weights])
            self.slopes.append(slope)
            self.values.append(value.detach())
            self.weights.append(weights.detach())

    @property
    def rest(self) -> list[Tensor]:
        """[head, query] of every layer."""
        parts = zip(self.slopes, self.values, self.weights, strict=True)
        return [value - (slope * weights).sum(-1) for slope, value, weights in parts]


class _ScoreSlopes(_Slopes):
    """Of a score: one number, to which all rows of all layers may add."""

    def _read(self, one: Method, trace: "Trace", stream: str, runs: OutcomeRuns, options: Mapping[str, Any]) -> None:
        call = bound(one, {**one.brief, **options, "outcome": runs, "stream": stream})
        weights = [site.attentions().detach().requires_grad_() for site in self.sites]
        maps = {site.index: own for site, own in zip(self.sites, weights, strict=True)}
        fields = TraceFields(trace.with_attention(maps), trace.streams[stream], given_outcome=runs)
        with warnings.catch_warnings():
            # What a method says of itself in numbers of Python has no slope, and needs none.
            warnings.filterwarnings("ignore", "Converting a tensor with requires_grad", UserWarning)
            score = self.added(_tensor(one, call.of(fields.field)))
        if not self.tops:
            self.tops.append(score.detach().abs().argmax())
        value = score[self.tops[0]]
        self.slopes = list(torch.autograd.grad(value, weights))
        self.values, self.weights = [value.detach()[None]], [own.detach() for own in weights]

    @property
    def rest(self) -> list[Tensor]:
        """One number."""
        parts = zip(self.slopes, self.weights, strict=True)
        return [self.values[0] - torch.stack([(slope * weights).sum() for slope, weights in parts]).sum()]
