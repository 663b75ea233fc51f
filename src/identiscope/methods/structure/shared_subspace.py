"""The subspace of attention that the texts of a corpus share: which directions any of them, or all, can use."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.devices import on_cpu
from identiscope.linalg.rank.column_space import orthogonal_column_space
from identiscope.linalg.rank.coordinates import Coordinates, coordinates
from identiscope.linalg.rank.projection_factor import ProjectionFactor
from identiscope.linalg.rank.shared_span import SharedSpan, extend_span, merge_spans, no_span
from identiscope.linalg.rank.subspaces import reaches
from identiscope.methods.maps.effective import as_factor


@dataclass(frozen=True, eq=False)
class Soft:
    """The mean projector's eigenvalues [head, direction], largest first, and eigenvectors [head, key, direction].

    An eigenvalue is the share of samples that use the direction: 1 all of them, 0 none.
    """

    eigenvalues: Tensor
    eigenvectors: Tensor


@dataclass(frozen=True, eq=False)
class SharedSubspace:
    """R of every head over the samples seen so far, hard (`span`) and soft (`projector_sum` [head, key, key]).

    Immutable: `add` and `merge` give a new one. `cutoff` [head] is the largest relative cutoff of any sample.
    """

    span: SharedSpan
    projector_sum: Tensor
    samples: int
    cutoff: Tensor

    @property
    def keys(self) -> int:
        """Length n of the texts: the subspace lies in R^n."""
        return self.projector_sum.shape[1]

    @property
    def mean_projector(self) -> Tensor:
        """(1/N)·Σ P_i, [head, key, key]."""
        if not self.samples:
            raise InputError("no sample has been added, so there is no mean projector")
        return self.projector_sum / self.samples

    @cached_property
    def soft(self) -> Soft:
        """The directions by how many samples use them."""
        mean = self.mean_projector
        values, vectors = torch.linalg.eigh((mean + mean.mT) / 2)
        return Soft(values.flip(1).clamp(0, 1), vectors.flip(2))

    def basis(self, head: int, cut: float | None = None) -> Tensor:
        """Orthonormal directions [key, direction]: of the hard R, or with a `cut` those with an eigenvalue ≥ cut."""
        if not 0 <= head < len(self.cutoff):
            raise InputError(f"head {head} was asked for, expected one of 0 to {len(self.cutoff) - 1}")
        if cut is None:
            return self.span.of_head(head)
        if not 0 < cut <= 1:
            raise InputError(f"a cut of {cut} was given, expected a share of the samples, above 0 and at most 1")
        return self.soft.eigenvectors[head][:, reaches(self.soft.eigenvalues[head], cut)]

    def add(
        self,
        value: Tensor,
        projection: Tensor | ProjectionFactor,
        *,
        precision: torch.dtype | None = None,
        value_bias: Tensor | None = None,
    ) -> "SharedSubspace":
        """With one more sample, which may be on any device; parameters as for `shared_subspace`."""
        points = coordinates(value, as_factor(projection), precision, value_bias=value_bias)
        heads, keys = len(points.triangle), points.points.shape[1]
        if (heads, keys) != self.projector_sum.shape[:2]:
            raise InputError(
                f"a sample of {heads} heads and {keys} keys was given for a subspace of {len(self.cutoff)} heads and"
                f" {self.keys} keys; texts of another length live in another space: keep one subspace a length"
            )
        columns, basis, relative = _columns(points)
        columns, basis = on_cpu(columns), on_cpu(basis)
        cutoff = torch.full((heads,), relative, dtype=torch.float64)
        span = self.span
        if not bool(span.full.all()):
            span = extend_span(span, columns, cutoff, self.samples + 1)
        return SharedSubspace(
            span, self.projector_sum + basis @ basis.mT, self.samples + 1, torch.maximum(self.cutoff, cutoff)
        )

    def merge(self, other: "SharedSubspace") -> "SharedSubspace":
        """Of the samples of both, as if those of the other had come after these."""
        if self.projector_sum.shape != other.projector_sum.shape:
            raise InputError(
                f"subspaces of {list(self.projector_sum.shape)} and {list(other.projector_sum.shape)} [head, key, key]"
                " were given, expected the same heads and length"
            )
        cutoff = torch.maximum(self.cutoff, other.cutoff)
        return SharedSubspace(
            merge_spans(self.span, other.span, self.samples, cutoff),
            self.projector_sum + other.projector_sum,
            self.samples + other.samples,
            cutoff,
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """As plain arrays, to be stored; `from_arrays` reads them."""
        parts = {field.name: getattr(self.span, field.name) for field in fields(SharedSpan)}
        parts |= {"projector_sum": self.projector_sum, "cutoff": self.cutoff}
        return {name: part.numpy().copy() for name, part in parts.items()} | {"samples": np.array(self.samples)}


def from_arrays(arrays: Mapping[str, np.ndarray]) -> SharedSubspace:
    """What `SharedSubspace.arrays` gave, as it was.

    >>> one = shared_subspace(torch.eye(4, 2)[None], torch.eye(2, 6)[None])
    >>> from_arrays(one.arrays()).samples
    1
    """
    names = [field.name for field in fields(SharedSpan)]
    missing = sorted({*names, "projector_sum", "cutoff", "samples"} - set(arrays))
    if missing:
        raise InputError(f"arrays {sorted(arrays)} were given; those of a shared subspace have {missing} too")
    parts = {name: torch.from_numpy(np.array(arrays[name])) for name in (*names, "projector_sum", "cutoff")}
    span = SharedSpan(*(parts[name] for name in names))
    return SharedSubspace(span, parts["projector_sum"], int(arrays["samples"]), parts["cutoff"])


def no_samples(heads: int, keys: int) -> SharedSubspace:
    """The subspace of no samples yet, to add to: of so many heads, for texts of so many keys."""
    zeros = torch.zeros(heads, keys, keys, dtype=torch.float64)
    return SharedSubspace(no_span(heads, keys), zeros, 0, torch.zeros(heads, dtype=torch.float64))


def shared_subspace(
    value: Tensor,
    projection: Tensor | ProjectionFactor,
    *,
    precision: torch.dtype | None = None,
    value_bias: Tensor | None = None,
) -> SharedSubspace:
    """R = (∩ ker T_i')^⊥ (eq. 6 of the structure-aware draft) of one sample; `add` more, or `merge`.

    R is the span of the columns of all T_i. Values in general position fill the whole space after ⌈n/d_v⌉ samples,
    so the soft R is kept too: the eigenvectors of the mean projector (1/N)·Σ P_i on the columns of T_i.
    `value` [kv_head, key, channel], `projection` [head, channel, model]; parameters as for `effective`.

    >>> one = shared_subspace(torch.eye(4, 2)[None], torch.eye(2, 6)[None])
    >>> both = one.add(torch.eye(4, 2)[None].flip(1), torch.eye(2, 6)[None])
    >>> both.span.dimension, both.span.filled_at, both.soft.eigenvalues
    (tensor([4]), tensor([2]), tensor([[0.5000, 0.5000, 0.5000, 0.5000]], dtype=torch.float64))
    """
    factor = as_factor(projection)
    empty = no_samples(len(factor.triangle), value.shape[1] if value.ndim > 1 else 0)
    return empty.add(value, factor, precision=precision, value_bias=value_bias)


def chance_spectrum(keys: int, rank: int, samples: int, *, seed: int = 0) -> Tensor:
    """Eigenvalues [key] of the mean projector on so many random subspaces, which have nothing in common.

    Few samples have widely spread eigenvalues by chance alone: what lies above this is shared, what lies below is
    shunned. From more than 300 samples on, 300 are drawn: the spread is then small, and that of more still smaller.

    >>> chance_spectrum(4, 2, 1)
    tensor([1., 1., 0., 0.], dtype=torch.float64)
    """
    if not 0 <= rank <= keys or samples < 1:
        raise InputError(
            f"{samples} subspaces of rank {rank} in {keys} dimensions were asked for; expected some that fit"
        )
    generator = torch.Generator().manual_seed(seed)
    drawn = min(samples, 300)
    # Few samples scatter: take the mean of several draws.
    repeats = max(1, 64 // drawn)
    total = torch.zeros(keys, dtype=torch.float64)
    for _ in range(repeats):
        bases = torch.linalg.qr(torch.randn(drawn, keys, rank, generator=generator, dtype=torch.float64)).Q
        together = bases.transpose(0, 1).reshape(keys, -1)
        total += torch.linalg.eigvalsh(together @ together.mT / drawn).flip(0)
    spectrum: Tensor = (total / repeats).clamp(0, 1)
    # One sample's are exactly one and zero.
    return spectrum.round() if samples == 1 else spectrum


def own_basis(
    value: Tensor,
    projection: Tensor | ProjectionFactor,
    *,
    precision: torch.dtype | None = None,
    value_bias: Tensor | None = None,
) -> Tensor:
    """Orthonormal directions of col(T) of one sample, [head, key, direction], zero beyond the rank.

    >>> own_basis(torch.ones(1, 2, 1), torch.ones(1, 1, 1)).abs()
    tensor([[[0.7071],
             [0.7071]]], dtype=torch.float64)
    """
    return _columns(coordinates(value, as_factor(projection), precision, value_bias=value_bias))[1]


def _columns(points: Coordinates) -> tuple[Tensor, Tensor, float]:
    """The columns of T in units of its largest singular value, an orthonormal basis of them, and the cutoff."""
    keys = points.points.shape[1]
    space = orthogonal_column_space(points)
    values = space.spectrum.singular_values[:, : space.right.shape[2]]
    kept = torch.arange(values.shape[1], device=values.device) < space.spectrum.rank[:, None]
    basis = space.right * kept[:, None]
    relative = points.cutoff(keys)
    # The scale that the cutoff was relative to: the largest singular value of what the model computed.
    scale = space.spectrum.cutoff / relative
    scaled = values / torch.where(scale > 0, scale, 1.0)[:, None]
    return basis * scaled[:, None], basis, relative
