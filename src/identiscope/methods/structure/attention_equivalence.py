"""Whether two attention maps are the same to a model: under one text's embeddings, and under another's."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.agreement import TOLERANCES

#: The relations of section II-B of the structure-aware draft, each asking for one thing more than the one before.
RELATIONS = ("output", "output_and_row_sums", "output_row_sums_and_sign")


@dataclass(frozen=True, eq=False)
class Equivalence:
    """Which relations hold between two maps under each input's T, and by how much they fail.

    `holds` [relation, input]. `output_difference` [input] is ‖A₁T − A₂T‖ / ‖A₁T‖ (Frobenius), and
    `row_output_difference` [input, query] that of each row on the scale of the whole. `row_sum_error` is the largest
    distance of a row sum of either map from one, `negative_weight` the size of the most negative weight of either (0:
    none). `tolerance` is what rounding in the precision of the pass explains.
    """

    holds: Tensor
    output_difference: Tensor
    row_output_difference: Tensor
    row_sum_error: float
    negative_weight: float
    tolerance: float


def attention_equivalence(
    first: Tensor,
    second: Tensor,
    values: Sequence[Tensor],
    projection: Tensor,
    *,
    precision: torch.dtype | None = None,
) -> Equivalence:
    """A₁ ~_E A₂ for each input E, in the three senses of `RELATIONS` (section II-B).

    `first`, `second` [query, key]; `values` one V = E·W_V [key, channel] for each input; `projection`
    [channel, model] is the head's H. Maps that are equivalent under one input need not be so under another: the
    kernel of T' depends on the embeddings.

    >>> maps = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    >>> same, other = torch.tensor([[3.0], [3.0]]), torch.tensor([[3.0], [0.0]])
    >>> attention_equivalence(*maps, [same, other], torch.eye(1)).holds[0]
    tensor([ True, False])
    """
    if first.ndim != 2 or first.shape != second.shape or not values:
        raise InputError(
            f"maps of shape {list(first.shape)} and {list(second.shape)} and {len(values)} inputs were given, expected"
            " two maps [query, key] and at least one input"
        )
    wrong = [list(one.shape) for one in values if one.ndim != 2 or len(one) != first.shape[1]]
    if wrong:
        raise InputError(
            f"values of shape {wrong[0]} were given for maps over {first.shape[1]} keys; two inputs can be compared"
            " only where both have as many tokens as the maps have keys"
        )
    tolerance = TOLERANCES[values[0].dtype if precision is None else precision]
    one, other = first.double(), second.double()
    rows = []
    for value in values:
        transformed = value.double() @ projection.double()
        size = torch.linalg.matrix_norm(one @ transformed)
        rows.append(((one - other) @ transformed).norm(dim=1) / torch.where(size > 0, size, 1.0))
    differences = torch.stack(rows)
    output = differences.square().sum(1).sqrt()
    row_sum_error = float(torch.cat([one.sum(1), other.sum(1)]).sub(1).abs().max())
    negative = float(-torch.minimum(one.min(), other.min()).clamp(max=0))
    same = output <= tolerance
    summed = same & torch.full_like(same, row_sum_error <= tolerance)
    signed = summed & torch.full_like(same, negative <= tolerance)
    return Equivalence(torch.stack([same, summed, signed]), output, differences, row_sum_error, negative, tolerance)
