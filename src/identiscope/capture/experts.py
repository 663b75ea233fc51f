"""The products of experts in plain operations, which forward-mode derivatives and `vmap` can follow.

Models with a mixture of experts call, as they are loaded, one kernel for the products of all experts, which has no
derivative forwards. The model is not touched: the kernel is seen as it is called, in this thread alone.
"""

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


class PlainExperts(TorchFunctionMode):
    """Inside, rows sorted by expert are multiplied with each expert's matrix, one expert after the other."""

    def __init__(self) -> None:
        super().__init__()
        # PyTorch's kernel, and what transformers calls where PyTorch has none for this processor.
        fallback = getattr(torch.ops.transformers, "grouped_mm_fallback", None)
        self.kernels = {getattr(torch, "_grouped_mm", None), fallback, getattr(fallback, "default", None)} - {None}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in self.kernels:
            return func(*args, **kwargs)
        given = {name: value for name, value in kwargs.items() if value is not None}
        return _multiply(*args, **given)


def _multiply(input: Tensor, weight: Tensor, offs: Tensor) -> Tensor:
    """input [row, in] times weight [expert, in, out]; expert e has the rows from offs[e − 1] to offs[e]."""
    ends = offs.tolist()
    spans = zip([0, *ends[:-1]], ends, weight, strict=True)
    return torch.cat([input[begin:end] @ matrix for begin, end, matrix in spans if end > begin])
