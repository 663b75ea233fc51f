"""Attention flow."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from identiscope.errors import InputError, MathError
from identiscope.linalg.devices import on_cpu
from identiscope.linalg.tolerance import PROGRAM_FEASIBILITY
from identiscope.methods.mixtures.rollout import mixed_attention
from identiscope.progress import Progress


@dataclass(frozen=True, eq=False)
class AttentionFlow:
    """flow [layer, output, input]; entering [input]: all that can enter each; largest_gap: of a flow and its cut."""

    flow: Tensor
    layers: tuple[int, ...]
    entering: Tensor
    largest_gap: float

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Tensor]]:
        """By name, with their axes."""
        cells = ("layer", "output", "input")
        # The cut at an input: the query has no say in it.
        decided = (self.flow - self.entering).abs() <= PROGRAM_FEASIBILITY
        whole = (self.flow - 1).abs() <= PROGRAM_FEASIBILITY
        # Pairs that were not asked for are none of the share.
        share = torch.where(self.flow.isnan(), torch.nan, (decided | whole).double())
        return {
            "attention_flow": (cells, self.flow),
            "decided_by_input": (("layer",), share.nanmean((1, 2))),
        }

    def labels(self) -> dict[str, Sequence[int]]:
        """Which layers were asked for."""
        return {"layer": self.layers}

    @property
    def facts(self) -> dict[str, float]:
        """How far the smallest cuts are from the flows: that proves both."""
        return {"largest_gap": self.largest_gap}


def attention_flow(
    attention: Sequence[Tensor],
    *,
    residual: float = 0.5,
    layers: Sequence[int] | None = None,
    tokens: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> AttentionFlow:
    """The maximum flow from each hidden token to each input, attention being capacities (Abnar & Zuidema 2020, §3).

    Edges are those of rollout, Ā = r·I + (1 − r)·mean_h A. Every value comes with the smallest cut, which proves it
    (`largest_gap`). `decided_by_input` is the share of pairs whose flow is all that the edges at the input, or at the
    query, could carry at all: nothing between has a say in it.

    residual: r, the share of a token's own stream in each layer. layers: only these blocks, from 0. tokens: only from
    these hidden tokens; all pairs of a text of n tokens and L layers take time in proportion to L²·n⁴.

    >>> attention_flow([torch.tensor([[[1.0, 0.0], [0.5, 0.5]]])] * 2).flow[-1]
    tensor([[1.0000, 0.0000],
            [0.5000, 0.7500]], dtype=torch.float64)
    """
    from identiscope.linalg.flow.layered_compiled import flows_from

    capacity = np.ascontiguousarray(on_cpu(torch.stack(list(mixed_attention(attention, residual)))).numpy())
    depth, count = capacity.shape[:2]
    chosen = tuple(range(depth)) if layers is None else tuple(layers)
    sources = range(count) if tokens is None else list(tokens)
    if not chosen or not all(0 <= layer < depth for layer in chosen):
        raise InputError(f"layers {list(chosen)} were asked for; there are 0 to {depth - 1}.")
    if not sources or not all(0 <= token < count for token in sources):
        raise InputError(f"tokens {list(sources)} were asked for; there are 0 to {count - 1}.")
    flow = np.full((len(chosen), count, count), np.nan)
    gaps = np.zeros(count)
    worst, done = 0.0, 0
    for place, layer in enumerate(chosen):
        for token in sources:
            flows_from(capacity, layer + 1, token, flow[place, token], gaps)
            worst = max(worst, float(np.abs(gaps).max()))
            done += 1
            if progress is not None:
                progress(done, len(chosen) * len(sources))
    if not worst <= PROGRAM_FEASIBILITY:
        raise MathError(f"a flow and its smallest cut differ by {worst:.1e}; the maximum was not found.")
    entering = torch.from_numpy(capacity[0].sum(0))
    return AttentionFlow(torch.from_numpy(flow), chosen, entering, worst)
