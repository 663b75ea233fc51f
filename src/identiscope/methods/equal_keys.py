"""Which keys are copies of each other: by their token, or by their rows of T."""

from typing import Literal, get_args

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.devices import on_cpu
from identiscope.linalg.equal_rows import equal_rows
from identiscope.linalg.rank.projection_factor import ProjectionFactor

#: What makes two keys copies of each other: the same token, or the same row of T at the precision of the pass.
Equal = Literal["tokens", "values"]


def key_groups(
    value: Tensor, factor: ProjectionFactor, equal: Equal, copies: Tensor | None, precision: torch.dtype | None
) -> Tensor:
    """The number of the group of equal keys that each key is of: of tokens [key], of values [head, key]; on the CPU.

    value [kv_head, key, channel]; copies: groups of equal tokens, each key its own by default.
    """
    if equal not in get_args(Equal):
        raise InputError(f"equal={equal!r} was given; expected one of {', '.join(get_args(Equal))}.")
    if equal == "tokens":
        return torch.arange(value.shape[1]) if copies is None else on_cpu(copies)
    group = len(factor.triangle) // len(value)
    points = on_cpu(value).double().repeat_interleave(group, 0) @ on_cpu(factor.triangle).mT
    return torch.stack([equal_rows(one, value.dtype if precision is None else precision) for one in points])
