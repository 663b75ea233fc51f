"""Other attention of a whole layer with the same output: attention that moves between heads."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.allowed import Allowed, describe_allowed
from identiscope.linalg.devices import on_cpu
from identiscope.linalg.rank.projection_factor import projection_condition, projection_factor
from identiscope.linalg.simplex.layer_constraints import layer_constraints
from identiscope.linalg.simplex.row_programs import RowPrograms
from identiscope.methods.maps.factored import RawRows


@dataclass(frozen=True, eq=False)
class LayerAlternative:
    """Maps [head, query, key] of a layer's heads, and why they are what they are: in how many directions attention can
    move between heads where a query sees all keys, and the condition of the output projection."""

    maps: Tensor
    between_heads: int
    projection_condition: float

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Tensor | float]]:
        """By name, with their axes."""
        return {
            "layer_alternative": (("head", "query", "key"), self.maps),
            "between_heads": ((), self.between_heads),
            "projection_condition": ((), self.projection_condition),
        }


def layer_alternative(
    value: Tensor,
    projection: Tensor,
    raw: RawRows,
    queries: int,
    allowed: Allowed = None,
    precision: torch.dtype | None = None,
    *,
    rows: int | Sequence[int] | None = None,
    starts: int = 1,
    seed: int = 0,
) -> LayerAlternative:
    """Maps of all heads of a layer that together give its output, as far from the raw ones as was found.

    The layer adds Σ_h A_h·T_h, so what one head stops writing another may write instead, where their outputs overlap:
    where heads·d_v exceeds the width of the model, or the output projection is singular. Where it is neither, heads can
    only move one by one, which `attention_alternative` does: then the raw maps are given. `between_heads` says which:
    the number of directions in which attention can move from head to head, with the output kept to the resolution of
    the pass. `projection_condition` is that of the output projection W_O, infinite where it is singular.

    rows: move only these queries. starts: how many random searches are made beside the first. seed: of these.

    >>> from identiscope.methods.maps.factored import rows_of
    >>> attention = torch.tensor([[[0.9, 0.1]], [[0.2, 0.8]]])
    >>> value = torch.tensor([[[0.0], [1.0]], [[0.0], [1.0]]])
    >>> found = layer_alternative(value, torch.ones(2, 1, 1), rows_of(attention), 1)
    >>> found.maps[:, 0], found.between_heads, found.projection_condition
    (tensor([[0.1000, 0.9000],
            [1.0000, 0.0000]], dtype=torch.float64), 1, inf)
    """
    heads, keys = len(projection), value.shape[1]
    own = on_cpu(raw(slice(0, queries))).double()
    chosen = range(queries) if rows is None else [rows] if isinstance(rows, int) else list(rows)
    if any(not 0 <= row < queries for row in chosen):
        raise InputError(f"rows={rows!r} was given; the text has query rows 0 to {queries - 1}.")
    sees = on_cpu(describe_allowed(allowed, queries, keys, value.device).block(slice(0, queries))).expand(queries, keys)
    factor, width = projection_factor(on_cpu(projection)), value.dtype if precision is None else precision
    whole = layer_constraints(on_cpu(value), on_cpu(projection), factor, width)
    maps, own_constraints, seen = own.clone(), whole, torch.ones(keys, dtype=torch.bool)
    for row in chosen:
        if not torch.equal(seen, sees[row]):
            seen = sees[row]
            own_constraints = (
                whole if seen.all() else layer_constraints(on_cpu(value)[:, seen], on_cpu(projection), factor, width)
            )
        if own_constraints.between_heads:
            weights = own[:, row, seen].flatten().numpy()
            farthest = _farthest(own_constraints.basis, weights, starts, seed)
            maps[:, row, seen] = torch.from_numpy(farthest).view(heads, -1)
    return LayerAlternative(maps.to(value.device), whole.between_heads, projection_condition(on_cpu(projection)))


def _farthest(basis: np.ndarray, row: np.ndarray, starts: int, seed: int) -> np.ndarray:
    """The row that is farthest in total variation, of those found: a corner, each step being a linear program."""
    programs, generator = RowPrograms(basis, row), np.random.default_rng(seed)
    best = row
    for cost in (row, *(generator.standard_normal(len(row)) for _ in range(starts))):
        corner = programs.best(cost)
        while True:
            new = programs.best(np.where(corner >= row, -1.0, 1.0))
            if np.abs(new - row).sum() <= np.abs(corner - row).sum() * (1 + 1e-9):
                break
            corner = new
        best = max(best, corner, key=lambda one: float(np.abs(one - row).sum()))
    return best
