"""What a method said before, to go on from.

A method whose work can be taken up again has the option `resume`: its function is given an `Earlier`, made of a result
that `ask` has checked to be of the same model, text and stream.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from identiscope.errors import InputError


@dataclass(frozen=True, eq=False)
class Earlier:
    """The arrays, the labels and the facts of an earlier answer, by the names that it gave them."""

    arrays: Mapping[str, np.ndarray]
    labels: Mapping[str, Sequence[Any]]
    facts: Mapping[str, Any]

    def tensor(self, name: str) -> Tensor:
        """An array, copied: the result it comes from stays as it is."""
        return torch.from_numpy(np.array(_part(self.arrays, name)))

    def fact(self, name: str) -> Any:
        """What it said of itself."""
        return _part(self.facts, name)


def _part(parts: Mapping[str, Any], name: str) -> Any:
    if name not in parts:
        raise InputError(f"the result to resume is not whole: it has no {name}. Begin anew.")
    return parts[name]
