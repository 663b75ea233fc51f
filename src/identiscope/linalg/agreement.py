"""When two computations of one quantity agree, by the precision they were done in."""

from collections.abc import Sequence

import torch
from torch import Tensor

from identiscope.linalg.devices import wide

# Largest relative error, on the largest value, that rounding in this precision explains after the few
# hundred operations of an attention block.
TOLERANCES: dict[torch.dtype, float] = {
    torch.float64: 1e-12,
    torch.float32: 2e-5,
    torch.float16: 1e-2,
    torch.bfloat16: 6e-2,
}


def relative_error(computed: Tensor, expected: Tensor) -> float:
    """Largest difference over the largest expected value, in float64; 0 for two zeros, NaN if either has NaN."""
    return relative_errors([(computed, expected)])[0]


def relative_errors(pairs: Sequence[tuple[Tensor, Tensor]]) -> list[float]:
    """The relative error of each pair (computed, expected); a device is waited for once for all of them."""
    if not pairs:
        return []
    sizes = [_sizes(*pair) for pair in pairs]
    measured = torch.stack([size.to(sizes[0].device) for size in sizes]).tolist()
    return [difference / size if size > 0 else difference for difference, size in measured]


def _sizes(computed: Tensor, expected: Tensor) -> Tensor:
    """The largest difference, and the largest expected value."""
    computed = wide(computed)
    expected = wide(expected).to(computed.device)
    if expected.numel() == 0:
        return computed.new_zeros(2)
    return torch.stack([(computed - expected).abs().max(), expected.abs().max()])


def effective_precision(error: float) -> torch.dtype | None:
    """The finest precision whose rounding explains this error; None if none does."""
    return next((dtype for dtype, tolerance in TOLERANCES.items() if error <= tolerance), None)


def explained_by(error: float, dtype: torch.dtype) -> bool:
    """Whether rounding explains the error in a model of this dtype.

    A float64 model may compute its softmax in float32, as several families do, so it is held to float32.
    """
    return error <= max(TOLERANCES.get(dtype, 0.0), TOLERANCES[torch.float32])
