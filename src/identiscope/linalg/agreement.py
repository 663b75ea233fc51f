"""When two computations of one quantity agree, by the precision they were done in."""

import torch
from torch import Tensor

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
    computed, expected = computed.double(), expected.double()
    if expected.numel() == 0:
        return 0.0
    difference = (computed - expected).abs().max()
    size = expected.abs().max()
    return float(difference / size) if size > 0 else float(difference)


def effective_precision(error: float) -> torch.dtype | None:
    """The finest precision whose rounding explains this error; None if none does."""
    return next((dtype for dtype, tolerance in TOLERANCES.items() if error <= tolerance), None)


def explained_by(error: float, dtype: torch.dtype) -> bool:
    """Whether rounding explains the error in a model of this dtype.

    A float64 model may compute its softmax in float32, as several families do, so it is held to float32.
    """
    return error <= max(TOLERANCES.get(dtype, 0.0), TOLERANCES[torch.float32])
