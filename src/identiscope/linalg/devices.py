"""Where work happens: where the tensors are, in float64; on the CPU where that cannot be.

A device without float64 (Apple's `mps`) can run a model, but cannot tell a null space from rounding. What such a model
computed is taken to the CPU when it is captured, and worked on there. Algorithms compiled for the CPU (linear programs,
canonical rows) take what they need there with `on_cpu`, wherever it was.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor


def has_float64(device: torch.device) -> bool:
    """Whether a device knows numbers of float64.

    >>> has_float64(torch.device("cpu"))
    True
    """
    if device.type in ("cpu", "cuda"):
        return True
    try:
        torch.empty(0, dtype=torch.float64, device=device)
    except (TypeError, RuntimeError):
        return False
    return True


def working_device(device: torch.device) -> torch.device:
    """Where tensors of a device are worked on: there if it has float64, else on the CPU."""
    return device if has_float64(device) else torch.device("cpu")


def wide(tensor: Tensor) -> Tensor:
    """A tensor in float64, on its working device."""
    return tensor.to(working_device(tensor.device)).double()


def on_cpu(tensor: Tensor) -> Tensor:
    """A tensor for what is compiled for the CPU."""
    return tensor.detach().cpu()


def as_numpy(values: Any) -> np.ndarray:
    """A tensor of any device, or anything else that NumPy knows, as an array."""
    return np.asarray(on_cpu(values) if isinstance(values, Tensor) else values)
