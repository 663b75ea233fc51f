"""Attention in plain operations, which forward-mode derivatives and `vmap` pass through, in this thread alone.

torch's own switch between kernels (`torch.nn.attention.sdpa_kernel`) is one for all threads.
"""

from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from identiscope.capture.watch.functions import arguments


class PlainAttention(TorchFunctionMode):
    """PyTorch's attention by its formula inside the block. (A base class of torch's, needed to be called.)"""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is functional.scaled_dot_product_attention:
            func = _plain
        elif func is functional.multi_head_attention_forward:
            func = _multi_head
        return func(*args, **(kwargs or {}))


#: Cells of maps formed at once. Of a longer text some rows are taken at a time: its maps need not be held together.
_CELLS = 2**22


def _plain(*args: Any, **kwargs: Any) -> Tensor:
    """What torch's own kernel of plain operations returns: the same function, called by its name."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    query, key, value, mask, dropout, causal = arguments(args, kwargs, names)
    options = {"scale": kwargs.get("scale"), "enable_gqa": kwargs.get("enable_gqa", False)}
    queries, keys = query.shape[-2], key.shape[-2]
    most = max(1, _CELLS // (query.shape[:-2].numel() * keys))
    # Weights that are dropped at random are drawn for all rows together.
    if queries <= most or dropout:
        return _some_rows(query, key, value, mask, dropout or 0.0, bool(causal), **options)
    parts = []
    for begin in range(0, queries, most):
        rows = slice(begin, min(begin + most, queries))
        own = mask if mask is None or mask.ndim < 2 or mask.shape[-2] == 1 else mask[..., rows, :]
        if causal:
            own = torch.ones(rows.stop - begin, keys, dtype=torch.bool, device=query.device).tril(begin)
        parts.append(_some_rows(query[..., rows, :], key, value, own, 0.0, False, **options))
    return torch.cat(parts, -2)


def _some_rows(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float, causal: bool, **options: Any
) -> Tensor:
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, -torch.inf)
    context: Tensor = torch.ops.aten._scaled_dot_product_attention_math(
        query, key, value, mask, dropout, causal, **options
    )[0]
    return context


def _with(function: Any, **names: Any) -> Any:
    """The same function, with other things behind some names that its code uses."""
    made = FunctionType(function.__code__, function.__globals__ | names, function.__name__, function.__defaults__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


# It calls the kernel from within, where no mode looks on.
_multi_head = _with(
    functional.multi_head_attention_forward,
    scaled_dot_product_attention=_plain,
    has_torch_function=lambda tensors: False,
)
