"""Sums of projectors of a Run as plain arrays; `methods.structure.shared_subspace` computes with them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from identiscope.careful_reading import understanding
from identiscope.runs.format.shard_files import array_bytes, read_arrays
from identiscope.runs.format.shard_shape import SUBSPACES

Arrays = Mapping[str, NDArray[Any]]
#: Of the texts of both, in this order; given by who computes.
Merge = Callable[[Arrays, Arrays], Arrays]


@dataclass(frozen=True, eq=False)
class Subspace:
    """What the texts of one length share in a layer, over `samples` of them.

    projector_sum [head, key, key]; basis [head, key, direction] of all directions seen so far, origin [head, direction]
    the number of the text that brought each (0: none yet), strength how much of it was new; gap and cutoff [head].
    `shared_subspace.from_arrays(subspace.arrays())` computes with it.
    """

    basis: NDArray[np.float64]
    origin: NDArray[np.int64]
    strength: NDArray[np.float64]
    gap: NDArray[np.float64]
    projector_sum: NDArray[np.float64]
    cutoff: NDArray[np.float64]
    samples: int

    @property
    def keys(self) -> int:
        """Length of the texts."""
        return int(self.projector_sum.shape[1])

    @property
    def mean_projector(self) -> NDArray[np.float64]:
        """The mean over the texts, [head, key, key]."""
        mean: NDArray[np.float64] = self.projector_sum / self.samples
        return mean

    def arrays(self) -> dict[str, NDArray[Any]]:
        """As plain arrays, by name."""
        return {name: getattr(self, name) for name in _SHAPES} | {"samples": np.array(self.samples)}


#: Axes of each array: heads, and so many times the length of the texts.
_SHAPES = {"basis": 2, "origin": 1, "strength": 1, "gap": 0, "projector_sum": 2, "cutoff": 0}


def subspace_bytes(subspaces: Mapping[int, Arrays], described: Mapping[str, Any]) -> bytes:
    """Sums of projectors by layer as a file holds them."""
    arrays = {f"{layer}.{name}": array for layer, one in subspaces.items() for name, array in one.items()}
    return array_bytes(arrays, {"layers": sorted(subspaces), **described})


def read_subspaces(data: bytes, manifest: Mapping[str, Any]) -> dict[int, Subspace]:
    """Sums of projectors by layer, checked."""
    with understanding(SUBSPACES):
        arrays, described = read_arrays(data)
        layers = described["layers"]
        if not isinstance(layers, list) or not set(layers) <= set(manifest["model"]["layers"]):
            raise ValueError("its layers are not those of the Run")
        if arrays.keys() != {f"{layer}.{name}" for layer in layers for name in _ALL}:
            raise ValueError("its arrays are not those of sums of projectors")
        length = manifest["options"]["subspace_length"]
        return {layer: _subspace({name: arrays[f"{layer}.{name}"] for name in _ALL}, length) for layer in layers}


_ALL = (*_SHAPES, "samples")


def _subspace(arrays: Arrays, length: int) -> Subspace:
    heads = len(arrays["cutoff"])
    for name, axes in _SHAPES.items():
        kind = np.int64 if name == "origin" else np.float64
        if arrays[name].shape != (heads, *[length] * axes) or arrays[name].dtype != kind:
            raise ValueError(f"{name} is not of the shape or type of sums of projectors")
    samples = arrays["samples"]
    if samples.shape != () or samples.dtype != np.int64 or samples < 1:
        raise ValueError("it is the sum of no texts")
    return Subspace(**{name: arrays[name] for name in _SHAPES}, samples=int(samples))
